/** The foot of lists, and the state of streams that lists follow. */

import { Loading, Trouble, html } from "./parts.js";
import { STREAM, counted } from "./words.js";

/** The foot of a list that comes in pages. @param {{ listed: any, word: string, all?: string }} props */
export function Pages({ listed, word, all }) {
  const { rows, cursor, loaded, more } = listed;
  return html`<p class="row">${cursor && html`<button type="button" onClick=${more}>More</button>`}${loaded && html`<span class="muted">${counted(rows.length, word, all)} shown</span>`}</p>`;
}

/** How a stream stands, and its pause. @param {{ state: any, why: any, toggle: () => void, paused: boolean }} props */
export function Stream({ state, why, toggle, paused }) {
  const { word, tone } = STREAM[state];
  return html`<p class="row stream">
    <span class=${`state ${tone}`} role="status" title=${why ? why.message : ""}><span class="dot" aria-hidden="true"></span>${word}${why && state !== "live" ? `: ${why.message}` : ""}</span>
    <button type="button" id="pause" aria-pressed=${paused} onClick=${toggle}>${paused ? "Go on" : "Pause"}</button>
  </p>`;
}

/**
 * A list that comes in pages, as a table: while it loads, when it is empty, and when it cannot be read.
 * @param {{ listed: any, word: string, caption: string, heads: string[], row: (one: any) => any, empty: any, kind?: string, rows?: any[] }} props
 */
export function Listed({ listed, word, caption, heads, row, empty, kind = "", rows = listed.rows }) {
  const { error, loaded, again } = listed;
  return html`${error && html`<${Without} error=${error} again=${again} />`}
    ${!loaded && !error && html`<${Loading} rows=${6} />`}
    ${loaded && !error && rows.length === 0 && (typeof empty === "string" ? html`<p class="empty">${empty}</p>` : empty)}
    ${rows.length > 0 &&
    html`<table class=${`rows ${kind}`}><caption class="offstage">${caption}</caption>
      <thead><tr>${heads.map((one) => html`<th scope="col" key=${one}>${one}</th>`)}</tr></thead>
      <tbody>${rows.map(row)}</tbody>
    </table>`}
    <${Pages} listed=${listed} word=${word} />`;
}

/** What is off, or not the person's, is said in a sentence; anything else is trouble. @param {{ error: any, again: () => void }} props */
export function Without({ error, again }) {
  if (error.status === 403 || error.status === 404 || error.status === 409) return html`<p class="empty" role="status">${error.title}: ${error.message}.</p>`;
  return html`<${Trouble} error=${error} again=${again} />`;
}
