/** Who logs in at an issuer leaves the page, and comes back to the one that was asked for. Only this tab knows which. */

const KEY = "homing-return";

/** Remember the page, before the browser leaves it. */
export function remember() {
  try {
    sessionStorage.setItem(KEY, location.hash);
  } catch {
    // Without storage people come back to Home.
  }
}

/** Show the page that was remembered, once. */
export function resume() {
  try {
    const page = sessionStorage.getItem(KEY);
    sessionStorage.removeItem(KEY);
    if (page && !location.hash) history.replaceState(null, "", location.pathname + location.search + page);
  } catch {
    // As above.
  }
}
