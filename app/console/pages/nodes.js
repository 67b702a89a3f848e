/** Nodes: which is full, draining or not ready, and of which version. */

import { Loading, Trouble, html } from "../parts.js";
import { useOverview } from "../read.js";
import { checkOf, counted, isWell } from "../words.js";

/** @param {{ node: any }} props */
function Node({ node }) {
  const older = node.ready === null;
  const tone = node.ready ? "good" : older ? "warn" : "bad";
  const word = !node.answered ? "did not answer" : older ? "older" : node.ready ? "ready" : node.state === "ready" ? "not ready" : node.state;
  const full = node.fullest ? Math.round((100 * node.fullest.size) / Math.max(node.fullest.bound, 1)) : 0;
  return html`<article class=${`card ${tone}`} aria-label=${`Node ${node.node_id}`}>
    <h2>${node.node_id} <span class=${`state ${tone}`}><span class="icon" aria-hidden="true">${node.ready ? "✔" : older ? "▲" : "✖"}</span>${word}</span></h2>
    ${older && html`<p>It is of version 0.2.0, which answers and says nothing of itself here: look at its own <code>/readyz</code>.</p>`}
    ${node.answered &&
    !older &&
    html`<p class="muted">version ${node.version}, ${counted(node.open, "open command")}${node.fullest ? `, fullest: ${node.fullest.name} ${node.fullest.size} of ${node.fullest.bound} (${full} %)` : ""}</p>
      <dl class="checks">
        ${Object.entries(node.checks ?? {}).map(
          ([name, said]) => html`<div key=${name} class=${isWell(said) ? (said === "ok" ? "good" : "warn") : "bad"}>
            <dt>${checkOf(name)}</dt>
            <dd><span class="icon" aria-hidden="true">${isWell(said) ? (said === "ok" ? "✔" : "▲") : "✖"}</span>${said}</dd>
          </div>`,
        )}
      </dl>`}
    ${!node.answered && html`<p>It has a lease and did not answer within half a second: it is frozen, overloaded or cut off.</p>`}
  </article>`;
}

export function Nodes() {
  const { overview, error, again } = useOverview();
  const head = html`<h1 tabindex="-1">Nodes</h1>`;
  if (!overview) return html`${head}${error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Loading} rows=${4} />`}`;
  if (!overview.nodes) return html`${head}<p class="empty">This page needs the <code>nodes</code> right without a tenant.</p>`;
  return html`${head}
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${!overview.complete && html`<p class="note">The store did not say which nodes there are: shown is the node that answered.</p>`}
    <div class="cards">${overview.nodes.map((/** @type {any} */ node) => html`<${Node} key=${node.node_id} node=${node} />`)}</div>`;
}
