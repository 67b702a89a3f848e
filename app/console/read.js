/** What a page reads from the node: its script, and what it shows, once and anew when it is told to. What did not come is asked for again by itself. */

import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { BASE, Live, call } from "./api.js";
import { Loading, Trouble, html } from "./parts.js";

const EVERY_MS = 10_000;
const PASSING_MS = 3000;
const AHEAD_MS = 3000;
/** Nodes of an older version, and those with too many streams, are looked at. */
export const OVERVIEW_MS = 6000;
/** Nodes write every five seconds. */
const SILENT_MS = 12_000;
/** No answer, too many requests, or nobody behind a proxy. */
const PASSING = [0, 429, 502, 503, 504];

/** Reads again every ten seconds while somebody looks, and there may be news. @param {{ look: () => void }[]} reads @param {boolean} [news] @param {number} [every] in ms */
export function useAgain(reads, news = true, every = EVERY_MS) {
  useEffect(() => {
    if (!news) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) for (const one of reads) one.look();
    }, every);
    return () => clearInterval(timer);
  }, [news]);
}

/** Whether the same request may go well a little later. @param {any} error */
export function passing(error) {
  return PASSING.includes(error?.status);
}

/** Looks again by itself for what may go well a little later. @param {any} error @param {() => void} look */
export function useOnceMore(error, look) {
  useEffect(() => {
    if (!passing(error)) return undefined;
    const timer = setInterval(() => document.hidden || look(), Math.max(PASSING_MS, (error.after ?? 0) * 1000));
    return () => clearInterval(timer);
  }, [error]);
}

/** The turns of what is read: `again` begins a new one, `look` only if none is `busy`. A node that takes long to answer would else never be heard. */
export function useTurns() {
  const [turn, set] = useState(0);
  const busy = useRef(false);
  const again = () => set((count) => count + 1);
  return { turn, busy, again, look: () => busy.current || again() };
}

/** @param {string | null} path none: there is nothing to read yet. @returns {{ found: any, error: any, again: () => void, look: () => void }} */
export function useRead(path) {
  const [got, set] = useState({ path: /** @type {string | null} */ (null), found: /** @type {any} */ (null), error: /** @type {any} */ (null) });
  const { turn, busy, again, look } = useTurns();
  useEffect(() => {
    if (path === null) return undefined;
    const gone = new AbortController();
    busy.current = true;
    call("GET", path, { signal: gone.signal }).then(
      (found) => set({ path, found, error: null }),
      (error) => {
        if (!gone.signal.aborted) set((before) => ({ path, found: before.path === path ? before.found : null, error }));
      },
    ).finally(() => { if (!gone.signal.aborted) busy.current = false; });
    return () => gone.abort();
  }, [path, turn]);
  const now = got.path === path ? got : { found: null, error: null };
  useOnceMore(now.error, look);
  return { found: now.found, error: now.error, again, look };
}

/** A list that comes in pages. @param {string | null} path with a query; none: there is nothing to read @param {string} member of an answer */
export function usePages(path, member) {
  const [listed, set] = useState({ path: /** @type {string | null} */ (null), rows: /** @type {any[]} */ ([]), cursor: /** @type {string | null} */ (null), loaded: false, error: /** @type {any} */ (null) });
  const { turn, busy, again, look } = useTurns();
  /** @param {string | null} cursor @param {AbortSignal} [signal] */
  async function read(cursor, signal) {
    if (path === null) return;
    const fits = (/** @type {any} */ before) => cursor === null || (before.path === path && before.cursor === cursor); // it may be another list by now
    try {
      const page = await call("GET", cursor === null ? path : `${path}${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}`, { signal });
      set((before) => (fits(before) ? { path, rows: [...(cursor === null ? [] : before.rows), ...page[member]], cursor: page.more === false ? null : page.cursor, loaded: true, error: null } : before));
    } catch (error) {
      if (!signal?.aborted) set((before) => (fits(before) ? { ...before, path, error } : before));
    }
  }
  useEffect(() => {
    const gone = new AbortController();
    busy.current = true;
    read(null, gone.signal).then(() => { if (!gone.signal.aborted) busy.current = false; });
    return () => gone.abort();
  }, [path, turn]);
  const now = path !== null && listed.path === path ? listed : { rows: [], cursor: null, loaded: false, error: null };
  useOnceMore(now.rows.length ? null : now.error, look);
  return { ...now, more: () => read(now.cursor), again, look };
}

