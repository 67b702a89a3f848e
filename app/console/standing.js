/** How a queue stands, in a word and in numbers, and what somebody may do with queues. */

import { useEffect, useState } from "./vendor/hooks.js";
import { call } from "./api.js";
import { html } from "./parts.js";

/** A word for how a queue stands: the first that holds. @param {any} counts */
function standingOf(counts) {
  const behind = counts.ready + counts.lent + counts.later + counts.held_back;
  if (counts.ready > 0 && counts.consumers === 0) return { icon: "▲", word: "nobody takes", tone: "warn" };
  if (behind > 0) return { icon: "◔", word: "at work", tone: "open" };
  return { icon: "✔", word: "quiet", tone: "good" };
}

/** @param {{ counts: any }} props */
export function Standing({ counts }) {
  const { icon, word, tone } = standingOf(counts);
  return html`<span class=${`state ${tone}`}><span class="icon" aria-hidden="true">${icon}</span>${word}</span>`;
}

/** A count, as people write it. @param {number} count */
export function many(count) {
  return count.toLocaleString("en");
}

/** True if the person may change queues: those who may do that may list them. False as long as it is not known. */
export function useMayChange() {
  const [may, know] = useState(false);
  useEffect(() => {
    const gone = new AbortController();
    call("GET", "v1/queues?limit=1", { signal: gone.signal }).then(
      () => know(true),
      () => {}, // then there are no buttons
    );
    return () => gone.abort();
  }, []);
  return may;
}
