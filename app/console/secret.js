/** A secret that is shown once: it is in the page until somebody says that they have it, and nowhere afterwards. */

import { rescueFocus } from "./confirm.js";
import { Copy, html } from "./parts.js";
import { useEffect, useRef } from "./vendor/hooks.js";

/** @param {{ text: string, title: string, hint: any, done: () => void }} props */
export function Secret({ text, title, hint, done }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    dialog.current?.showModal();
    return rescueFocus;
  }, []);
  const stay = (/** @type {Event} */ event) => event.preventDefault(); // Escape would throw it away
  const typed = (/** @type {KeyboardEvent} */ event) => { if (event.key === "Escape") stay(event); }; // a second one asks nobody
  return html`<dialog ref=${dialog} aria-label=${title} closedby="none" onKeyDown=${typed} onCancel=${stay} onClose=${done}>
    <h2>${title}</h2>
    <p>${hint}</p>
    <pre tabindex="0" role="region" aria-label="The secret"><code>${text}</code></pre>
    <p class="note">It is shown this once. Nobody can show it again, and this page forgets it.</p>
    <p class="row"><${Copy} text=${text} label="Copy" /><button type="button" class="chief" onClick=${() => dialog.current?.close()}>I have it</button></p>
  </dialog>`;
}