/** The overview: followed while somebody looks, read where it cannot be, and kept with its age when that fails. @returns {{ overview: any, readAt: number, error: any, live: boolean, again: () => void }} */
export function useOverview() {
  const [found, set] = useState({ overview: /** @type {any} */ (null), readAt: 0, error: /** @type {any} */ (null), live: false });
  const read = useRef(() => {});
  useEffect(() => {
    const gone = new AbortController();
    let timer = 0;
    let busy = false;
    let followed = true;
    async function look() {
      clearTimeout(timer);
      if (busy || followed || document.hidden) return;
      busy = true;
      try {
        const overview = await call("GET", "v1/overview", { signal: gone.signal });
        set({ overview, readAt: Date.now(), error: null, live: false });
      } catch (error) {
        if (!gone.signal.aborted) set((before) => ({ ...before, error }));
      }
      busy = false;
      if (!gone.signal.aborted) timer = setTimeout(look, OVERVIEW_MS);
    }
    const stream = new Live("v1/overview/events", {
      onEvents(events) {
        const told = events.findLast((one) => one.name === "overview")?.data;
        const at = events.findLast((one) => one.name === "bookmark")?.data.at;
        if (told || at) set(({ overview }) => ({ overview: told ?? { ...overview, at }, readAt: Date.now(), error: null, live: true }));
      },
      onState(state, why) {
        followed = state !== "broken" && state !== "ended";
        if (followed) return;
        const error = /** @type {any} */ (why);
        set((before) => ({ ...before, live: false, error: error?.status === 0 ? error : before.error }));
        look();
      },
    }, SILENT_MS);
    read.current = look;
    document.addEventListener("visibilitychange", look);
    return () => {
      gone.abort();
      stream.close();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, []);
  return { ...found, again: () => read.current() };
}

/** @type {Map<string, Promise<any>>} */
const loads = new Map();
/** @type {Map<string, any>} */
const loaded = new Map();

/** @param {string} file */
function load(file) {
  const before = loads.get(file);
  if (before) return before;
  const now = import(`./pages/${file}`).then(
    (module) => loaded.set(file, module),
    (error) => {
      loads.delete(file);
      throw error;
    },
  );
  loads.set(file, now);
  return now;
}

/** Loads the whole console anew, once a node answers: it may be of another build, and a browser may remember of a script that it did not come. */
async function loadAnew() {
  const answer = await fetch(`${BASE}console/`, { cache: "no-store", signal: AbortSignal.timeout(PASSING_MS) }).catch(() => null);
  if (answer?.ok) location.reload();
}

/** Of a page that few need, and that is loaded when somebody does. */
export const RARE = true;

/** Those that are loaded ahead. @type {Set<string>} */
const known = new Set();

/** In the place of a page whose script did not come. @param {{ file: string }} props */
function NoScript({ file }) {
  useEffect(() => {
    const timer = setInterval(() => document.hidden || loadAnew(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return html`<h1 tabindex="-1">This page cannot be loaded</h1><${Trouble} error=${{ asked: `GET ${file}`, title: "Its script did not come", message: "no node of this version answers; the console is loaded again as soon as one does" }} again=${loadAnew} />`;
}

/** The component of a file of pages. @param {string} file @param {string} name @param {boolean} rare */
export function lazy(file, name, rare = false) {
  if (!rare) known.add(file);
  return (/** @type {any} */ props) => {
    const [failed, fail] = useState(false);
    const [, turn] = useState(0);
    const there = loaded.get(file);
    useEffect(() => {
      if (there) return;
      load(file).then(
        () => turn((count) => count + 1),
        () => fail(true),
      );
    }, [there]);
    const late = useRef(!there);
    useEffect(() => {
      if (there && late.current) dispatchEvent(new Event("homing-shown"));
      late.current = !there;
    }, [there]);
    if (there) return html`<${there[name]} ...${props} />`;
    return failed ? html`<${NoScript} file=${file} />` : html`<${Loading} rows=${4} />`;
  };
}

/** Loads the pages, so that a console that is open needs no file of a node that has been updated since; not before the one that was asked for. */
export function loadAll() {
  setTimeout(() => { for (const file of known) load(file).catch(() => {}); }, AHEAD_MS);
}
