/** Calls of the public API of the node that has served this page, wherever a proxy has put it; in JSON whose numbers stay as they were written. */

import { follow } from "./time.js";

export const BASE = new URL("../", location.href.split("#")[0]).href;
const PATIENCE_MS = 15_000;
/** No foreign page can send this header without being asked about it first, and nobody is told yes. */
export const OURS = { "Homing-Request": "console" };

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
export async function problemOf(response, asked) {
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
export function unreachable(asked, error, patience = PATIENCE_MS) {
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
