/** Keys: one's own and those that one administers; a new one is shown once. */

import { Mark, Trouble, When, html, useTick } from "../parts.js";
import { useState } from "../vendor/hooks.js";
import { call, part } from "../api.js";
import { Confirm } from "../confirm.js";
import { Listed } from "../listed.js";
import { usePages } from "../read.js";
import { may, myself } from "../person.js";
import { Secret } from "../secret.js";
import { textOf, useSubmit } from "../submit.js";
import { now } from "../time.js";
import { keyOf } from "../words.js";

const DAYS = 90;

/** The numbers and rules of a form, as the API takes them. @param {FormData} typed */
function wishesOf(typed) {
  const said = (/** @type {string} */ name) => textOf(typed, name);
  const days = said("days");
  return {
    ...(said("principal") ? { principal: said("principal") } : {}),
    label: said("label"),
    narrow: said("narrow").split("\n").map((one) => one.trim()).filter(Boolean),
    ...(days === "" ? { never: true } : { days: Number(days) }),
  };
}

/** @param {{ made: (key: any) => void }} props */
function New({ made }) {
  const { error, busy, submit } = useSubmit((typed) => call("POST", "v1/keys", { body: wishesOf(typed) }), made);
  return html`<details><summary>New key</summary>
    <form class="sending" onSubmit=${submit}>
      ${may("access") && html`<div class="field"><label for="key-for">For</label><input id="key-for" name="principal" maxlength="128" placeholder=${myself()} autocomplete="off" spellcheck=${false} aria-describedby="key-for-hint" /><p class="hint muted" id="key-for-hint">A person or service; yourself if it is left out.</p></div>`}
      <div class="field"><label for="key-label">Purpose</label><input id="key-label" name="label" maxlength="128" autocomplete="off" /></div>
      <div class="field"><label for="key-days">Days</label><input id="key-days" name="days" inputmode="numeric" defaultValue=${String(DAYS)} autocomplete="off" aria-describedby="key-days-hint" /><p class="hint muted" id="key-days-hint">Until it expires. Empty: it never does.</p></div>
      <div class="field"><label for="key-narrow">Narrow</label><textarea id="key-narrow" name="narrow" rows="2" placeholder="allow read *:* on *" spellcheck=${false} aria-describedby="key-narrow-hint"></textarea><p class="hint muted" id="key-narrow-hint">Rules, one a line. The key may do only what both they and the roles allow. Empty: all that the roles do.</p></div>
      ${error && html`<${Trouble} error=${error} />`}
      <p class="row"><button type="submit" class="chief" aria-disabled=${busy}>Make it</button></p>
    </form></details>`;
}

export function Keys() {
  useTick(); // keys expire
  const listed = usePages("v1/keys?limit=100", "keys");
  const [made, show] = useState(/** @type {any} */ (null));
  const [done, say] = useState("");
  const [grace, wait] = useState("24h");
  /** A key is shown before anything else is asked: the login may have ended with the one that it replaces. @param {string} text @param {any} [key] */
  function tell(text, key = null) {
    say(text);
    show(key);
    if (!key) listed.again();
  }
  function had() {
    show(null);
    listed.again();
  }
  const line = (/** @type {any} */ one) => {
    const state = keyOf(one, now());
    return html`<tr key=${one.id}>
      <td class="main"><span class="id">${one.id}</span></td>
      <td class="what"><${Mark} of=${state} /></td>
      <td class="where">${one.principal}</td>
      <td class="where">${one.label}</td>
      <td class="when">${one.expires_at ? html`<span class="unit">until </span><${When} at=${one.expires_at} />` : "never ends"}</td>
      <td class="when"><span class="unit">used: </span>${one.last_used_at ? html`<${When} at=${one.last_used_at} />` : "never"}</td>
      <td class="note-cell">${one.narrow.join("; ")}</td>
      <td class="act">${state.tone === "good" && html`<${Confirm} label="Rotate …" title=${`Replace the key ${one.id}?`} text="A new key with the same rights is shown once. The old one counts for a while, so that its users can change over." does="Replace it" verb=${["admin", "keys", "rotate", one.id, "--grace", grace.trim()]} run=${() => call("POST", `v1/keys/${part(one.id)}/rotate`, { body: { grace: grace.trim() } })} done=${(/** @type {any} */ key) => tell(`${one.id} is replaced.`, key)}>
          <div class="field"><label for=${`grace-${one.id}`}>The old one counts for</label><input id=${`grace-${one.id}`} value=${grace} autocomplete="off" onInput=${(/** @type {any} */ event) => wait(event.currentTarget.value)} /></div>
        <//>
        <${Confirm} label="Revoke …" title=${`Revoke the key ${one.id} of ${one.principal}?`} text="It counts for nothing any more, on every node within a second, and neither do logins that it began. There is no way back." does="Revoke it" verb=${["admin", "keys", "revoke", one.id]} run=${() => call("DELETE", `v1/keys/${part(one.id)}`)} done=${() => tell(`${one.id} is revoked.`)} />`}</td>
    </tr>`;
  };
  return html`<p role="status">${done}</p>
    <${Listed} listed=${listed} word="key" caption="Keys" heads=${["Id", "State", "Of", "Purpose", "Until", "Used", "Narrowed by", "Change"]} row=${line} empty="There is no key that you may see." />
    <${New} made=${(/** @type {any} */ key) => tell(`${key.id} is made.`, key)} />
    ${made && html`<${Secret} text=${made.key} title="The new key" hint=${html`Of ${made.principal}, with the id <code>${made.id}</code>.`} done=${had} />`}`;
}
