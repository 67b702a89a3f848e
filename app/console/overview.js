/** The overview: read every six seconds while somebody looks, and kept with its age when that fails. */

import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { call } from "./api.js";

/** What is wrong is to be on the screen within 15 seconds, and some troubles are known after eight. */
export const EVERY_MS = 6000;

/** @returns {{ overview: any, readAt: number, error: any, again: () => void }} */
export function useOverview() {
  const [found, set] = useState({ overview: /** @type {any} */ (null), readAt: 0, error: /** @type {any} */ (null) });
  const read = useRef(() => {});
  useEffect(() => {
    const gone = new AbortController();
    let timer = 0;
    let busy = false;
    async function look() {
      clearTimeout(timer);
      if (busy || document.hidden) return;
      busy = true;
      try {
        const overview = await call("GET", "v1/overview", { signal: gone.signal });
        set({ overview, readAt: Date.now(), error: null });
      } catch (error) {
        if (!gone.signal.aborted) set((before) => ({ ...before, error }));
      }
      busy = false;
      if (!gone.signal.aborted) timer = setTimeout(look, EVERY_MS);
    }
    read.current = look;
    document.addEventListener("visibilitychange", look);
    look();
    return () => {
      gone.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, []);
  return { ...found, again: () => read.current() };
}
