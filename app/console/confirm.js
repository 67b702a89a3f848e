/** What is asked again before it is done. */

import { quoted } from "./copy.js";
import { Trouble, html } from "./parts.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";

/** Leads to the head of the page where the focus is nowhere: what was pressed went away with what it has done. */
export function rescueFocus() {
  setTimeout(() => {
    if (document.activeElement === document.body) /** @type {HTMLElement | null} */ (document.querySelector("main h1"))?.focus({ preventScroll: true });
  });
}

/**
 * A button that asks first, shows the verb that does the same, and says what went wrong.
 * @param {{ label: string, title: string, text: any, does: string, verb?: string[], run: () => Promise<any>, done: (made: any) => void, children?: any }} props
 */
export function Confirm({ label, title, text, does, verb, run, done, children }) {
  const acted = useRef(false);
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [error, fail] = useState(/** @type {any} */ (null));
  const [busy, work] = useState(false);
  const [open, turn] = useState(false);
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  useEffect(() => () => acted.current && rescueFocus(), []);
  async function act() {
    if (busy) return;
    work(true);
    fail(null);
    try {
      const made = await run();
      dialog.current?.close();
      acted.current = true;
      done(made);
    } catch (problem) {
      fail(problem);
    }
    work(false);
  }
  return html`<button type="button" onClick=${() => { fail(null); turn(true); }}>${label}</button>
    ${open && html`<dialog ref=${dialog} aria-label=${title} onClose=${() => turn(false)}>
      <h2>${title}</h2>
      <p>${text}</p>
      ${children}
      ${verb && html`<pre tabindex="0" role="region" aria-label="The request"><code>${["homing", ...verb].map(quoted).join(" ")}</code></pre>`}
      ${error && html`<${Trouble} error=${error} />`}
      <p class="row"><button type="button" autofocus onClick=${() => dialog.current?.close()}>No</button><button type="button" class="danger" aria-disabled=${busy} onClick=${act}>${does}</button></p>
    </dialog>`}`;
}
