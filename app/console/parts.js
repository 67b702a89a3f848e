/** Parts that several pages are made of, and texts of others, which are shown as they are and never as anything else. */

import htm from "./vendor/htm.js";
import { h, options } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { bytesOf, numberOf, written } from "./api.js";
import { clock, duration, iso, now } from "./time.js";
import { many, stateOf } from "./words.js";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = /** @type {any} */ (htm).bind(h);

const FOLD_BYTES = 2048;
const FOLD_LINES = 200;
const SAID_MS = 2000;
const MINUTES = 60;
const MINUTE_MS = 60_000;
const WIDTH = 120;
const HEIGHT = 24;

/** A word that has a colour, and an icon for those who do not see it. @param {{ of: import("./words.js").Word }} props */
export function Mark({ of: { icon, word, tone } }) {
  return html`<span class=${`state ${tone}`}><span class="icon" aria-hidden="true">${icon}</span>${word}</span>`;
}

/** @param {{ state: string }} props */
export function State({ state }) {
  return html`<${Mark} of=${stateOf(state)} />`;
}

/** An instant. @param {{ at: string | null | undefined, fine?: boolean }} props */
export function When({ at, fine }) {
  const ms = at ? Date.parse(at) : Number.NaN;
  if (!Number.isFinite(ms)) return html`<span class="muted">unknown</span>`;
  return html`<time datetime=${iso(ms)} title=${iso(ms)}>${clock(ms, fine)}</time>`;
}

/** How long it has been since an instant, by the node's clock. @param {{ at: string }} props */
export function Age({ at }) {
  useTick();
  return html`<time datetime=${iso(Date.parse(at))} title=${iso(Date.parse(at))}>${duration(now() - Date.parse(at))}</time>`;
}

