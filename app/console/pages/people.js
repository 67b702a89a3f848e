/** People and services, roles, and whether somebody may do something. */

import { Mark, Trouble, html } from "../parts.js";
import { useState } from "../vendor/hooks.js";
import { call, part } from "../api.js";
import { Confirm } from "../confirm.js";
import { Listed } from "../listed.js";
import { usePages, useRead } from "../read.js";
import { myself } from "../person.js";
import { ACTIONS, decisionOf, principalOf } from "../words.js";

/** The id of a principal in a path: slashes stay, since they are part of it. @param {string} id */
function pathOf(id) {
  return id.split("/").map(part).join("/");
}

/** What somebody has been given, read when it is looked at. @param {{ id: string }} props */
function Bindings({ id }) {
  const [open, turn] = useState(false);
  const { found, error, again } = useRead(open ? `v1/principals/${pathOf(id)}/bindings` : null);
  return html`<details onToggle=${(/** @type {any} */ event) => turn(event.currentTarget.open)}><summary>Roles of ${id}</summary>
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${found && (found.bindings.length ? html`<ul class="plain">${found.bindings.map((/** @type {any} */ one) => html`<li key=${one.id}><strong>${one.role}</strong>${one.tenant ? ` in ${one.tenant}` : " everywhere"} on ${one.devices.join(", ")}${one.expires ? `, until ${one.expires}` : ""}</li>`)}</ul>` : html`<p class="muted">None that you administer.</p>`)}</details>`;
}

export function People() {
  const listed = usePages("v1/principals?limit=100", "principals");
  const [done, say] = useState("");
  /** Turns what is on record now: others may have changed it since it was listed. @param {any} one */
  async function turn(one) {
    const { id, ...rest } = await call("GET", `v1/principals/${pathOf(one.id)}`);
    await call("PUT", `v1/principals/${pathOf(id)}`, { body: { ...rest, disabled: !one.disabled } });
  }
  const line = (/** @type {any} */ one) => html`<tr key=${one.id}>
    <td class="main">${one.id}</td>
    <td class="what"><${Mark} of=${principalOf(one)} /></td>
    <td class="where">${one.tenant ?? "Homing itself"}</td>
    <td class="where">${one.name ?? ""}</td>
    <td class="note-cell"><${Bindings} id=${one.id} /></td>
    <td class="act"><${Confirm} label=${one.disabled ? "Enable …" : "Disable …"} title=${`${one.disabled ? "Let" : "Refuse"} ${one.id}${one.disabled ? " in again" : ""}?`} text=${one.disabled ? "Their keys count again, as far as they have not ended." : "They are refused with any key or login, on every node within a second. Their commands go on."} does=${one.disabled ? "Enable them" : "Disable them"} run=${() => turn(one)} done=${() => { say(`${one.id} is ${one.disabled ? "enabled" : "disabled"}.`); listed.again(); }} /></td>
  </tr>`;
  return html`<p role="status">${done}</p>
    <${Listed} listed=${listed} word="principal" caption="People and services" heads=${["Name", "State", "Tenant", "Called", "Roles", "Change"]} row=${line} empty="You administer nobody." />`;
}

export function Roles() {
  const listed = usePages("v1/roles?limit=100", "roles");
  const line = (/** @type {any} */ one) => html`<tr key=${`${one.tenant} ${one.name}`}>
    <td class="main">${one.name}</td>
    <td class="where">${one.tenant ?? "of all tenants"}</td>
    <td class="note-cell"><pre tabindex="0" role="region" aria-label=${`Rules of ${one.name}`}><code>${one.rules.join("\n")}</code></pre></td>
  </tr>`;
  return html`<${Listed} listed=${listed} word="role" caption="Roles, built-in ones first" heads=${["Name", "Tenant", "Rules"]} row=${line} empty="There are no roles that you may bind." />`;
}

/** @param {{ decision: any }} props */
function Decision({ decision }) {
  const { icon, word, tone } = decisionOf(decision);
  return html`<section class=${`headline ${tone}`} role="status" aria-label="Decision">
    <p class="party"><span class="icon" aria-hidden="true">${icon}</span>${word}</p>
    <p class="sentence">${decision.rule ? html`By <code>${decision.rule}</code>` : `Reason: ${decision.reason.replaceAll("_", " ")}`}.</p>
    ${decision.requires > 1 && html`<p>${decision.requires} people must want it.</p>`}
    ${decision.limits.length > 0 && html`<p>Limited by ${decision.limits.map((/** @type {string} */ one) => html`<code key=${one}>${one}</code> `)}</p>`}
    ${decision.nearest.length > 0 && html`<p>Nearest:</p><ul class="plain">${decision.nearest.map((/** @type {string} */ one) => html`<li key=${one}><code>${one}</code></li>`)}</ul>`}
  </section>`;
}

export function Check() {
  const [decision, show] = useState(/** @type {any} */ (null));
  const [error, fail] = useState(/** @type {any} */ (null));
  /** @param {any} event */
  async function submit(event) {
    event.preventDefault();
    const typed = Object.fromEntries([...new FormData(event.currentTarget)].map(([name, value]) => [name, String(value).trim()]).filter(([, value]) => value));
    fail(null);
    try {
      show(await call("POST", "v1/access/check", { body: typed }));
    } catch (problem) {
      show(null);
      fail(problem);
    }
  }
  const field = (/** @type {string} */ name, /** @type {string} */ label, /** @type {any} */ more = {}) => html`<label>${label} <input name=${name} maxlength="128" autocomplete="off" spellcheck=${false} ...${more} /></label>`;
  return html`<form onSubmit=${submit}><div class="filters">
      ${field("principal", "Who", { required: true, defaultValue: myself() })}
      <label>Action <select name="action">${ACTIONS.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>
      ${field("device", "Device", { placeholder: "dock-1" })}${field("profile", "Profile", { placeholder: "dji" })}${field("method", "Method", { placeholder: "cover_open" })}${field("tenant", "Tenant, without a device")}
    </div><p class="row"><button type="submit" class="chief">May they?</button></p></form>
    ${error && html`<${Trouble} error=${error} />`}
    ${decision && html`<${Decision} decision=${decision} />`}`;
}
