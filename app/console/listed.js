/** The foot of lists, and the state of streams that lists follow. */

import { html } from "./parts.js";
import { STREAM, counted } from "./words.js";

/** The foot of a list that comes in pages. @param {{ listed: any, word: string }} props */
export function Pages({ listed, word }) {
  const { rows, cursor, loaded, more } = listed;
  return html`<p class="row">${cursor && html`<button type="button" onClick=${more}>More</button>`}${loaded && html`<span class="muted">${counted(rows.length, word)} shown</span>`}</p>`;
}

/** How a stream stands, and its pause. @param {{ state: any, why: any, toggle: () => void, paused: boolean }} props */
export function Stream({ state, why, toggle, paused }) {
  const { word, tone } = STREAM[state];
  return html`<p class="row stream">
    <span class=${`state ${tone}`} role="status" title=${why ? why.message : ""}><span class="dot" aria-hidden="true"></span>${word}${why && state !== "live" ? `: ${why.message}` : ""}</span>
    <button type="button" id="pause" aria-pressed=${paused} onClick=${toggle}>${paused ? "Go on" : "Pause"}</button>
  </p>`;
}
