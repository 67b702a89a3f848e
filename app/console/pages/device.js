/** A device: its record, presence, last values and commands. */

import { Age, Copy, Loading, Mark, State, Trouble, Value, When, html } from "../parts.js";
import { call, part, query } from "../api.js";
import { Confirm } from "../confirm.js";
import { useAgain, useRead } from "../read.js";
import { duration } from "../time.js";
import { presenceOf } from "../words.js";

const SHOWN = 20;
const FILTERS = 4;

/** @param {{ title: string, error: any, again: () => void }} props */
function Missing({ title, error, again }) {
  const off = error.status === 404 || error.status === 409;
  return off ? html`<p class="muted">${title}: ${error.message}.</p>` : html`<${Trouble} error=${error} again=${again} what=${title} />`;
}

/** @param {{ record: any, tell: () => void }} props */
function Record({ record, tell }) {
  const { found, error, again } = record;
  if (error) return html`<${Missing} title="Not on record" error=${error} again=${again} />`;
  if (!found) return html`<${Loading} rows=${2} />`;
  const labels = Object.entries(found.labels);
  return html`<dl class="checks">
      <div><dt>Tenant</dt><dd>${found.tenant || "none"}</dd></div>
      <div><dt>Profile</dt><dd>${found.profile ?? "the node's default"}</dd></div>
      <div><dt>Labels</dt><dd>${labels.length ? labels.map(([name, value]) => html`<span class="chip" key=${name}>${name}=${value}</span> `) : "none"}</dd></div>
      <div><dt>Note</dt><dd>${found.note || "none"}</dd></div>
    </dl>
    <p class="row"><${Confirm} label="Take off the record …" title=${`Take ${found.id} off the record?`} text="Its commands and events stay. Commands go to it by the node's default profile." does="Take it off the record" verb=${["devices", "remove", found.id]} run=${() => call("DELETE", `v1/devices/${part(found.id)}`)} done=${tell} /></p>`;
}

/** The topic filters under which a device speaks: its topics up to the level that is its id. @param {string} id @param {any[]} values */
function filtersOf(id, values) {
  const found = values.map(({ topic }) => {
    const levels = topic.split("/");
    const at = levels.indexOf(id);
    return at < 0 ? topic : `${levels.slice(0, at + 1).join("/")}/#`;
  });
  return [...new Set(found)].slice(0, FILTERS);
}

/** @param {{ id: string, state: any }} props */
function Values({ id, state }) {
  const { found, error, again } = state;
  if (error) return html`<${Missing} title="Last values" error=${error} again=${again} />`;
  if (!found) return html`<${Loading} rows=${3} />`;
  if (!found.values.length) return html`<p class="empty">The log has no value of this device that you may read.</p>`;
  return html`<div class="values">${found.values.map((/** @type {any} */ one) => html`<details key=${one.topic}>
      <summary><code>${one.topic}</code> <span class="muted"><${Age} at=${one.at} /> ago</span></summary>
      <${Value} value=${one.data_base64 ?? one.data} name=${one.topic} />
    </details>`)}</div>
    <p class="row"><button type="button" onClick=${again}>Read again</button>${filtersOf(id, found.values).map((topic) => html`<a class="button" key=${topic} href=${`#/events${query({ topic, from: "-1h" })}`}>Events of <code>${topic}</code></a>`)}</p>`;
}

/** @param {{ listed: any }} props */
function Latest({ listed }) {
  const { found, error, again } = listed;
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  if (!found) return html`<${Loading} rows=${4} />`;
  if (!found.commands.length) return html`<p class="empty">No command to it is on record, of what you may read.</p>`;
  return html`<table class="rows commands"><caption class="offstage">The latest commands, newest first</caption>
    <thead><tr><th scope="col">Time</th><th scope="col">Method</th><th scope="col">State</th><th scope="col">Took</th></tr></thead>
    <tbody>${found.commands.map((/** @type {any} */ one) => html`<tr key=${one.id}>
      <td class="when"><${When} at=${one.created_at} /></td>
      <td class="main"><a data-row href=${`#/commands/${one.id}`}><code>${one.method}</code></a></td>
      <td class="who"><${State} state=${one.state} /></td>
      <td class="took">${one.finished_at ? duration(Date.parse(one.finished_at) - Date.parse(one.created_at)) : ""}</td>
    </tr>`)}</tbody></table>`;
}

/** @param {{ presence: any }} props */
function Presence({ presence }) {
  if (!presence) return null;
  return html`<${Mark} of=${presenceOf(presence.online)} />${presence.since && html`<span class="muted">since <${When} at=${presence.since} /></span>`}${presence.last_seen && html`<span class="muted">last seen <${Age} at=${presence.last_seen} /> ago</span>`}`;
}

/** @param {{ id: string }} props */
export function Device({ id }) {
  const record = useRead(`v1/devices/${part(id)}`);
  const state = useRead(`v1/devices/${part(id)}/state`);
  const listed = useRead(`v1/devices/${part(id)}/commands?limit=${SHOWN}`);
  useAgain([state, listed]);
  return html`<p class="back"><a href="#/devices">‹ Devices</a></p>
    <h1 tabindex="-1">${id}</h1>
    <p class="row facts"><${Presence} presence=${state.found?.presence} /></p>
    <p class="row"><a class="button chief" id="send" href=${`#/devices/${part(id)}/send`}>Send …</a>
      <a class="button" href=${`#/commands${query({ device: id })}`}>All its commands</a>
      <${Copy} text=${id} label="Copy id" /></p>
    <section><h2>Commands</h2><${Latest} listed=${listed} /></section>
    <section><h2>Last values</h2><${Values} id=${id} state=${state} /></section>
    <section><h2>Record</h2><${Record} record=${record} tell=${record.again} /></section>`;
}
