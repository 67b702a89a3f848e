/** What is copied: requests for a shell, for Python and for the command line, and lists for a spreadsheet. None ever contains a key. */

import { BASE, Exact, part, written } from "./api.js";

/** A word for a POSIX shell. @param {string} text */
export function quoted(text) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A JSON value in Python. @param {any} value @returns {string} */
export function python(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (value instanceof Exact) return value.source;
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${python(one)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

/** @typedef {{ timeout?: string, one_way?: boolean, if_offline?: string, hold?: string }} Wishes */
/** @typedef {{ device_id: string, method: string, params: any, profile: string, wishes?: Wishes }} Sendable */

/** The body that sends it. @param {Sendable} one */
export function bodyOf({ method, params, profile, wishes }) {
  return written({ method, params, profile, ...wishes });
}

const root = () => BASE.replace(/\/$/, "");

/** @param {Sendable} one */
export function sendByCurl(one) {
  return postByCurl(`v1/devices/${part(one.device_id)}/commands`, bodyOf(one));
}

/** @param {string} path @param {string} body */
export function postByCurl(path, body) {
  return [
    `curl -sS ${quoted(`${root()}/${path}`)}`,
    `  -H "Authorization: Bearer $HOMING_KEY" -H 'Content-Type: application/json'`,
    `  --data-raw ${quoted(body)}`,
  ].join(" \\\n");
}

/** @param {Sendable} one */
export function sendByPython(one) {
  const named = Object.entries({ profile: one.profile, ...one.wishes }).map(([name, value]) => `${name}=${python(value)}`);
  return [
    "from homing_client import Homing",
    "",
    `with Homing(${JSON.stringify(root())}) as homing:`,
    `    print(homing.send(${python(one.device_id)}, ${python(one.method)}, ${python(one.params)}, ${named.join(", ")}))`,
  ].join("\n");
}

/** @param {Sendable} one */
export function sendByCommandLine(one) {
  const wishes = Object.entries(one.wishes ?? {}).map(([name, value]) => `--${name.replace("_", "-")}${value === true ? "" : ` ${quoted(String(value))}`}`);
  const options = [`--url ${quoted(root())}`, `--profile ${quoted(one.profile)}`, ...wishes, `--params ${quoted(written(one.params))}`];
  return `homing send ${options.join(" ")} -- ${quoted(one.device_id)} ${quoted(one.method)}`;
}

/** The places before a formula: where a text begins, or where a spreadsheet divides it that goes by other signs. */
const FORMULA = /^(?=[=+\-@\t\r\n])|(?<=[;\t\r\n])(?=[=+\-@])/g;

/** A table as in RFC 4180, in which nothing is a formula. @param {string[][]} rows */
export function csv(rows) {
  const cell = (/** @type {string} */ text) => `"${text.replace(FORMULA, "'").replaceAll('"', '""')}"`;
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}
