/** Queues: which of them have work that waits, who takes it, and what became a dead letter. */

import { Age, Loading, When, html } from "../parts.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { call, part } from "../api.js";
import { Pages, Without } from "../listed.js";
import { usePages } from "../read.js";
import { may } from "../person.js";
import { Standing } from "../standing.js";
import { iso, now } from "../time.js";
import { many } from "../words.js";

const PAGE = 25;
/** Queues whose counts are asked for at the same time. */
const AT_ONCE = 4;

/** The counts of queues by name, or the problem with them. @param {string[]} names @param {number} turn a new one reads all anew */
function useCounts(names, turn) {
  const [counts, set] = useState(/** @type {Map<string, any>} */ (new Map()));
  const asked = useRef({ turn, names: new Set() });
  useEffect(() => {
    if (asked.current.turn !== turn) asked.current = { turn, names: new Set() };
    const rest = names.filter((name) => !asked.current.names.has(name));
    rest.forEach((name) => asked.current.names.add(name));
    async function work() {
      for (let name = rest.shift(); name !== undefined; name = rest.shift()) {
        const found = await call("GET", `v1/queues/${part(name)}`).then(
          (one) => one.counts,
          (error) => ({ error }),
        );
        set((before) => new Map(before).set(/** @type {string} */ (name), found));
      }
    }
    for (let count = 0; count < AT_ONCE; count++) work();
    return () => {
      rest.forEach((name) => asked.current.names.delete(name));
      rest.length = 0;
    };
  }, [names.join(" "), turn]);
  return counts;
}

/** A cell with a number; a phone has no heads of columns and shows its unit. @param {{ count: number, unit: string, alarm?: boolean }} props */
function Count({ count, unit, alarm }) {
  return html`<td class=${`took ${count ? "" : "none"}`}>${alarm && count > 0 ? html`<strong class="state bad">${many(count)}</strong>` : many(count)}<span class="unit"> ${unit}</span></td>`;
}

/** @param {{ name: string, counts: any }} props */
function Line({ name, counts }) {
  const head = html`<td class="main"><a data-row href=${`#/queues/${part(name)}`}>${name}</a></td>`;
  if (!counts) return html`<tr>${head}<td class="muted" colspan="7">…</td></tr>`;
  if (counts.error) return html`<tr>${head}<td class="note-cell" colspan="7">${counts.error.message}</td></tr>`;
  return html`<tr>${head}
    <td class="what"><${Standing} counts=${counts} /></td>
    <${Count} count=${counts.ready} unit="waiting" />
    <${Count} count=${counts.lent} unit="lent" />
    <${Count} count=${counts.later + counts.held_back} unit="later" />
    <${Count} count=${counts.dead} unit="dead" alarm />
    <td class="when">${counts.oldest_at && html`<span class="unit">oldest </span><${Age} at=${counts.oldest_at} />`}</td>
    <${Count} count=${counts.consumers} unit=${counts.consumers === 1 ? "consumer" : "consumers"} />
  </tr>`;
}

export function Queues() {
  const all = may("queues");
  const listed = usePages(all ? `v1/queues?limit=${PAGE}` : null, "queues");
  const { rows, error, loaded, again } = listed;
  const [turn, anew] = useState(0);
  const [readAt, note] = useState(() => iso(now()));
  const counts = useCounts(rows.map((one) => one.name), turn);
  function refresh() {
    again();
    anew(turn + 1);
    note(iso(now()));
  }
  /** @param {any} event */
  function open(event) {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget).get("name")).trim();
    if (name) location.hash = `#/queues/${part(name)}`;
  }
  return html`<h1 tabindex="-1">Queues</h1>
    <form class="row" onSubmit=${open}><label>Queue <input class="short" name="name" required maxlength="64" autocomplete="off" spellcheck=${false} /></label><button type="submit">Open</button></form>
    ${error && html`<${Without} error=${error} again=${refresh} />`}
    ${all === false && html`<p class="empty">The list needs the <code>queues</code> right on all queues. Open one by its name: that needs <code>consume</code> on it.</p>`}
    ${all !== false && !loaded && !error && html`<${Loading} rows=${6} />`}
    ${loaded && !error && rows.length === 0 && html`<p class="empty">No queue is declared. This declares one, and events that fit wait in it from then on:</p><pre tabindex="0" role="region" aria-label="How to declare a queue"><code>homing queue declare alarms --topic 'site/+/alarm'</code></pre>`}
    ${rows.length > 0 &&
    html`<table class="rows"><caption class="offstage">Queues, by name</caption>
      <thead><tr><th scope="col">Queue</th><th scope="col">State</th><th scope="col">Waiting</th><th scope="col">Lent</th><th scope="col">Later</th><th scope="col">Dead</th><th scope="col">Oldest</th><th scope="col">Consumers</th></tr></thead>
      <tbody>${rows.map((/** @type {any} */ one) => html`<${Line} key=${one.name} name=${one.name} counts=${counts.get(one.name)} />`)}</tbody>
    </table>
    <p class="row"><button type="button" onClick=${refresh}>Read again</button><span class="muted">read at <${When} at=${readAt} /></span></p>`}
    <${Pages} listed=${listed} word="queue" />`;
}
