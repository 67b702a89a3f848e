/** Keys that make a repetition of a call no second call. */

const BYTES = 16;

/** Pages of plain HTTP have no `randomUUID`. */
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(BYTES))].map((one) => one.toString(16).padStart(2, "0")).join("");
}

/** Gives the same text the same key for as long as it lives. @returns {(text: string) => string} */
export function keyed() {
  const sent = { text: "", key: "" };
  return (text) => {
    if (text !== sent.text || !sent.key) Object.assign(sent, { text, key: newKey() });
    return sent.key;
  };
}
