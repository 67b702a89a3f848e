/** Schedules: what begins by itself, when next, what became of it, and how to end that. */

import { Copy, Loading, Mark, Value, When, html } from "../parts.js";
import { useState } from "../vendor/hooks.js";
import { call, part } from "../api.js";
import { Confirm } from "../confirm.js";
import { Pages, Without } from "../listed.js";
import { useAgain, usePages } from "../read.js";
import { wordOf } from "../words.js";

/** @type {Record<string, import("../words.js").Word>} */
const OCCURRENCES = {
  beginning: { icon: "◔", word: "about to begin", tone: "open" },
  began: { icon: "✔", word: "began", tone: "good" },
  skipped: { icon: "⊘", word: "skipped", tone: "quiet" },
  missed: { icon: "◷", word: "missed", tone: "warn" },
  failed: { icon: "✖", word: "failed", tone: "bad" },
  refused: { icon: "✖", word: "not allowed", tone: "bad" },
};

/** @param {string} result */
function occurrenceOf(result) {
  return wordOf(OCCURRENCES, result);
}

/** Whether a schedule is at work. @param {any} one @returns {import("../words.js").Word} */
function scheduleOf(one) {
  if (one.paused) return { icon: "‖", word: "paused", tone: "warn" };
  if (!one.enabled) return { icon: "⊘", word: "disabled", tone: "quiet" };
  return one.next.length ? { icon: "✔", word: "at work", tone: "good" } : { icon: "⊘", word: "over", tone: "quiet" };
}

/** @param {{ one: any }} props */
function Occurrence({ one }) {
  const to = one.began && (one.began.startsWith("run-") ? `#/fleets/${part(one.began)}` : `#/commands/${part(one.began)}`);
  return html`<li><${When} at=${one.at} /> <${Mark} of=${occurrenceOf(one.result)} />${one.reason && html` <span class="muted">${one.reason}</span>`}${to && html` <a class="id" href=${to}>${one.began}</a>`}</li>`;
}

/** @param {{ one: any, gone: () => void }} props */
function About({ one, gone }) {
  return html`${one.paused && html`<p>It has paused itself: ${one.paused}. Writing it again lets it go on.</p>`}
    <dl class="checks wide">
      <div><dt>Begins</dt><dd>${one.device ? html`a command to <a href=${`#/devices/${part(one.device)}`}>${one.device}</a>` : "a fleet run"}</dd></div>
      <div><dt>As</dt><dd>${one.by || "nobody: this node asks nobody who they are"}</dd></div>
      <div><dt>Written</dt><dd><${When} at=${one.written_at} /></dd></div>
      <div><dt>Until</dt><dd>${one.until ? html`<${When} at=${one.until} />` : "no end"}</dd></div>
    </dl>
    <${Value} value=${one.command ?? one.run} name=${one.command ? "Command" : "Run"} />
    <h2>Next</h2>
    ${one.next.length ? html`<ul>${one.next.map((/** @type {string} */ at) => html`<li key=${at}><${When} at=${at} /></li>`)}</ul>` : html`<p class="muted">Nothing comes.</p>`}
    <h2>Last</h2>
    ${one.occurrences.length ? html`<ul>${one.occurrences.map((/** @type {any} */ each) => html`<${Occurrence} key=${each.at} one=${each} />`)}</ul>` : html`<p class="muted">Nothing was due yet.</p>`}
    <p class="row"><${Confirm} label="Delete …" title=${`Delete the schedule ${one.name}?`} text="What it has begun goes on. Nothing more begins." does="Delete it" verb=${["schedule", "delete", one.name]} run=${() => call("DELETE", `v1/schedules/${part(one.name)}`)} done=${gone} /><${Copy} text=${one.name} label="Copy name" /></p>`;
}

/** @param {{ one: any, gone: () => void }} props */
function Schedule({ one, gone }) {
  const [open, turn] = useState(false);
  return html`<details onToggle=${(/** @type {any} */ event) => turn(event.currentTarget.open)}>
    <summary data-row><strong>${one.name}</strong> <${Mark} of=${scheduleOf(one)} /> <span class="muted">${one.cron} in ${one.zone}${one.next.length > 0 && html`, next <${When} at=${one.next[0]} />`}</span></summary>
    ${open && html`<${About} one=${one} gone=${gone} />`}
  </details>`;
}

export function Schedules() {
  const listed = usePages("v1/schedules", "schedules");
  const [done, say] = useState("");
  const { rows, loaded, error, again } = listed;
  useAgain([listed]);
  /** @param {any} one */
  const gone = (one) => () => {
    say(`${one.name} is deleted.`);
    again();
  };
  return html`<p class="back"><a href="#/fleets">‹ Fleets</a></p>
    <h1 tabindex="-1">Schedules</h1>
    <p role="status">${done}</p>
    ${error && html`<${Without} error=${error} again=${again} />`}
    ${!loaded && !error && html`<${Loading} rows=${4} />`}
    ${loaded && !error && rows.length === 0 && html`<p class="empty">No schedule is written. <code>homing schedule put</code> writes one: a cron expression, and the fleet run or the command that it begins.</p>`}
    ${rows.length > 0 && html`<div class="values">${rows.map((/** @type {any} */ one) => html`<${Schedule} key=${one.name} one=${one} gone=${gone(one)} />`)}</div>`}
    <${Pages} listed=${listed} word="schedule" />`;
}
