/** What the person may do, as the node has told: menus and buttons are made of it. */

/** @type {any} */
let me = null;

/** Note what the node says of the person. @param {any} told */
export function know(told) {
  me = told;
}

/** Whether the person may do what is about no device; null as long as that is not known. Older nodes do not tell: they are asked. @param {string} action */
export function may(action) {
  if (me === null) return null;
  return me.open || (me.may?.includes(action) ?? true);
}

/** The name of the person; empty where nobody is asked. */
export function myself() {
  return me?.principal ?? "";
}
