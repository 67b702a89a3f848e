/** The audit: who has asked for what, newest first. */

import { Value, When, html } from "../parts.js";
import { useState } from "../vendor/hooks.js";
import { part, query } from "../api.js";
import { Listed } from "../listed.js";
import { usePages } from "../read.js";

/** What a row shows elsewhere, or leaves to the whole line. */
const KNOWN = new Set(["at", "kind", "who", "key", "device", "command", "tenant", "from", "agent", "via", "version", "changes"]);

/** What was done, in a few words. @param {any} fact */
function restOf(fact) {
  const changes = Array.isArray(fact.changes) ? fact.changes.map((/** @type {any} */ one) => `${one.do} ${one.what}`) : [];
  const rest = Object.entries(fact).filter(([name, value]) => !KNOWN.has(name) && value !== null && value !== "").map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [...changes, ...rest].join(", ");
}

/** @param {{ fact: any }} props */
function Whole({ fact }) {
  const [open, turn] = useState(false);
  return html`<details onToggle=${(/** @type {any} */ event) => turn(event.currentTarget.open)}><summary>all of it</summary>${open && html`<${Value} value=${fact} name="Line" />`}</details>`;
}

/** @param {any} one @param {number} at */
function line(one, at) {
  const fact = one.line ?? {};
  return html`<tr key=${`${one.writer} ${one.seq} ${at}`}>
    <td class="when"><${When} at=${one.at} /></td>
    <td class="main">${fact.command ? html`<a data-row href=${`#/commands/${part(fact.command)}`}>${fact.kind}</a>` : (fact.kind ?? "cannot be read")}</td>
    <td class="who">${fact.who ?? ""}${fact.key ? html` <span class="id muted">${fact.key}</span>` : ""}</td>
    <td class="where">${fact.device ?? ""}</td>
    <td class="note-cell">${restOf(fact)}<${Whole} fact=${fact} /></td>
  </tr>`;
}

/** @param {{ params: URLSearchParams, go: (some: Record<string, string>) => void }} props */
export function Audit({ params, go }) {
  const [who, device, until] = ["who", "device", "until"].map((name) => params.get(name) ?? "");
  const listed = usePages(`v1/audit${query({ who, device, until, limit: 50 })}`, "lines");
  /** @param {any} event */
  function submit(event) {
    event.preventDefault();
    const typed = new FormData(event.currentTarget);
    go(Object.fromEntries([...typed].map(([name, value]) => [name, String(value).trim()])));
  }
  return html`<form class="filters" onSubmit=${submit}>
      <label>Who <input name="who" defaultValue=${who} maxlength="128" autocomplete="off" spellcheck=${false} /></label>
      <label>Device <input name="device" defaultValue=${device} maxlength="128" autocomplete="off" spellcheck=${false} /></label>
      <label>Until <input name="until" defaultValue=${until} maxlength="40" placeholder="2026-03-01T09:00:00Z" autocomplete="off" spellcheck=${false} /></label>
      <p class="row"><button type="submit">Filter</button><button type="button" onClick=${listed.again}>Read again</button></p>
    </form>
    <${Listed} listed=${listed} word="line" caption="The audit, newest first" heads=${["Time", "What", "Who", "Device", "More"]} row=${line} empty="No line fits. A page may be empty although there is more." />`;
}
