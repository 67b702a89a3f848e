/** Profiles: how devices of this node speak, and the methods of their catalogues. */

import { Loading, Mark, Trouble, Value, html } from "../parts.js";
import { useState } from "../vendor/hooks.js";
import { part } from "../api.js";
import { useRead } from "../read.js";
import { may } from "../person.js";
import { capital, counted } from "../words.js";

const DANGER = { icon: "▲", word: "a mistake may do great harm", tone: "warn" };

export function Profiles() {
  const { found, error, again } = useRead("v1/profiles");
  return html`<h1 tabindex="-1">Profiles</h1>
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${!found && !error && html`<${Loading} rows=${6} />`}
    ${found && html`<table class="rows"><caption class="offstage">Profiles of this node, by name</caption>
      <thead><tr><th scope="col">Profile</th><th scope="col">Methods</th><th scope="col">Others</th><th scope="col">About</th></tr></thead>
      <tbody>${found.profiles.map((/** @type {any} */ one) => html`<tr key=${one.name}>
        <td class="main"><a data-row href=${`#/profiles/${part(one.name)}`}>${one.name}</a>${one.name === found.default ? html` <span class="chip">default</span>` : ""}</td>
        <td class="took">${one.methods}<span class="unit"> ${one.methods === 1 ? "method" : "methods"}</span></td>
        <td class="what">${one.unknown === "closed" ? "others are refused" : "others are sent"}</td>
        <td class="note-cell">${one.description}</td></tr>`)}</tbody></table>
      <p class="row"><a class="button" href="#/try">Try a message …</a>${may("trace") !== false && html`<a class="button" href="#/draft">Try a profile …</a>`}<span class="muted">${counted(found.profiles.length, "profile")} shown</span></p>`}`;
}

/** @param {{ one: any }} props */
function Method({ one }) {
  const [open, turn] = useState(false);
  return html`<details onToggle=${(/** @type {any} */ event) => turn(event.currentTarget.open)}><summary data-row><code>${one.name}</code> ${one.title}${one.danger === "high" ? html` <${Mark} of=${DANGER} />` : ""}</summary>
    ${open && html`<p>${[one.description, one.usual && `Usually takes ${one.usual}`].filter(Boolean).map(capital).join(". ")}</p>${one.params ? html`<${Value} value=${one.params} name=${`Params of ${one.name}`} />` : html`<p class="muted">Its params are not checked.</p>`}`}</details>`;
}

/** @param {{ name: string }} props */
export function Profile({ name }) {
  const all = useRead("v1/profiles");
  const { found, error, again } = useRead(`v1/profiles/${part(name)}/methods`);
  const [text, filter] = useState("");
  const about = all.found?.profiles.find((/** @type {any} */ one) => one.name === name);
  const methods = (found?.methods ?? []).filter((/** @type {any} */ one) => `${one.name} ${one.title}`.toLowerCase().includes(text.toLowerCase()));
  return html`<p class="back"><a href="#/profiles">‹ Profiles</a></p>
    <h1 tabindex="-1">${name}</h1>
    ${about && html`<p>${about.description}</p><p class="muted">${about.presence ? "Devices say whether they are there." : "Devices do not say whether they are there."}${about.events.length ? ` Unasked they send ${about.events.join(", ")}.` : ""}</p>`}
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${!found && !error && html`<${Loading} rows=${6} />`}
    ${found && html`<h2>Methods <span class="count">${methods.length}</span></h2>
      ${found.methods.length === 0 ? html`<p class="empty">It has no catalogue: any method is sent, and the device judges it.</p>` : html`<p class="row"><label>Find <input class="short" type="search" value=${text} onInput=${(/** @type {any} */ event) => filter(event.currentTarget.value)} autocomplete="off" spellcheck=${false} /></label></p>`}
      <div class="values">${methods.map((/** @type {any} */ one) => html`<${Method} key=${one.name} one=${one} />`)}</div>`}`;
}
