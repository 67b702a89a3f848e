/** What a page reads from the node once, and anew when it is told to. */

import { useEffect, useState } from "./vendor/hooks.js";
import { call } from "./api.js";

const EVERY_MS = 10_000;
const PASSING_MS = 3000;
/** No answer, too many requests, or nobody behind a proxy. */
const PASSING = [0, 429, 502, 503, 504];

/** Reads again every ten seconds while somebody looks, and there may be news. @param {() => void} again @param {boolean} [news] */
export function useAgain(again, news = true) {
  useEffect(() => {
    if (!news) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) again();
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, [news]);
}

/** Whether the same request may go well a little later. @param {any} error */
export function passing(error) {
  return PASSING.includes(error?.status);
}

/** Reads again by itself what may go well a little later. @param {any} error @param {() => void} again */
function useOnceMore(error, again) {
  useEffect(() => {
    if (!passing(error)) return undefined;
    const timer = setInterval(() => document.hidden || again(), Math.max(PASSING_MS, (error.after ?? 0) * 1000));
    return () => clearInterval(timer);
  }, [error]);
}

/** @param {string | null} path none: there is nothing to read yet. @returns {{ found: any, error: any, again: () => void }} */
export function useRead(path) {
  const [got, set] = useState({ path: /** @type {string | null} */ (null), found: /** @type {any} */ (null), error: /** @type {any} */ (null) });
  const [turn, again] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const gone = new AbortController();
    call("GET", path, { signal: gone.signal }).then(
      (found) => set({ path, found, error: null }),
      (error) => {
        if (!gone.signal.aborted) set((before) => ({ path, found: before.path === path ? before.found : null, error }));
      },
    );
    return () => gone.abort();
  }, [path, turn]);
  const now = got.path === path ? got : { found: null, error: null };
  const once = () => again((count) => count + 1);
  useOnceMore(now.error, once);
  return { found: now.found, error: now.error, again: once };
}

/** A list that comes in pages. @param {string | null} path with a query; none: there is nothing to read @param {string} member of an answer */
export function usePages(path, member) {
  const [listed, set] = useState({ path: /** @type {string | null} */ (null), rows: /** @type {any[]} */ ([]), cursor: /** @type {string | null} */ (null), loaded: false, error: /** @type {any} */ (null) });
  const [turn, again] = useState(0);
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
    read(null, gone.signal);
    return () => gone.abort();
  }, [path, turn]);
  const now = path !== null && listed.path === path ? listed : { rows: [], cursor: null, loaded: false, error: null };
  const once = () => again((count) => count + 1);
  useOnceMore(now.rows.length ? null : now.error, once);
  return { ...now, more: () => read(now.cursor), again: once };
}
