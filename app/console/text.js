/** Texts of others: shown as they are, and never as anything else. */

import { options } from "./vendor/preact.js";

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
