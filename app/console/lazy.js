/** Pages that are loaded when they are shown, and most of them once the browser has nothing else to do. */

import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { Loading, Trouble, html } from "./parts.js";

const IDLE_MS = 3000;
/** @type {Map<string, Promise<any>>} */
const loads = new Map();
/** @type {Map<string, any>} */
const loaded = new Map();
/** How often a file did not come. @type {Map<string, number>} */
const failures = new Map();

/** @param {string} file */
function load(file) {
  const before = loads.get(file);
  if (before) return before;
  const count = failures.get(file) ?? 0;
  // A browser may remember of an address that nothing came, and not ask for it again.
  const now = import(`./pages/${file}${count ? `?again=${count}` : ""}`).then(
    (module) => loaded.set(file, module),
    (error) => {
      failures.set(file, count + 1);
      loads.delete(file);
      throw error;
    },
  );
  loads.set(file, now);
  return now;
}

/** Of a page that few need, and that is loaded when somebody does. */
export const RARE = true;

/** Those that are loaded ahead. @type {Set<string>} */
const known = new Set();

/** The component of a file of pages. @param {string} file @param {string} name @param {boolean} rare */
export function lazy(file, name, rare = false) {
  if (!rare) known.add(file);
  return (/** @type {any} */ props) => {
    const [error, fail] = useState(/** @type {any} */ (null));
    const [turn, again] = useState(0);
    const there = loaded.get(file);
    useEffect(() => {
      if (there) return;
      load(file).then(
        () => again((count) => count + 1),
        (/** @type {any} */ problem) => fail(problem),
      );
    }, [turn, there]);
    const late = useRef(!there);
    useEffect(() => {
      if (there && late.current) dispatchEvent(new Event("homing-shown"));
      late.current = !there;
    }, [there]);
    if (there) return html`<${there[name]} ...${props} />`;
    const asked = `GET ${file}`;
    const retry = () => { fail(null); again(turn + 1); };
    if (error) return html`<h1 tabindex="-1">This page cannot be loaded</h1><${Trouble} error=${{ asked, title: "Its script did not come", message: "no node of this version answers; load the console again" }} again=${retry} />`;
    return html`<${Loading} rows=${4} />`;
  };
}

/** Loads the pages, so that a console that is open needs no file of a node that has been updated since. */
export function loadAll() {
  const rest = () => { for (const file of known) load(file).catch(() => {}); };
  if ("requestIdleCallback" in globalThis) requestIdleCallback(rest, { timeout: IDLE_MS });
  else setTimeout(rest, IDLE_MS);
}
