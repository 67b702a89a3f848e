/** Held commands: what waits for its device, until when, and how to end the wait. */

import { When, html } from "../parts.js";
import { useState } from "../vendor/hooks.js";
import { call, part } from "../api.js";
import { Confirm } from "../confirm.js";
import { Listed } from "../listed.js";
import { useAgain, usePages } from "../read.js";
import { counted, waitOf } from "../words.js";

const PAGE = 100;

export function Held() {
  const listed = usePages(`v1/commands?state=held&limit=${PAGE}`, "commands");
  const [done, say] = useState("");
  useAgain([listed], listed.rows.length <= PAGE);
  /** @param {any} one */
  function cancelled(one) {
    say(`${one.method} on ${one.device_id} is cancelled.`);
    listed.again();
  }
  const line = (/** @type {any} */ one) => html`<tr key=${one.id}>
    <td class="main"><a data-row href=${`#/commands/${part(one.id)}`}>${one.device_id}</a></td>
    <td class="what"><code>${one.method}</code></td>
    <td class="where">${one.hold.waits_for.length > 0 ? html`<span class="unit">waits for </span>${one.hold.waits_for.map(waitOf).join(", ")}` : "is being sent"}</td>
    <td class="when"><span class="unit">until </span><${When} at=${one.hold.until} /></td>
    <td class="took">${counted(one.hold.claims, "try", "tries")}</td>
    <td class="act"><${Confirm} label="Cancel …" title=${`Cancel ${one.method} on ${one.device_id}?`} text="It ends as cancelled, and is not sent. If it is being sent just now, the device may still get it." does="Cancel it" verb=${["cancel", one.id]} run=${() => call("POST", `v1/commands/${part(one.id)}/cancel`)} done=${() => cancelled(one)} /></td>
  </tr>`;
  return html`<p class="back"><a href="#/commands">‹ Commands</a></p>
    <h1 tabindex="-1">Held</h1>
    <p role="status">${done}</p>
    <${Listed} listed=${listed} word="command" caption="Held commands, newest first" heads=${["Device", "Method", "Waits for", "Until", "Tried", "Change"]} row=${line} empty="Nothing is held, of what you may read. Commands with a hold wait here until their device is there." />
    <p class="row"><button type="button" onClick=${listed.again}>Read again</button></p>`;
}
