/** Access: keys, people, roles, whether somebody may do something, and who has done what. */

import { html } from "../parts.js";
import { may } from "../person.js";
import { Audit } from "./audit.js";
import { Keys } from "./keys.js";
import { Check, People, Roles } from "./people.js";

const PARTS = [
  { name: "keys", word: "Keys", page: Keys },
  { name: "people", word: "People", page: People, action: "access" },
  { name: "roles", word: "Roles", page: Roles, action: "access" },
  { name: "check", word: "May they?", page: Check, action: "access" },
  { name: "audit", word: "Audit", page: Audit, action: "audit" },
];

/** @param {{ part: string, params: URLSearchParams, go: (some: Record<string, string>) => void }} props */
export function Access({ part, params, go }) {
  const shown = PARTS.find((one) => one.name === part) ?? PARTS[0];
  const there = PARTS.filter((one) => !one.action || may(one.action));
  return html`<h1 tabindex="-1">Access</h1>
    <nav class="parts" aria-label="Parts of access"><ul>${there.map((one) => html`<li key=${one.name}><a href=${`#/access/${one.name}`} aria-current=${one === shown ? "page" : undefined}>${one.word}</a></li>`)}</ul></nav>
    ${shown.action && may(shown.action) === false
      ? html`<p class="empty">This page needs the <code>${shown.action}</code> right.</p>`
      : html`<${shown.page} key=${shown.name} params=${params} go=${go} />`}`;
}
