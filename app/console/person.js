/** The person: what they may do, what they have chosen, and where they were before they logged in. */

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

/** Under this their choices are kept by their browser; nothing secret is among it. */
const CHOSEN = "homing-console";
const KNOWN = { theme: "", utc: false, keys: true };

/** @typedef {typeof KNOWN} Prefs */

/** @type {Prefs} */
let prefs = read();
/** @type {Set<() => void>} */
const listeners = new Set();

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(CHOSEN) ?? "{}");
    return {
      theme: ["light", "dark"].includes(found.theme) ? found.theme : "",
      utc: found.utc === true,
      keys: found.keys !== false,
    };
  } catch {
    return { ...KNOWN };
  }
}

/** @template {keyof Prefs} K @param {K} name @returns {Prefs[K]} */
export function pref(name) {
  return prefs[name];
}

/** @param {Partial<Prefs>} some */
export function prefer(some) {
  prefs = { ...prefs, ...some };
  try {
    localStorage.setItem(CHOSEN, JSON.stringify(prefs));
  } catch {
    // Then they last as long as the page.
  }
  for (const tell of listeners) tell();
}

/** @param {() => void} listener */
export function onPrefs(listener) {
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
  };
}

/** Who logs in at an issuer leaves the page, and comes back to the one that was asked for. Only this tab knows which. */
const LEFT = "homing-return";

/** Remember the page, before the browser leaves it. */
export function remember() {
  try {
    sessionStorage.setItem(LEFT, location.hash);
  } catch {
    // Without storage people come back to Home.
  }
}

/** Show the page that was remembered, once. */
export function resume() {
  try {
    const page = sessionStorage.getItem(LEFT);
    sessionStorage.removeItem(LEFT);
    if (page && !location.hash) history.replaceState(null, "", location.pathname + location.search + page);
  } catch {
    // As above.
  }
}
