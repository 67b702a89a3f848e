/** Starts the scripts of the page's build. In a rolling update they may come from a node of another build: try on. */

const TRIES = 15;
const KEY = "homing-boot";
const PAUSE_MS = 2000;
const build = document.documentElement.dataset.build;
const root = /** @type {HTMLElement} */ (document.getElementById("app"));

/** How often this tab has tried already. Without storage there is no second try. */
function tries() {
  try {
    return Number(sessionStorage.getItem(KEY) ?? "0");
  } catch {
    return TRIES;
  }
}

function note(count) {
  try {
    if (count) sessionStorage.setItem(KEY, String(count));
    else sessionStorage.removeItem(KEY);
  } catch {
    // As above.
  }
}

function say(text) {
  const line = document.createElement("p");
  line.className = "boot";
  line.setAttribute("role", "status");
  line.textContent = text;
  root.replaceChildren(line);
}

function again(error) {
  const count = tries() + 1;
  note(count > TRIES ? 0 : count);
  if (count > TRIES) {
    say(`The scripts of this page cannot be loaded (${error}). Load the page again.`);
  } else {
    say("The nodes are being updated. Trying again …");
    setTimeout(() => location.reload(), PAUSE_MS);
  }
}

import(`./${build}/app.js`).then((app) => {
  note(0);
  app.start(root);
}, again);