/** Draws once a second what grows old. */
export function useTick() {
  const [, turn] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => turn((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
}

/** @param {{ text: string | (() => string), label: string, kind?: string }} props */
export function Copy({ text, label, kind = "" }) {
  const [said, say] = useState("");
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  async function click() {
    const done = await copy(typeof text === "function" ? text() : text);
    say(done ? "copied" : "not allowed here");
    clearTimeout(timer.current);
    timer.current = setTimeout(() => say(""), SAID_MS);
  }
  return html`<button type="button" class=${`copy ${kind}`} onClick=${click}>${label}<span role="status" class="said">${said}</span></button>`;
}

/** What went wrong, what was asked, and what can be done. @param {{ error: any, again?: () => void, what?: string }} props */
export function Trouble({ error, again, what }) {
  const asked = error.asked ?? "";
  const text = `${asked}: ${error.status || "no answer"} ${error.title ?? ""}: ${error.message}`;
  return html`<div class="trouble" role="alert">
    <p><strong>${what ?? error.title ?? "That did not work"}</strong></p>
    <p>${error.message}</p>
    <p class="muted">Asked: <code>${asked}</code>${error.status ? `, answered ${error.status}` : ""}</p>
    <p class="row">
      ${again && html`<button type="button" onClick=${again}>Try again</button>`}
      <${Copy} text=${text} label="Copy" />
    </p>
  </div>`;
}

/** A JSON value; a long one is folded. @param {{ value: any, name: string }} props */
export function Value({ value, name }) {
  const [whole, show] = useState(false);
  if (value === null || value === undefined) return html`<span class="muted">none</span>`;
  const text = written(value, 2);
  const lines = text.split("\n");
  const long = text.length > FOLD_BYTES || lines.length > FOLD_LINES;
  const shown = whole || !long ? text : lines.slice(0, FOLD_LINES).join("\n").slice(0, FOLD_BYTES);
  return html`<div class="value">
    <pre tabindex="0" aria-label=${name} role="region"><code>${shown}${long && !whole ? "…" : ""}</code></pre>
    <p class="row">
      ${long && html`<button type="button" aria-expanded=${whole} onClick=${() => show(!whole)}>${whole ? "Fold" : `Show all ${bytesOf(text).toLocaleString("en")} bytes`}</button>`}
      <${Copy} text=${text} label=${`Copy ${name.toLowerCase()}`} kind="small" />
    </p>
  </div>`;
}

/** Percent and words of a report of progress, where it says such. @param {any} progress */
export function progressOf(progress) {
  const inner = progress?.progress ?? progress;
  const said = numberOf(inner?.percent); // some devices write 40.0
  const percent = Number.isFinite(said) ? Math.min(Math.max(said, 0), 100) : null;
  return { percent, words: percent === null ? "" : `${Math.round(percent)} %` };
}

/** A skeleton that keeps the place of what is loaded; it shows only after a while. @param {{ rows?: number }} props */
export function Loading({ rows = 3 }) {
  return html`<div class="loading" role="img" aria-busy="true" aria-label="Loading">
    ${Array.from({ length: rows }, () => html`<span></span>`)}
  </div>`;
}

/** A line through values; what is missing is nothing. The text beside it says it in numbers. @param {{ values: number[] }} props */
function Sparkline({ values }) {
  const most = Math.max(...values, 1);
  const step = WIDTH / (values.length - 1);
  const points = values.map((one, at) => `${(at * step).toFixed(1)},${(HEIGHT - (one / most) * HEIGHT).toFixed(1)}`);
  return html`<svg class="spark" viewBox=${`0 -1 ${WIDTH} ${HEIGHT + 2}`} width=${WIDTH} height=${HEIGHT + 2} aria-hidden="true" focusable="false"><polyline points=${points.join(" ")} /></svg>`;
}

/** Commands that ended otherwise than well, but for those that somebody cancelled. @param {Record<string, number>} ended */
function unwell(ended) {
  return Object.entries(ended ?? {}).reduce((sum, [outcome, count]) => sum + (outcome === "succeeded" || outcome === "cancelled" ? 0 : count), 0);
}

/** A value of each of the last minutes, the latest one last. @param {any[]} minutes @param {number} until in ms @param {(one: any) => number | null} value */
export function lineOf(minutes, until, value) {
  const known = new Map(minutes.map((one) => [Math.floor(Date.parse(one.at) / MINUTE_MS), value(one) ?? 0]));
  const latest = Math.floor(until / MINUTE_MS);
  return Array.from({ length: MINUTES }, (_, at) => known.get(latest - MINUTES + 1 + at) ?? 0);
}

/** The last hour of the overview, in lines. @param {{ hour: any, at: string }} props `at` is when it was so */
export function Hour({ hour, at }) {
  const { total, minutes } = hour;
  const until = Date.parse(at);
  const figures = [
    { what: "sent", text: many(total.begun), values: lineOf(minutes, until, (one) => one.begun) },
    { what: "not succeeded", text: many(unwell(total.ended)), values: lineOf(minutes, until, (one) => unwell(one.ended)) },
    { what: "p99", text: total.p99_ms === null ? "–" : duration(total.p99_ms), values: lineOf(minutes, until, (one) => one.p99_ms) },
  ];
  return html`<section aria-label="Commands of the last hour"><dl class="hour">${figures.map(
    (one) => html`<div key=${one.what}><dt>${one.what}</dt><dd>${one.text}<${Sparkline} values=${one.values} /></dd></div>`,
  )}</dl></section>`;
}

/** Moves the focus by `j` and `k` among the links of rows. @param {number} step */
export function moveRow(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const at = rows.indexOf(/** @type {any} */ (document.activeElement));
  const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1);
  /** @type {HTMLElement} */ (rows[next]).focus();
}

/** Characters that hide, turn or move other ones: controls, directions, blanks without width, halves of surrogates. */
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]|\p{Cs}/gu;
/** Marks on one letter; some languages use three. */
const PILE = /(\p{M}{4})\p{M}+/gu;

/** @param {string} text */
export function visible(text) {
  return text
    .replace(HIDDEN, (one) => `⟨U+${/** @type {number} */ (one.codePointAt(0)).toString(16).toUpperCase().padStart(4, "0")}⟩`)
    .replace(PILE, (all, kept) => `${kept}⟨+${[...all].length - [...kept].length}⟩`);
}

const SPOKEN = ["title", "aria-label"];
const before = options.vnode;

/** Every text of the page goes through here, so that no page can forget it. */
options.vnode = (/** @type {any} */ vnode) => {
  if (vnode.type === null) {
    if (typeof vnode.props === "string") vnode.props = visible(vnode.props);
  } else if (typeof vnode.type === "string" && vnode.props) {
    for (const name of SPOKEN) {
      if (typeof vnode.props[name] === "string") vnode.props[name] = visible(vnode.props[name]);
    }
  }
  if (before) before(vnode);
};

/** Put a text where people paste from; false where the browser does not let us. @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

/** Pages of plain HTTP have no clipboard but this one. @param {string} text */
function copiedBySelection(text) {
  const before = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "offstage";
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  let done = false;
  try {
    done = document.execCommand("copy");
  } catch {
    // Then it is not done.
  }
  field.remove();
  if (before instanceof HTMLElement) before.focus();
  return done;
}
