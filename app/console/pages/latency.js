/** Latency: how long commands of each method take, beside their timeout, in the last hour on all nodes. */

import { Hour, Loading, Trouble, html } from "../parts.js";
import { query } from "../api.js";
import { useRead } from "../read.js";
import { many } from "../words.js";
import { clock, duration } from "../time.js";

/** A duration, where one is known. @param {number | null} ms */
function took(ms) {
  return ms === null ? "–" : duration(ms);
}

/** @param {any} one */
function line(one) {
  const ended = Object.values(one.ended).reduce((sum, count) => sum + /** @type {number} */ (count), 0);
  const late = one.ended.timed_out ?? 0;
  return html`<tr key=${`${one.profile}:${one.method}`}>
    <td class="main"><a data-row href=${`#/commands${query({ method: one.method, from: "-1h" })}`}><code>${one.profile}:${one.method}</code></a></td>
    <td class="took">${many(/** @type {number} */ (ended))}<span class="unit"> ended</span></td>
    <td class="took"><span class="unit">p50 </span>${took(one.p50_ms)}</td>
    <td class="took"><span class="unit">p95 </span>${took(one.p95_ms)}</td>
    <td class="took"><span class="unit">p99 </span>${took(one.p99_ms)}</td>
    <td class="took"><span class="unit">timeout </span>${duration(one.timeout_ms)}</td>
    <td class=${`took ${late ? "" : "none"}`}>${late ? html`<strong class="state bad">${many(late)}</strong>` : "0"}<span class="unit"> timed out</span></td>
  </tr>`;
}

/** @param {{ hour: any, at: string }} props */
function Methods({ hour, at }) {
  const methods = hour.methods.toSorted((/** @type {any} */ one, /** @type {any} */ other) => (other.p99_ms ?? 0) - (one.p99_ms ?? 0));
  if (methods.length === 0) return html`<p class="empty">No command has ended within the last hour, as far as the nodes know that run.</p>`;
  return html`<${Hour} hour=${hour} at=${at} />
    <table class="rows"><caption class="offstage">Methods, the slowest first</caption>
      <thead><tr>${["Method", "Ended", "p50", "p95", "p99", "Timeout", "Timed out"].map((one) => html`<th scope="col" key=${one}>${one}</th>`)}</tr></thead>
      <tbody>${methods.map(line)}</tbody></table>`;
}

export function Latency() {
  const { found, error, again: retry } = useRead("v1/overview");
  return html`<p class="back"><a href="#/commands">‹ Commands</a></p>
    <h1 tabindex="-1">Latency</h1>
    ${error && html`<${Trouble} error=${error} again=${retry} />`}
    ${!found && !error && html`<${Loading} rows=${6} />`}
    ${found && (found.last_hour ? html`<${Methods} hour=${found.last_hour} at=${found.at} />` : html`<p class="empty" role="status">Times of all callers need the <code>metrics</code> right without a tenant.</p>`)}
    <p class="row"><button type="button" onClick=${retry}>Read again</button>${found && html`<span class="muted">Of the hour before ${clock(Date.parse(found.at))}, read off histograms of the nodes that run.</span>`}</p>`;
}
