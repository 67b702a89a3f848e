/** The overview: followed while somebody looks, read where it cannot be, and kept with its age when that fails; and its last hour in lines. */

import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { call } from "./api.js";
import { Live } from "./live.js";
import { html } from "./parts.js";
import { duration } from "./time.js";
import { many } from "./words.js";

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

const MINUTES = 60;
const MINUTE_MS = 60_000;
const WIDTH = 120;
const HEIGHT = 24;

/** A line through values; what is missing is nothing. The text beside it says it in numbers. @param {{ values: number[] }} props */
function Sparkline({ values }) {
  const most = Math.max(...values, 1);
  const step = WIDTH / (values.length - 1);
  const points = values.map((one, at) => `${(at * step).toFixed(1)},${(HEIGHT - (one / most) * HEIGHT).toFixed(1)}`);
  return html`<svg class="spark" viewBox=${`0 -1 ${WIDTH} ${HEIGHT + 2}`} width=${WIDTH} height=${HEIGHT + 2} aria-hidden="true" focusable="false"><polyline points=${points.join(" ")} /></svg>`;
}

/** Commands that ended otherwise than well, but for those that somebody cancelled. @param {Record<string, number>} ended */
export function unwell(ended) {
  return Object.entries(ended ?? {}).reduce((sum, [outcome, count]) => sum + (outcome === "succeeded" || outcome === "cancelled" ? 0 : count), 0);
}

/** A value of each of the last minutes, the latest one last. @param {any[]} minutes @param {number} now in ms @param {(one: any) => number | null} value */
export function lineOf(minutes, now, value) {
  const known = new Map(minutes.map((one) => [Math.floor(Date.parse(one.at) / MINUTE_MS), value(one) ?? 0]));
  const latest = Math.floor(now / MINUTE_MS);
  return Array.from({ length: MINUTES }, (_, at) => known.get(latest - MINUTES + 1 + at) ?? 0);
}

/** @param {{ hour: any, at: string }} props `at` is when it was so */
export function Hour({ hour, at }) {
  const { total, minutes } = hour;
  const now = Date.parse(at);
  const figures = [
    { what: "sent", text: many(total.begun), values: lineOf(minutes, now, (one) => one.begun) },
    { what: "not succeeded", text: many(unwell(total.ended)), values: lineOf(minutes, now, (one) => unwell(one.ended)) },
    { what: "p99", text: total.p99_ms === null ? "–" : duration(total.p99_ms), values: lineOf(minutes, now, (one) => one.p99_ms) },
  ];
  return html`<section aria-label="Commands of the last hour"><dl class="hour">${figures.map(
    (one) => html`<div key=${one.what}><dt>${one.what}</dt><dd>${one.text}<${Sparkline} values=${one.values} /></dd></div>`,
  )}</dl></section>`;
}
