/** The overview: followed while somebody looks, read where it cannot be, and kept with its age when that fails. */

import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { call } from "./api.js";
import { Live } from "./live.js";

/** Nodes of an older version, and those with too many streams, are looked at. */
export const EVERY_MS = 6000;
/** Nodes write every five seconds. */
const SILENT_MS = 12_000;

/** @returns {{ overview: any, readAt: number, error: any, live: boolean, again: () => void }} */
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
      if (!gone.signal.aborted) timer = setTimeout(look, EVERY_MS);
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
