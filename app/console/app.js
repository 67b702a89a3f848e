/** The frame: where one is, the menu, the search, the keys. */

import { render } from "./vendor/preact.js";
import { useEffect, useErrorBoundary, useRef, useState } from "./vendor/hooks.js";
import { call } from "./api.js";
import { Trouble, html, moveRow } from "./parts.js";
import { RARE, lazy, loadAll, useOnceMore, useTurns } from "./read.js";
import { know, may, onPrefs, pref, prefer, resume } from "./person.js";
import { difference, duration, zone } from "./time.js";

const COMMAND_ID = /^\d{3}-[0-7][0-9A-HJKMNP-TV-Z]{25}$/;
const CLOCKS_MS = 5000;
const MENU = [
  { name: "home", word: "Home", key: "h", href: "#/" },
  { name: "commands", word: "Commands", key: "c", href: "#/commands" },
  { name: "devices", word: "Devices", key: "d", href: "#/devices" },
  { name: "fleets", word: "Fleets", key: "f", href: "#/fleets", plane: "fleets", action: "fleet" },
  { name: "queues", word: "Queues", key: "q", href: "#/queues", plane: "events" },
  { name: "webhooks", word: "Webhooks", key: "w", href: "#/webhooks", plane: "webhooks", action: "webhooks" },
  { name: "events", word: "Events", key: "e", href: "#/events", plane: "events" },
  { name: "nodes", word: "Nodes", key: "n", href: "#/nodes", action: "nodes" },
  { name: "profiles", word: "Profiles", key: "p", href: "#/profiles" },
  { name: "traffic", word: "Traffic", key: "t", href: "#/traffic", action: "trace" },
  { name: "access", word: "Access", key: "a", href: "#/access/keys", plane: "devices" },
];
const KEYS = [
  ["/", "search"],
  ...MENU.map((one) => [`g ${one.key}`, one.word]),
  ["j, k", "next row, row before"],
  ["Enter", "open the row"],
  ["s", "send to the device that is shown"],
  ["p", "pause a stream"],
  ["?", "these keys"],
];

/** The route in the address; a part that cannot be read stays as it is. */
function route() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map((one) => {
    try {
      return decodeURIComponent(one);
    } catch {
      return one;
    }
  });
  return { parts, params: new URLSearchParams(search) };
}

const Held = lazy("held.js", "Held");
const Home = lazy("home.js", "Home");
const Fleet = lazy("fleet.js", "Fleet");
const Fleets = lazy("fleets.js", "Fleets");
const NewFleet = lazy("new-fleet.js", "NewFleet", RARE);
const Nodes = lazy("nodes.js", "Nodes");
const Access = lazy("access.js", "Access", RARE);
const Command = lazy("command.js", "Command");
const Commands = lazy("commands.js", "Commands");
const Device = lazy("device.js", "Device");
const Devices = lazy("devices.js", "Devices");
const Draft = lazy("draft.js", "Draft", RARE);
const Events = lazy("events.js", "Events");
const Profile = lazy("profiles.js", "Profile");
const Profiles = lazy("profiles.js", "Profiles");
const Queue = lazy("queue.js", "Queue");
const Queues = lazy("queues.js", "Queues");
const Schedules = lazy("schedules.js", "Schedules", RARE);
const Send = lazy("send.js", "Send");
const Webhook = lazy("webhook.js", "Webhook");
const Webhooks = lazy("webhooks.js", "Webhooks");
const Latency = lazy("latency.js", "Latency");
const Traffic = lazy("traffic.js", "Traffic", RARE);
const Try = lazy("traffic.js", "Try", RARE);
const Login = lazy("login.js", "Login");

/** Goes to a page with these filters. @param {string} name */
function filtered(name) {
  return (/** @type {Record<string, string>} */ some) => {
    const found = new URLSearchParams(Object.entries(some).filter(([, value]) => value));
    location.hash = `#/${name}${found.size ? `?${found}` : ""}`;
  };
}

