/** JSON whose numbers stay as they were written. */

/** A number that JavaScript would write in another way, such as 9007199254740993, 1e400 or 20.50. */
export class Exact {
  /** @param {string} source */
  constructor(source) {
    this.source = source;
  }
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
