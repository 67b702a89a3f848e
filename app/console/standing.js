/** How a queue stands, in a word and in numbers. */

import { Mark, html } from "./parts.js";

/** A word for how a queue stands: the first that holds. @param {any} counts */
function standingOf(counts) {
  const behind = counts.ready + counts.lent + counts.later + counts.held_back;
  if (counts.ready > 0 && counts.consumers === 0) return { icon: "▲", word: "nobody takes", tone: "warn" };
  if (behind > 0) return { icon: "◔", word: "at work", tone: "open" };
  return { icon: "✔", word: "quiet", tone: "good" };
}

/** @param {{ counts: any }} props */
export function Standing({ counts }) {
  return html`<${Mark} of=${standingOf(counts)} />`;
}
