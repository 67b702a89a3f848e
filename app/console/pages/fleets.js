/** Fleet runs: what is being done to many devices, and how far it is. */

import { Mark, When, html } from "../parts.js";
import { part } from "../api.js";
import { Listed } from "../listed.js";
import { useAgain, usePages } from "../read.js";
import { endedOf, many, runOf } from "../words.js";

const PAGE = 50;

/** @param {any} run */
function line(run) {
  const ended = endedOf(run.counts);
  return html`<tr key=${run.id}>
    <td class="main"><a data-row href=${`#/fleets/${part(run.id)}`}><code>${run.command.method}</code></a></td>
    <td class="what"><${Mark} of=${runOf(run.state)} /></td>
    <td class="who"><progress max=${run.total} value=${ended} aria-label=${`Of ${run.command.method}, ended`}></progress></td>
    <td class="took">${many(ended)} of ${many(run.total)}<span class="unit"> ended</span></td>
    <td class="where">${run.by}</td>
    <td class="when"><${When} at=${run.created_at} /></td>
  </tr>`;
}

export function Fleets() {
  const listed = usePages(`v1/fleet-runs?limit=${PAGE}`, "runs");
  useAgain([listed], listed.rows.length <= PAGE);
  const none = html`<p class="empty">No run is on record: those that have not ended, and those that ended within a week, are listed here. <a href="#/fleets/new">Begin one</a>: it sends a command to many devices, wave after wave.</p>`;
  return html`<h1 tabindex="-1">Fleets</h1>
    <p class="row"><a class="button chief" href="#/fleets/new">New run …</a> <a class="button" href="#/schedules">Schedules</a></p>
    <${Listed} listed=${listed} word="run" caption="Fleet runs, newest first" heads=${["Method", "State", "Progress", "Ended", "By", "Begun"]} row=${line} empty=${none} kind="runs" />`;
}
