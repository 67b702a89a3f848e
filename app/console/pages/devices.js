/** Devices: all that anything is known of, on record or heard. */

import { Age, Mark, html } from "../parts.js";
import { part, query } from "../api.js";
import { Listed } from "../listed.js";
import { useAgain, usePages } from "../read.js";
import { counted, presenceOf } from "../words.js";

const PAGE = 100;
const HEADS = ["Device", "Presence", "Last seen", "Failed lately", "Profile", "Tenant", "Labels", "Note"];

/** @param {any} one */
function line(one) {
  return html`<tr key=${one.id}>
    <td class="main"><a data-row href=${`#/devices/${part(one.id)}`}>${one.id}</a></td>
    <td class="who"><${Mark} of=${presenceOf(one.online)} /></td>
    <td class="when">${one.last_seen && html`<${Age} at=${one.last_seen} /> ago`}</td>
    <td class="took">${one.failures > 0 && counted(one.failures, "failure")}</td>
    <td class="what">${one.profile ?? ""}</td>
    <td class="where">${one.on_record ? one.tenant : html`<span class="muted">not on record</span>`}</td>
    <td class="where">${Object.entries(one.labels).map(([name, value]) => `${name}=${value}`).join(", ")}</td>
    <td class="note-cell">${one.note}</td></tr>`;
}

/** @param {{ params: URLSearchParams }} props */
export function Devices({ params }) {
  const pattern = params.get("id") ?? "";
  const listed = usePages(`v1/devices${query({ heard: "true", limit: PAGE, id: pattern })}`, "devices");
  useAgain([listed], listed.rows.length <= PAGE);
  /** @param {any} event */
  function open(event) {
    event.preventDefault();
    const id = String(new FormData(event.currentTarget).get("id")).trim();
    location.hash = id && !id.includes("*") ? `#/devices/${part(id)}` : `#/devices${query({ id })}`;
  }
  const none = pattern ? "No device that you may read fits this pattern." : "No device is on record or was heard of, of what you may read. Commands may go to others, too: open one by its id.";
  return html`<h1 tabindex="-1">Devices</h1>
    <form class="row" onSubmit=${open}><label>Device id <input class="short" name="id" maxlength="128" autocomplete="off" spellcheck=${false} placeholder="dock-1 or dock-*" defaultValue=${pattern} /></label><button type="submit">Open</button></form>
    <${Listed} listed=${listed} word="device" caption="Devices: those on record by id, then others" heads=${HEADS} row=${line} empty=${none} />`;
}
