/** Webhooks: who is told of outcomes and events, and a new one. */

import { Mark, Trouble, When, html } from "../parts.js";
import { useState } from "../vendor/hooks.js";
import { call, part } from "../api.js";
import { Listed } from "../listed.js";
import { usePages } from "../read.js";
import { Secret } from "../secret.js";
import { textOf, useSubmit } from "../submit.js";
import { HOOK_EVENTS, hookOf } from "../words.js";

/** @param {any} one */
function line(one) {
  return html`<tr key=${one.id}>
    <td class="main"><a data-row href=${`#/webhooks/${part(one.id)}`}>${one.url}</a></td>
    <td class="what"><${Mark} of=${hookOf(one)} /></td>
    <td class="where">${one.queue ? `queue ${one.queue}` : `${one.methods} of ${one.devices}`}</td>
    <td class="note-cell">${one.disabled_reason ?? ""}</td>
    <td class="when"><${When} at=${one.created_at} /></td>
  </tr>`;
}

/** What a form asks for, as the API takes it. @param {FormData} typed */
function wishesOf(typed) {
  const [url, queue, devices, methods] = ["url", "queue", "devices", "methods"].map((name) => textOf(typed, name));
  return { url, ...(queue ? { queue } : { events: typed.getAll("events"), ...(devices ? { devices } : {}), ...(methods ? { methods } : {}) }) };
}

/** @param {{ made: (hook: any) => void }} props */
function New({ made }) {
  const { error, busy, submit } = useSubmit((typed) => call("POST", "v1/webhooks", { body: wishesOf(typed) }), made);
  return html`<details><summary>New webhook</summary>
    <form class="sending" onSubmit=${submit}>
      <div class="field"><label for="hook-url">URL</label><input id="hook-url" name="url" type="url" required autocomplete="off" aria-describedby="hook-url-hint" /><p class="hint muted" id="hook-url-hint">An https address that can be reached from the nodes.</p></div>
      <fieldset class="params"><legend>Outcomes</legend>
        <p class="row">${HOOK_EVENTS.map((one) => html`<label key=${one}><input type="checkbox" name="events" value=${one} defaultChecked=${true} /> ${one.replace("command.", "").replace("_", " ")}</label>`)}</p>
        <div class="row"><label>Devices <input class="short" name="devices" placeholder="dock-*" autocomplete="off" spellcheck=${false} /></label><label>Methods <input class="short" name="methods" placeholder="dji:*" autocomplete="off" spellcheck=${false} /></label></div>
      </fieldset>
      <div class="field"><label for="hook-queue">Or the events of a queue</label><input id="hook-queue" name="queue" maxlength="64" autocomplete="off" spellcheck=${false} aria-describedby="hook-queue-hint" /><p class="hint muted" id="hook-queue-hint">Then outcomes of commands are not told. It needs <code>consume</code> on the queue.</p></div>
      ${error && html`<${Trouble} error=${error} />`}
      <p class="row"><button type="submit" class="chief" aria-disabled=${busy}>Make it</button></p>
    </form></details>`;
}

export function Webhooks() {
  const listed = usePages("v1/webhooks?limit=100", "webhooks");
  const [made, show] = useState(/** @type {any} */ (null));
  const none = html`<p class="empty">No webhook is declared. A webhook is a URL that is told how commands end; the form makes one.</p>`;
  return html`<h1 tabindex="-1">Webhooks</h1>
    <${Listed} listed=${listed} word="webhook" caption="Webhooks, oldest first" heads=${["URL", "State", "Told of", "Why", "Made"]} row=${line} empty=${none} />
    <${New} made=${(/** @type {any} */ hook) => { show(hook); listed.again(); }} />
    ${made && html`<${Secret} text=${made.secret} title="The secret of the new webhook" hint=${html`The receiver verifies with it what <code>${made.id}</code> delivers to ${made.url}.`} done=${() => show(null)} />`}`;
}
