/** Forms of JSON Schemas: which fields there are, what was typed into them, and what is wrong with it. */

import { Exact, numberOf, parse, written } from "./api.js";

/** @typedef {Record<string, any>} Schema */
/** @typedef {{ name: string, schema: Schema, kind: string, needed: boolean }} Field */
/** @typedef {{ path: string, said: string }} Fault */

const SIMPLE = new Set(["string", "number", "integer", "boolean"]);

/** The fields of params of this schema; null where only JSON says what is meant. @param {Schema | null} schema @returns {Field[] | null} */
export function fieldsOf(schema) {
  if (!schema || schema.type !== "object" || !schema.properties) return null;
  const needed = new Set(schema.required ?? []);
  const named = Object.entries(schema.properties);
  if ([...needed].some((name) => !Object.hasOwn(schema.properties, name))) return null;
  return named.map(([name, one]) => ({ name, schema: one, kind: kindOf(one), needed: needed.has(name) }));
}

/** @param {Schema} schema */
function kindOf(schema) {
  if (Array.isArray(schema.enum)) return "choice";
  return SIMPLE.has(schema.type) ? schema.type : "json";
}

/** What is allowed, in a few words. @param {Field} field */
export function hintOf({ schema, kind }) {
  const { minimum, maximum, minLength, minItems } = schema;
  const words = [schema.title, schema.description].filter((one) => typeof one === "string");
  if (kind === "number" || kind === "integer") {
    if (kind === "integer") words.push("a whole number");
    if (minimum !== undefined && maximum !== undefined) words.push(`${minimum} to ${maximum}`);
    else if (minimum !== undefined) words.push(`at least ${minimum}`);
    else if (maximum !== undefined) words.push(`at most ${maximum}`);
  }
  if (kind === "json") words.push(schema.type === "array" ? "a JSON array" : schema.type === "object" ? "a JSON object" : "JSON");
  if (minLength > 1) words.push(`at least ${minLength} characters`);
  if (minItems) words.push(`at least ${minItems} entries`);
  return words.join(", ");
}

/**
 * The params that the fields say. What is empty is left out.
 * @param {Field[]} fields @param {Record<string, string>} typed
 * @returns {{ params: Record<string, any>, faults: Fault[] }}
 */
export function paramsOf(fields, typed) {
  /** @type {Record<string, any>} */
  const params = {};
  /** @type {Fault[]} */
  const faults = [];
  for (const { name, kind } of fields) {
    const text = typed[name] ?? "";
    if (text === "") continue;
    if (kind === "string") {
      Object.defineProperty(params, name, { value: text, enumerable: true, configurable: true, writable: true });
      continue;
    }
    try {
      const value = parse(text);
      Object.defineProperty(params, name, { value, enumerable: true, configurable: true, writable: true });
    } catch {
      faults.push({ path: name, said: kind === "json" ? "is no JSON" : "is no number" });
    }
  }
  return { params, faults };
}

/** What the fields must hold to say these params; null where they cannot. @param {Field[]} fields @param {any} params */
export function typedOf(fields, params) {
  if (params === null || typeof params !== "object" || Array.isArray(params)) return null;
  /** @type {Record<string, string>} */
  const typed = {};
  for (const [name, value] of Object.entries(params)) {
    const field = fields.find((one) => one.name === name);
    if (!field || value === "") return null;
    typed[name] = field.kind === "string" && typeof value === "string" ? value : written(value);
    if (field.kind === "string" && typeof value !== "string") return null;
  }
  return typed;
}

/** @param {any} value */
function typeOf(value) {
  if (value === null) return "null";
  if (value instanceof Exact || typeof value === "number") return Number.isInteger(numberOf(value)) ? "integer" : "number";
  return Array.isArray(value) ? "array" : typeof value;
}

/** @param {any} one @param {any} other @returns {boolean} */
function same(one, other) {
  const kinds = [typeOf(one), typeOf(other)];
  if (kinds.every((kind) => kind === "integer" || kind === "number")) return numberOf(one) === numberOf(other);
  if (kinds[0] !== kinds[1]) return false;
  if (kinds[0] === "array") return one.length === other.length && one.every((/** @type {any} */ each, /** @type {number} */ at) => same(each, other[at]));
  if (kinds[0] !== "object") return one === other;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => Object.hasOwn(other, name) && same(one[name], other[name]));
}

