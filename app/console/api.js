/** Calls and streams of the public API of the node that has served this page, wherever a proxy has put it; in JSON whose numbers stay as they were written. */

import { follow } from "./time.js";

export const BASE = new URL("../", location.href.split("#")[0]).href;
const PATIENCE_MS = 15_000;
/** No foreign page can send this header without being asked about it first, and nobody is told yes. */
const OURS = { "Homing-Request": "console" };

/** An answer that is none, or no answer. */
export class Problem extends Error {
  /** @param {string} asked @param {number} status @param {any} body @param {number | null} after */
  constructor(asked, status, body, after) {
    super(String(body?.detail ?? body?.title ?? `status ${status}`));
    this.asked = asked;
    this.status = status;
    this.title = String(body?.title ?? "");
    /** What is wrong with which field. @type {any[]} */
    this.errors = Array.isArray(body?.errors) ? body.errors : [];
    this.after = after;
  }
}

/** @param {Response} response @param {string} asked */
async function problemOf(response, asked) {
  const text = await response.text().catch(() => "");
  /** @type {any} */
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    body = { title: "Something between here and the nodes answered", detail: `status ${response.status}` };
  }
  const after = Number(response.headers.get("retry-after"));
  return new Problem(asked, response.status, body, after > 0 ? after : null);
}

/** @param {string} asked @param {unknown} error @param {number} patience */
function unreachable(asked, error, patience = PATIENCE_MS) {
  const slow = error instanceof DOMException && error.name === "TimeoutError";
  const detail = slow ? `no answer within ${patience / 1000} s` : "no answer from this address";
  return new Problem(asked, 0, { title: "The node does not answer", detail }, null);
}

/**
 * @param {string} method
 * @param {string} path below the API's root, without a slash in front
 * @param {{ body?: unknown, text?: string, headers?: Record<string, string>, signal?: AbortSignal }} [more] `text`: the body as it is sent
 * @returns {Promise<any>}
 */
export async function call(method, path, { body, text: given, headers: more, signal } = {}) {
  const asked = `${method} /${path}`;
  const patience = AbortSignal.timeout(PATIENCE_MS);
  /** @type {Record<string, string>} */
  const headers = { ...OURS, Accept: "application/json", ...more };
  const sent = body === undefined ? given : written(body);
  if (sent !== undefined) headers["Content-Type"] = "application/json";
  let response;
  let text;
  try {
    response = await fetch(BASE + path, {
      method,
      headers,
      body: sent,
      signal: signal ? AbortSignal.any([signal, patience]) : patience,
      cache: "no-store",
      redirect: "error",
    });
    if (!response.ok) throw await problemOf(response, asked);
    text = await response.text();
  } catch (error) {
    if (error instanceof Problem) {
      if (error.status === 401) dispatchEvent(new Event("homing-login"));
      throw error;
    }
    if (signal?.aborted) throw error;
    throw unreachable(asked, error);
  }
  follow(response.headers.get("date"));
  return text ? parse(text) : null;
}

/** A query of those that say something. @param {Record<string, string | number | null | undefined>} some */
export function query(some) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(some)) {
    if (value !== null && value !== undefined && value !== "") found.set(name, String(value));
  }
  const text = found.toString();
  return text ? `?${text}` : "";
}

/** One part of a path. @param {string} text */
export function part(text) {
  return encodeURIComponent(/** @type {any} */ (text).toWellFormed?.() ?? text);
}

/** A number that JavaScript would write in another way, such as 9007199254740993, 1e400 or 20.50. */
export class Exact {
  /** @param {string} source */
  constructor(source) {
    this.source = source;
  }

  toString() {
    return this.source;
  }
}

/** The number that JavaScript has for a value that is one. @param {any} value */
export function numberOf(value) {
  return value instanceof Exact ? Number(value.source) : value;
}

/** @type {any} */
const json = JSON;

/** @param {string} text */
export function parse(text) {
  return json.parse(text, (/** @type {string} */ _key, /** @type {unknown} */ value, /** @type {any} */ context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source
      ? new Exact(context.source)
      : value,
  );
}

/**
 * @param {unknown} value
 * @param {number} [indent]
 * @returns {string}
 */
export function written(value, indent = 0) {
  return json.stringify(value, (/** @type {string} */ _key, /** @type {unknown} */ one) => (one instanceof Exact ? json.rawJSON(one.source) : one), indent);
}

/** The size of a text in UTF-8. @param {string} text */
export function bytesOf(text) {
  return new TextEncoder().encode(text).length;
}

const HIDDEN_MS = 30_000;
const DEAD_MS = 40_000;
const FLUSH_MS = 250;
const SHORTEST_MS = 1000;
const LONGEST_MS = 10_000;
const MOST_LINE = 4_000_000;

/** @typedef {{ id: string, name: string, data: any }} StreamEvent */
/** @typedef {"connecting" | "live" | "broken" | "paused" | "hidden" | "ended"} StreamState */

/** A parser of server-sent events (WHATWG HTML, 9.2). @param {(event: { id: string, name: string, text: string }) => void} tell @param {(ms: number) => void} retry */
function eventParser(tell, retry) {
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
      const feed = eventParser(
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
