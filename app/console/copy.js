/** What is copied: requests for a shell, for Python and for the command line. None ever contains a key. */

import { BASE, part } from "./api.js";
import { Exact, written } from "./json.js";

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

/** @typedef {{ device_id: string, method: string, params: any, profile: string }} Sendable */

const root = () => BASE.replace(/\/$/, "");

/** @param {Sendable} one */
export function sendByCurl(one) {
  return postByCurl(`v1/devices/${part(one.device_id)}/commands`, written({ method: one.method, params: one.params, profile: one.profile }));
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
  return [
    "from homing_client import Homing",
    "",
    `with Homing(${JSON.stringify(root())}) as homing:`,
    `    print(homing.send(${python(one.device_id)}, ${python(one.method)}, ${python(one.params)}, profile=${python(one.profile)}))`,
  ].join("\n");
}

/** @param {Sendable} one */
export function sendByCommandLine(one) {
  const options = `--url ${quoted(root())} --profile ${quoted(one.profile)} --params ${quoted(written(one.params))}`;
  return `homing send ${options} -- ${quoted(one.device_id)} ${quoted(one.method)}`;
}

/** Put a text where people paste from; false where the browser does not let us. @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

/** Pages of plain HTTP have no clipboard but this one. @param {string} text */
function copiedBySelection(text) {
  const before = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "offstage";
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  let done = false;
  try {
    done = document.execCommand("copy");
  } catch {
    // Then it is not done.
  }
  field.remove();
  if (before instanceof HTMLElement) before.focus();
  return done;
}