/** @param {{ parts: string[], params: URLSearchParams }} at */
function pageOf({ parts, params }) {
  const [name = "home", id, more] = parts;
  if (name === "home") return { name, title: "Home", page: html`<${Home} />` };
  if (name === "nodes") return { name, title: "Nodes", page: html`<${Nodes} />` };
  if (name === "commands" && id) return { name, title: id, page: html`<${Command} key=${id} id=${id} />` };
  if (name === "commands") return { name, title: "Commands", page: html`<${Commands} params=${params} go=${filtered(name)} />` };
  if (name === "devices" && more === "send") return { name, title: `Send to ${id}`, page: html`<${Send} key=${id} device=${id} params=${params} />` };
  if (name === "devices" && id) return { name, title: id, page: html`<${Device} key=${id} id=${id} />` };
  if (name === "devices") return { name, title: "Devices", page: html`<${Devices} params=${params} />` };
  if (name === "fleets" && id === "new") return { name, title: "New fleet run", page: html`<${NewFleet} />` };
  if (name === "fleets" && id) return { name, title: id, page: html`<${Fleet} key=${id} id=${id} />` };
  if (name === "fleets") return { name, title: "Fleets", page: html`<${Fleets} />` };
  if (name === "schedules") return { name: "fleets", title: "Schedules", page: html`<${Schedules} />` };
  if (name === "access") return { name, title: "Access", page: html`<${Access} part=${id ?? "keys"} params=${params} go=${filtered("access/audit")} />` };
  if (name === "profiles" && id) return { name, title: id, page: html`<${Profile} key=${id} name=${id} />` };
  if (name === "profiles") return { name, title: "Profiles", page: html`<${Profiles} />` };
  if (name === "traffic") return { name, title: "Traffic", page: html`<${Traffic} params=${params} go=${filtered(name)} />` };
  if (name === "draft") return { name: "profiles", title: "Try a profile", page: html`<${Draft} />` };
  if (name === "try") return { name: "profiles", title: "Try a message", page: html`<${Try} />` };
  if (name === "latency") return { name: "commands", title: "Latency", page: html`<${Latency} />` };
  if (name === "held") return { name: "commands", title: "Held", page: html`<${Held} />` };
  if (name === "webhooks" && id) return { name, title: id, page: html`<${Webhook} key=${id} id=${id} params=${params} go=${filtered(`webhooks/${encodeURIComponent(id)}`)} />` };
  if (name === "webhooks") return { name, title: "Webhooks", page: html`<${Webhooks} />` };
  if (name === "queues" && id) return { name, title: id, page: html`<${Queue} key=${id} name=${id} />` };
  if (name === "queues") return { name, title: "Queues", page: html`<${Queues} />` };
  if (name === "events") return { name, title: "Events", page: html`<${Events} params=${params} go=${filtered(name)} />` };
  return { name: "", title: "Not found", page: html`<h1 tabindex="-1">There is no such page</h1><p>The menu has all of them.</p>` };
}

/** @param {string} text */
function find(text) {
  const wanted = text.trim();
  if (!wanted) return;
  const upper = wanted.toUpperCase();
  location.hash = COMMAND_ID.test(upper) ? `#/commands/${upper}` : `#/commands?${new URLSearchParams({ device: wanted })}`;
}

function Search() {
  /** @param {any} event */
  function submit(event) {
    event.preventDefault();
    find(String(new FormData(event.currentTarget).get("text")));
    event.currentTarget.reset();
  }
  return html`<form role="search" aria-label="Find a command or a device" class="search" onSubmit=${submit}>
    <input id="search" name="text" type="search" placeholder="Command id or device" aria-label="Command id or device" autocomplete="off" spellcheck=${false} enterkeyhint="search" />
  </form>`;
}

/** @param {{ help: () => void, session: boolean, leave: () => void }} props */
function Tools({ help, session, leave }) {
  const themes = { "": ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };
  const theme = pref("theme");
  const [icon, word] = themes[theme];
  const next = { "": "light", light: "dark", dark: "" }[theme];
  return html`<div class="tools">
    <button type="button" aria-label=${`Times are in ${zone()}. Switch to ${pref("utc") ? "local time" : "UTC"}`} onClick=${() => prefer({ utc: !pref("utc") })}>${zone()}</button>
    <button type="button" aria-label=${`Colours: ${word}. Change`} title=${`Colours: ${word}`} onClick=${() => prefer({ theme: next })}><span aria-hidden="true">${icon}</span></button>
    <button type="button" aria-label="Keys" title="Keys" onClick=${help}><span aria-hidden="true">?</span></button>
    ${session && html`<button type="button" onClick=${leave}>Log out</button>`}
  </div>`;
}

