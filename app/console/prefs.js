/** What people choose for themselves. It is kept by their browser, and nothing secret is among it. */

const KEY = "homing-console";
const KNOWN = { theme: "", utc: false, keys: true };

/** @typedef {typeof KNOWN} Prefs */

/** @type {Prefs} */
let prefs = read();
/** @type {Set<() => void>} */
const listeners = new Set();

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "{}");
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
    localStorage.setItem(KEY, JSON.stringify(prefs));
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
