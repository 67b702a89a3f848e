/** Instants and durations, all of them written here. Ages go by the clock of the node, which the page follows. */

import { pref } from "./person.js";

/** Answers tell the second alone. */
const HALF_MS = 500;
const COARSE_MS = 1500;

let skew = 0;

/** Note what time it is at the node, and tell of it where that is news. @param {string | null} instant */
export function follow(instant) {
  const there = instant ? Date.parse(instant) : Number.NaN;
  const found = there + HALF_MS - Date.now();
  if (!(Math.abs(found - skew) > COARSE_MS)) return;
  skew = found;
  dispatchEvent(new Event("homing-clock"));
}

/** By how many milliseconds this machine's clock differs from the node's. */
export function difference() {
  return -skew;
}

/** The node's time in milliseconds since 1970. */
export function now() {
  return Date.now() + skew;
}

/** @param {number} value @param {number} [digits] */
function two(value, digits = 2) {
  return String(value).padStart(digits, "0");
}

/** @param {number} ms */
function parts(ms) {
  const one = new Date(ms);
  return pref("utc")
    ? [one.getUTCFullYear(), one.getUTCMonth() + 1, one.getUTCDate(), one.getUTCHours(), one.getUTCMinutes(), one.getUTCSeconds()]
    : [one.getFullYear(), one.getMonth() + 1, one.getDate(), one.getHours(), one.getMinutes(), one.getSeconds()];
}

/** The time of day; with the day where that is another one. @param {number} ms @param {boolean} [fine] */
export function clock(ms, fine = false) {
  if (!Number.isFinite(ms)) return "unknown";
  const [year, month, day, hour, minute, second] = parts(ms);
  const today = parts(now());
  const time = `${two(hour)}:${two(minute)}:${two(second)}${fine ? `.${two(new Date(ms).getMilliseconds(), 3)}` : ""}`;
  const same = year === today[0] && month === today[1] && day === today[2];
  return same ? time : `${year}-${two(month)}-${two(day)} ${time}`;
}

/** In RFC 3339 and UTC, for copies and titles. @param {number} ms */
export function iso(ms) {
  return Number.isFinite(ms) ? new Date(ms).toISOString() : "unknown";
}

/** The zone that times are shown in. */
export function zone() {
  if (pref("utc")) return "UTC";
  const minutes = -new Date().getTimezoneOffset();
  const rest = Math.abs(minutes) % 60;
  return `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}${rest ? `:${two(rest)}` : ""}`;
}

/** @param {number} ms */
export function duration(ms) {
  if (!Number.isFinite(ms)) return "";
  if (ms < 0) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} d`;
}

const LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** When a command was made, in milliseconds: its id begins with that, behind the partition. @param {string} id */
export function madeAt(id) {
  let ms = 0;
  for (const one of id.slice(4, 14)) {
    const digit = LETTERS.indexOf(one);
    if (digit < 0) return Number.NaN;
    ms = ms * 32 + digit;
  }
  return ms;
}