/** @type {Record<string, (bound: any, value: any) => string>} */
const NUMBERS = {
  minimum: (bound, value) => (value < bound ? `is less than ${bound}` : ""),
  maximum: (bound, value) => (value > bound ? `is more than ${bound}` : ""),
  exclusiveMinimum: (bound, value) => (value <= bound ? `is not more than ${bound}` : ""),
  exclusiveMaximum: (bound, value) => (value >= bound ? `is not less than ${bound}` : ""),
};
/** @type {Record<string, (bound: any, size: number) => string>} */
const SIZES = {
  min: (bound, size) => (size < bound ? `is too short; allowed: at least ${bound}` : ""),
  max: (bound, size) => (size > bound ? `is too long; allowed: at most ${bound}` : ""),
};

/** @param {Schema} schema @param {string} type @param {any} value @returns {string[]} */
function boundsOf(schema, type, value) {
  if (type === "number" || type === "integer") {
    return Object.keys(NUMBERS).filter((name) => schema[name] !== undefined).map((name) => NUMBERS[name](schema[name], numberOf(value)));
  }
  const [word, size] =
    type === "string" ? ["Length", [...value].length] : type === "array" ? ["Items", value.length] : ["Properties", type === "object" ? Object.keys(value).length : 0];
  if (type !== "string" && type !== "array" && type !== "object") return [];
  return Object.keys(SIZES).filter((name) => schema[name + word] !== undefined).map((name) => SIZES[name](schema[name + word], size));
}

/** What is wrong with a value. What a keyword means that is not here, the node judges alone. @param {Schema | boolean} schema @param {any} value @param {string} [path] @returns {Fault[]} */
export function faultsOf(schema, value, path = "") {
  if (schema === true) return [];
  if (schema === false) return [{ path, said: "is not allowed" }];
  const type = typeOf(value);
  const types = schema.type === undefined ? [] : [schema.type].flat();
  if (types.length && !types.includes(type) && !(type === "integer" && types.includes("number"))) return [{ path, said: `is ${type}; allowed: ${types.join(", ")}` }];
  const found = boundsOf(schema, type, value).filter(Boolean).map((said) => ({ path, said }));
  if (schema.enum && !schema.enum.some((/** @type {any} */ one) => same(one, value))) found.push({ path, said: `is none of ${schema.enum.map((/** @type {any} */ one) => written(one)).join(", ")}` });
  if (Object.hasOwn(schema, "const") && !same(schema.const, value)) found.push({ path, said: `is not ${written(schema.const)}` });
  if (schema.anyOf && !schema.anyOf.some((/** @type {any} */ one) => faultsOf(one, value).length === 0)) found.push({ path, said: "fits none of what is allowed" });
  if (type === "array" && schema.items !== undefined) {
    value.forEach((/** @type {any} */ one, /** @type {number} */ at) => found.push(...faultsOf(schema.items, one, below(path, String(at)))));
  }
  if (type === "object") found.push(...membersOf(schema, value, path));
  return found;
}

/** @param {Schema} schema @param {any} value @param {string} path @returns {Fault[]} */
function membersOf(schema, value, path) {
  /** @type {Fault[]} */
  const found = (schema.required ?? []).filter((/** @type {string} */ name) => !Object.hasOwn(value, name)).map((/** @type {string} */ name) => ({ path: below(path, name), said: "is needed" }));
  const known = schema.properties ?? {};
  for (const [name, one] of Object.entries(value)) {
    if (Object.hasOwn(known, name)) found.push(...faultsOf(known[name], one, below(path, name)));
    else if (schema.additionalProperties !== undefined && !schema.patternProperties) found.push(...faultsOf(schema.additionalProperties, one, below(path, name)));
  }
  return found;
}

/** @param {string} path @param {string} name */
function below(path, name) {
  return path ? `${path}.${name}` : name;
}

/** Where a text stops being JSON, in words; "" where it is JSON. @param {string} text */
export function noJson(text) {
  try {
    parse(text);
    return "";
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    const at = /position (\d+)/.exec(message)?.[1];
    if (at === undefined) return `is no JSON: ${message}`;
    const lines = text.slice(0, Number(at)).split("\n");
    return `is no JSON from line ${lines.length}, column ${/** @type {string} */ (lines.at(-1)).length + 1} on`;
  }
}