/** @param {{ box: any }} props */
function Help({ box }) {
  return html`<dialog ref=${box} aria-labelledby="help-title">
    <h2 id="help-title">Keys</h2>
    <dl class="keys">${KEYS.map(([key, word]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${word}</dd></div>`)}</dl>
    <p><label><input type="checkbox" checked=${pref("keys")} onChange=${(/** @type {any} */ event) => prefer({ keys: event.currentTarget.checked })} /> Keys of one letter do something</label></p>
    <p class="row"><button type="button" autofocus onClick=${() => box.current?.close()}>Close</button></p>
  </dialog>`;
}

/** @param {{ me: any, index: any, error: any, again: () => void }} props */
function Foot({ me, index, error, again }) {
  const [apart, setApart] = useState(difference());
  useEffect(() => {
    const look = () => setApart(difference());
    addEventListener("homing-clock", look);
    return () => removeEventListener("homing-clock", look);
  }, []);
  if (error) return html`<footer><${Trouble} error=${error} again=${again} /></footer>`;
  return html`<footer>
    ${index && html`<p>Homing ${index.version}, answered by ${index.node_id}. <a href="../docs">API</a></p>`}
    ${me?.open && html`<p>This node asks nobody who they are.</p>`}
    ${me?.principal && html`<p>You are ${me.principal}${me.tenant ? ` of ${me.tenant}` : ""}.</p>`}
    ${Math.abs(apart) > CLOCKS_MS && html`<p>The clock of this machine differs from the node's by ${duration(Math.abs(apart))}; ages go by the node's.</p>`}
  </footer>`;
}

/** Keys of one letter; in fields they are letters. @param {() => void} help */
function useKeys(help) {
  useEffect(() => {
    let before = "";
    /** @param {KeyboardEvent} event */
    function press(event) {
      const at = /** @type {HTMLElement} */ (event.target);
      const typing = at.closest?.("input, textarea, select, dialog") !== null;
      if (!pref("keys") || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      const chord = before === "g" ? `g ${event.key}` : event.key;
      before = event.key;
      const entry = MENU.find((one) => chord === `g ${one.key}`);
      if (entry) location.hash = entry.href;
      else if (chord === "/") document.getElementById("search")?.focus();
      else if (chord === "j") moveRow(1);
      else if (chord === "k") moveRow(-1);
      else if (chord === "p") document.getElementById("pause")?.click();
      else if (chord === "s") document.getElementById("send")?.click();
      else if (chord === "?") help();
      else return;
      before = "";
      event.preventDefault();
    }
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

const STRANGER = "This node wants to know who you are.";
const ENDED = "Your login has ended.";
const LEFT = "You have logged out.";

/** What the node is, and who asks; `out` says why nobody does. */
function useIndex() {
  const [found, set] = useState(/** @type {any} */ ({ me: null, index: null, error: null, out: "" }));
  const { turn, busy, again, look } = useTurns();
  useEffect(() => {
    const refused = () => set((/** @type {any} */ before) => ({ ...before, me: null, out: before.out || (before.me ? ENDED : STRANGER) }));
    addEventListener("homing-login", refused);
    return () => removeEventListener("homing-login", refused);
  }, []);
  useEffect(() => {
    busy.current = true;
    Promise.all([call("GET", ""), call("GET", "v1/me")]).then(
      ([index, me]) => set({ index, me, error: null, out: "" }),
      (error) => set((/** @type {any} */ before) => ({ ...before, error: error.status === 401 ? null : error })),
    ).finally(() => { busy.current = false; });
  }, [turn]);
  useOnceMore(found.me ? null : found.error, look);

  async function leave() {
    try {
      await call("DELETE", "console/session");
      set((/** @type {any} */ before) => ({ ...before, me: null, error: null, out: LEFT }));
    } catch (error) {
      set((/** @type {any} */ before) => ({ ...before, error }));
    }
  }
  return { ...found, leave, again };
}

/** In the place of a page that what the node answers cannot be shown on: it may be of another version. @param {{ children?: any }} props */
function Whole({ children }) {
  const [error, again] = useErrorBoundary();
  if (!error) return children;
  return html`<h1 tabindex="-1">This page cannot be shown</h1><${Trouble} error=${{ asked: location.hash || "#/", title: "The node has answered otherwise than this page expects", message: `it may be of another version than the page: load the console again (${error.message})` }} again=${again} />`;
}

function App() {
  const [at, move] = useState(route);
  const [, turn] = useState(0);
  const help = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const first = useRef(true);
  const showHelp = () => help.current?.showModal();
  useKeys(showHelp);
  const index = useIndex();
  know(index.me);

  useEffect(() => {
    const moved = () => move(route());
    const changed = () => turn((count) => count + 1);
    addEventListener("hashchange", moved);
    moved(); // the address may have changed before anybody listened
    const forget = onPrefs(changed);
    return () => {
      removeEventListener("hashchange", moved);
      forget();
    };
  }, []);

  const { name, title, page } = pageOf(at);
  const where = at.parts.join("/");
  useEffect(() => {
    document.title = index.out ? "Log in · Homing" : title === "Home" ? "Homing" : `${title} · Homing`;
    if (first.current) {
      first.current = false;
      return undefined;
    }
    const focus = () => /** @type {HTMLElement | null} */ (main.current?.querySelector("h1"))?.focus();
    focus();
    addEventListener("homing-shown", focus, { once: true }); // where its script has to be loaded first
    return () => removeEventListener("homing-shown", focus);
  }, [where, index.out]);
  document.documentElement.dataset.theme = pref("theme");
  useEffect(loadAll, []);

  return html`<header>
      <a class="skip" href=${location.hash || "#/"} onClick=${(/** @type {Event} */ event) => { event.preventDefault(); main.current?.querySelector("h1")?.focus(); }}>Skip to the contents</a>
      <a class="brand" href="#/">Homing</a>
      <nav aria-label="Pages"><ul>${MENU.filter((one) => (!one.plane || index.index?.links?.[one.plane]) && (!one.action || may(one.action))).map((one) => html`<li key=${one.name}><a href=${one.href} aria-current=${one.name === name ? "page" : undefined}>${one.word}</a></li>`)}</ul></nav>
      <${Search} />
      <${Tools} help=${showHelp} session=${index.me?.session === true} leave=${index.leave} />
    </header>
    <main ref=${main}>${index.out ? html`<${Login} key="login" why=${index.out} done=${index.again} />` : html`<${Whole} key=${where}>${page}<//>`}</main>
    <${Foot} ...${index} />
    <${Help} box=${help} />`;
}

/** @param {HTMLElement} root */
export function start(root) {
  resume();
  root.replaceChildren();
  render(html`<${App} />`, root);
}
