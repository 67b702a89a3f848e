/** What a form needs that asks the node for something new: it waits, it fails, or it is empty again. */

import { useState } from "./vendor/hooks.js";

/** @param {(typed: FormData) => Promise<any>} ask @param {(made: any) => void} done @param {boolean} [empty] what was typed goes away once it is done */
export function useSubmit(ask, done, empty = true) {
  const [error, fail] = useState(/** @type {any} */ (null));
  const [busy, work] = useState(false);
  /** @param {any} event */
  async function submit(event) {
    event.preventDefault();
    if (busy) return;
    const form = event.currentTarget;
    work(true);
    fail(null);
    try {
      done(await ask(new FormData(form)));
      if (empty) form.reset();
    } catch (problem) {
      fail(problem);
    }
    work(false);
  }
  return { error, busy, submit };
}

/** The text of a field. @param {FormData} typed @param {string} name */
export function textOf(typed, name) {
  return String(typed.get(name) ?? "").trim();
}
