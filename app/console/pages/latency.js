/** Latency: how long commands of each method take, beside their timeout, by the latest commands on record. */

import { Loading, Trouble, html } from "../parts.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { call, query } from "../api.js";
import { many } from "../standing.js";
import { duration } from "../time.js";
import { counted } from "../words.js";

const PAGE = 100;
/** Looked at, at most. */
const MOST = 1000;
const WIDTH = 120;
const HEIGHT = 24;

/** The value below which this share of them is. @param {number[]} sorted @param {number} share */
export function quantile(sorted, share) {
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
}

/** Methods with what their commands took, the slowest first; those that waited for their device say nothing of it. @param {any[]} commands newest first */
export function methodsOf(commands) {
  const groups = Map.groupBy(commands.filter((one) => one.finished_at && one.state !== "cancelled" && !one.hold), (one) => `${one.profile}:${one.method}`);
  const found = [...groups].map(([name, all]) => {
    const took = all.map((one) => Date.parse(one.finished_at) - Date.parse(one.created_at));
    const sorted = took.toSorted((one, other) => one - other);
    const timeouts = all.map((one) => Date.parse(one.deadline) - Date.parse(one.created_at));
    return { name, count: all.length, late: all.filter((one) => one.state === "timed_out").length, took: took.toReversed(), timeout: Math.max(...timeouts), p50: quantile(sorted, 0.5), p95: quantile(sorted, 0.95), p99: quantile(sorted, 0.99) };
  });
  return found.sort((one, other) => other.p99 - one.p99);
}

/** How long each took, the latest on the right; the table says it in numbers. @param {{ took: number[], most: number }} props */
function Sparkline({ took, most }) {
  const step = WIDTH / Math.max(took.length - 1, 1);
  const points = took.map((ms, at) => `${(at * step).toFixed(1)},${(HEIGHT - (ms / Math.max(most, 1)) * HEIGHT).toFixed(1)}`);
  return html`<svg class="spark" viewBox=${`0 -1 ${WIDTH} ${HEIGHT + 2}`} width=${WIDTH} height=${HEIGHT + 2} aria-hidden="true" focusable="false"><polyline points=${points.length > 1 ? points.join(" ") : `0,${HEIGHT} ${WIDTH},${HEIGHT}`} /></svg>`;
}

/** @param {any} one */
function line(one) {
  return html`<tr key=${one.name}>
    <td class="main"><a data-row href=${`#/commands${query({ method: one.name.slice(one.name.indexOf(":") + 1), from: "-1h" })}`}><code>${one.name}</code></a></td>
    <td class="took">${many(one.count)}<span class="unit"> ended</span></td>
    <td class="took"><span class="unit">p50 </span>${duration(one.p50)}</td>
    <td class="took"><span class="unit">p95 </span>${duration(one.p95)}</td>
    <td class="took"><span class="unit">p99 </span>${duration(one.p99)}</td>
    <td class="took"><span class="unit">timeout </span>${duration(one.timeout)}</td>
    <td class=${`took ${one.late ? "" : "none"}`}>${one.late ? html`<strong class="state bad">${many(one.late)}</strong>` : "0"}<span class="unit"> timed out</span></td>
    <td class="what"><${Sparkline} took=${one.took} most=${Math.max(...one.took)} /></td>
  </tr>`;
}

export function Latency() {
  const [found, set] = useState({ commands: /** @type {any[]} */ ([]), done: false });
  const [error, fail] = useState(/** @type {any} */ (null));
  const [turn, again] = useState(0);
  useEffect(() => {
    const gone = new AbortController();
    async function read() {
      /** @type {any[]} */
      const commands = [];
      let cursor = null;
      try {
        do {
          const page = await call("GET", `v1/commands${query({ since: "-1h", limit: PAGE, cursor })}`, { signal: gone.signal });
          commands.push(...page.commands);
          cursor = page.cursor;
        } while (cursor && commands.length < MOST);
        set({ commands, done: true });
        fail(null);
      } catch (problem) {
        if (!gone.signal.aborted) fail(problem);
      }
    }
    read();
    return () => gone.abort();
  }, [turn]);
  const methods = methodsOf(found.commands);
  const retry = () => again(turn + 1);
  return html`<p class="back"><a href="#/commands">‹ Commands</a></p>
    <h1 tabindex="-1">Latency</h1>
    ${error && html`<${Trouble} error=${error} again=${retry} />`}
    ${!found.done && !error && html`<${Loading} rows=${6} />`}
    ${found.done && methods.length === 0 && html`<p class="empty">No command that you may read has ended within the last hour.</p>`}
    ${methods.length > 0 && html`<table class="rows"><caption class="offstage">Methods, the slowest first</caption>
      <thead><tr>${["Method", "Ended", "p50", "p95", "p99", "Timeout", "Timed out", "Latest on the right"].map((one) => html`<th scope="col" key=${one}>${one}</th>`)}</tr></thead>
      <tbody>${methods.map(line)}</tbody></table>`}
    <p class="row"><button type="button" onClick=${retry}>Read again</button>${found.done && html`<span class="muted">Of the latest ${counted(found.commands.length, "command")} of the last hour that you may read${found.commands.length >= MOST ? ", as many as this page looks at" : ""}. Metrics have all of them.</span>`}</p>`;
}
