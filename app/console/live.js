/** Streams of server-sent events by `fetch`: they say where they go on from, and see how a request was answered. */

import { BASE, OURS, parse, problemOf, unreachable } from "./api.js";
import { follow } from "./time.js";

const HIDDEN_MS = 30_000;
const DEAD_MS = 40_000;
const FLUSH_MS = 250;
const SHORTEST_MS = 1000;
const LONGEST_MS = 10_000;
const MOST_LINE = 4_000_000;

/** @typedef {{ id: string, name: string, data: any }} StreamEvent */
/** @typedef {"connecting" | "live" | "broken" | "paused" | "hidden" | "ended"} StreamState */

/** A parser of server-sent events (WHATWG HTML, 9.2). @param {(event: { id: string, name: string, text: string }) => void} tell @param {(ms: number) => void} retry */
export function parser(tell, retry) {
  let rest = "";
  let id = "";
  let name = "";
  /** @type {string[]} */
  let data = [];

  /** @param {string} line */
  function take(line) {
    if (line === "") {
      if (data.length) tell({ id, name: name || "message", text: data.join("\n") });
      name = "";
      data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") data.push(value);
    else if (field === "event") name = value;
    else if (field === "id" && !value.includes("\0")) id = value;
    else if (field === "retry" && /^\d+$/.test(value)) retry(Number(value));
  }

  return (/** @type {string} */ chunk) => {
    rest += chunk;
    if (rest.length > MOST_LINE) throw new Error("an event is too long");
    const held = rest.endsWith("\r") ? "\r" : "";
    const lines = rest.slice(0, rest.length - held.length).split(/\r\n|\r|\n/);
    rest = (lines.pop() ?? "") + held;
    lines.forEach(take);
  };
}

/** A stream that goes on where it was: after a broken connection, a pause, and a time in the background. */
export class Live {
  /**
   * @param {string} path
   * @param {{ onEvents: (events: StreamEvent[]) => void, onState: (state: StreamState, why: Error | null) => void }} to
   * @param {number} silence after how many milliseconds without a byte a stream is broken
   */
  constructor(path, to, silence = DEAD_MS) {
    this.path = path;
    this.to = to;
    this.silence = silence;
    this.last = "";
    this.wait = SHORTEST_MS;
    this.tries = 0;
    /** @type {StreamEvent[]} */
    this.held = [];
    this.flush = 0;
    this.timer = 0;
    this.hiding = 0;
    /** @type {AbortController | null} */
    this.connection = null;
    this.paused = false;
    this.over = false;
    this.seen = () => this.#visibility();
    document.addEventListener("visibilitychange", this.seen);
    if (document.hidden) this.to.onState("hidden", null);
    else this.#connect();
  }

  close() {
    this.over = true;
    document.removeEventListener("visibilitychange", this.seen);
    clearTimeout(this.hiding);
    this.#stop();
    clearTimeout(this.flush);
  }

  /** @param {boolean} paused */
  pause(paused) {
    this.paused = paused;
    this.#stop();
    if (paused) this.to.onState("paused", null);
    else this.#connect();
  }

  #stop() {
    clearTimeout(this.timer);
    this.connection?.abort();
    this.connection = null;
  }

  #visibility() {
    clearTimeout(this.hiding);
    if (document.hidden) {
      this.hiding = setTimeout(() => {
        this.#stop();
        if (!this.paused) this.to.onState("hidden", null);
      }, HIDDEN_MS);
    } else if (!this.paused && this.connection === null && !this.over) {
      this.#connect();
    }
  }

  async #connect() {
    clearTimeout(this.timer);
    const connection = new AbortController();
    this.connection = connection;
    if (this.tries === 0) this.to.onState("connecting", null);
    let watch = 0;
    const alive = () => {
      clearTimeout(watch);
      watch = setTimeout(() => connection.abort(new DOMException("silence", "TimeoutError")), this.silence);
    };
    const asked = `GET /${this.path}`;
    /** @type {any} */
    let why = null;
    alive();
    try {
      /** @type {Record<string, string>} */
      const headers = { ...OURS, Accept: "text/event-stream" };
      if (this.last) headers["Last-Event-ID"] = this.last;
      const response = await fetch(BASE + this.path, { headers, signal: connection.signal, cache: "no-store", redirect: "error" });
      if (response.status === 204) return this.#end();
      if (!response.ok || !response.body) throw await problemOf(response, asked);
      follow(response.headers.get("date"));
      this.tries = 0;
      this.to.onState("live", null);
      const feed = parser(
        (event) => this.#hear(event),
        (ms) => {
          this.wait = ms;
        },
      );
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        alive();
        feed(value);
      }
    } catch (error) {
      why = /** @type {any} */ (error)?.status ? error : unreachable(asked, error, this.silence);
    } finally {
      clearTimeout(watch);
    }
    if (this.connection !== connection || this.over) return;
    this.connection = null;
    this.#retry(why);
  }

  /** @param {any} why */
  #retry(why) {
    if (why?.status === 401) dispatchEvent(new Event("homing-login"));
    if (why && why.status >= 400 && why.status < 500 && why.status !== 429 && why.status !== 408) {
      this.to.onState("ended", why);
      return;
    }
    this.tries += 1;
    const doubled = Math.min(this.wait * 2 ** Math.min(this.tries - 1, 5), LONGEST_MS);
    const pause = Math.max((why?.after ?? 0) * 1000, doubled * (0.75 + Math.random() / 2));
    if (why) this.to.onState("broken", why);
    this.timer = setTimeout(() => {
      if (!document.hidden) this.#connect();
    }, pause);
  }

  #end() {
    this.connection = null;
    this.over = true;
    this.to.onState("ended", null);
  }

  /** @param {{ id: string, name: string, text: string }} event */
  #hear(event) {
    if (event.id) this.last = event.id;
    this.held.push({ id: event.id, name: event.name, data: parse(event.text) });
    if (!this.flush) {
      this.flush = setTimeout(() => {
        this.flush = 0;
        const events = this.held;
        this.held = [];
        if (!this.over || events.length) this.to.onEvents(events);
      }, FLUSH_MS);
    }
  }
}
