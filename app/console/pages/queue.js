/** A queue: how it stands, who takes from it, its dead letters, and how it is declared. */

import { Age, Copy, Loading, Trouble, Value, When, html } from "../parts.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { call, part } from "../api.js";
import { Confirm } from "../confirm.js";
import { Pages } from "../listed.js";
import { useAgain, usePages, useRead } from "../read.js";
import { may } from "../person.js";
import { Standing } from "../standing.js";
import { counted, many } from "../words.js";

const LETTERS = 20;
const SPANS = { "": "all", "-1h": "of the last hour", "-24h": "of the last day" };

/** @type {[string, string][]} */
const COUNTS = [
  ["ready", "waiting"],
  ["lent", "lent"],
  ["later", "to be tried again"],
  ["held_back", "behind one of a device"],
  ["dead", "dead letters"],
  ["done", "done"],
  ["retried", "tried again"],
  ["delivered", "deliveries"],
  ["delivered_again", "of these, not the first"],
  ["expired", "too old, or gone from the log"],
  ["missed", "of these, never looked at"],
];

/** @param {{ counts: any }} props */
function Counts({ counts }) {
  return html`<dl class="checks wide">
    ${COUNTS.map(([name, word]) => html`<div key=${name}><dt>${word}</dt><dd>${many(counts[name])}</dd></div>`)}
    <div><dt>the oldest waits for</dt><dd>${counts.oldest_at ? html`<${Age} at=${counts.oldest_at} />` : "none waits"}</dd></div>
    <div><dt>somebody last took</dt><dd>${counts.asked_at ? html`<${When} at=${counts.asked_at} />` : "nobody has yet"}</dd></div>
  </dl>`;
}

/** @param {{ read: any }} props */
function Consumers({ read }) {
  const { found, error, again } = read;
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  if (!found) return html`<${Loading} rows=${2} />`;
  if (!found.consumers.length) return html`<p class="empty">Nobody took within the last minute.</p>`;
  return html`<ul class="plain">${found.consumers.map((/** @type {any} */ one) => html`<li key=${one.consumer}>${one.consumer || html`<span class="muted">without a name</span>`} <span class="muted">took <${Age} at=${one.asked_at} /> ago</span></li>`)}</ul>`;
}

/** @param {{ one: any }} props */
function Letter({ one }) {
  const [open, turn] = useState(false);
  const { event } = one;
  return html`<details onToggle=${(/** @type {any} */ toggled) => turn(toggled.currentTarget.open)}>
    <summary data-row><${When} at=${one.at} /> <strong>${one.reason}</strong> <code>${event.topic}</code></summary>
    ${open &&
    html`<p class="muted">${counted(one.deliveries, "delivery", "deliveries")}${one.consumer ? html`, the last one to <strong>${one.consumer}</strong>` : ""}; from ${one.database}, said <${When} at=${event.at} />${event.device_id ? html` by <a href=${`#/devices/${part(event.device_id)}`}>${event.device_id}</a>` : ""}</p>
      <${Value} value=${event.data_base64 ?? event.data} name=${`Event ${event.position}`} />`}
  </details>`;
}

/** @param {{ name: string, turn: number }} props */
function Letters({ name, turn }) {
  const [span, pick] = useState("");
  const listed = usePages(`v1/queues/${part(name)}/dead?limit=${LETTERS}${span ? `&since=${span}` : ""}`, "letters");
  const { rows, error, loaded, again } = listed;
  useEffect(() => {
    if (turn) again();
  }, [turn]);
  return html`<p class="row"><label>Show <select value=${span} onChange=${(/** @type {any} */ event) => pick(event.currentTarget.value)}>${Object.entries(SPANS).map(([value, word]) => html`<option key=${value} value=${value}>${word}</option>`)}</select></label></p>
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${!loaded && !error && html`<${Loading} rows=${3} />`}
    ${loaded && rows.length === 0 && html`<p class="empty">${span ? "No event has become a dead letter in this time." : "No event has become a dead letter."}</p>`}
    ${rows.length > 0 && html`<div class="values">${rows.map((/** @type {any} */ one) => html`<${Letter} key=${one.position} one=${one} />`)}</div>
      <p class="muted">The oldest are first. Letters stay in the log when they are delivered again.</p>`}
    <${Pages} listed=${listed} word="letter" />`;
}

/** @param {{ queue: any }} props */
function Declared({ queue }) {
  const labels = Object.entries(queue.labels);
  return html`<h3 class="offstage">Routes</h3>
    <ul class="plain">${queue.routes.map((/** @type {any} */ one) => html`<li key=${JSON.stringify(one)}>${one.exchange ? html`keys <code>${one.key}</code> of the exchange ${one.exchange}` : html`<code>${one.topic}</code> of ${one.database}`}</li>`)}</ul>
    <dl class="checks wide">
      <div><dt>Loan</dt><dd>${queue.loan}</dd></div>
      <div><dt>Tried again after</dt><dd>${queue.retry.join(", ") || "never"}</dd></div>
      <div><dt>Deliveries at most</dt><dd>${queue.max_deliveries || "without an end"}</dd></div>
      <div><dt>Order</dt><dd>${queue.order === "device" ? "of each device" : "none"}</dd></div>
      <div><dt>Left out when older than</dt><dd>${queue.ttl ?? "never"}</dd></div>
      <div><dt>Held until as old as</dt><dd>${queue.delay}</dd></div>
      <div><dt>Consumers</dt><dd>${queue.single ? "one at a time" : "any number"}</dd></div>
      <div><dt>Ends when unused for</dt><dd>${queue.ends_after ?? "never"}</dd></div>
      <div><dt>Labels</dt><dd>${labels.length ? labels.map(([name, value]) => html`<span class="chip" key=${name}>${name}=${value}</span> `) : "none"}</dd></div>
      <div><dt>Tenant</dt><dd>${queue.tenant || "none"}</dd></div>
      <div><dt>Declared</dt><dd><${When} at=${queue.created_at} /></dd></div>
    </dl>`;
}

/** What changes a queue, each asked again. @param {{ queue: any, tell: (done: string) => void }} props */
function Changes({ queue, tell }) {
  const { name, counts } = queue;
  const [to, aim] = useState("-10m");
  const post = (/** @type {string} */ what, /** @type {any} */ body = undefined) => call("POST", `v1/queues/${part(name)}/${what}`, { body });
  return html`<${Confirm} label="Redrive …" title=${`Deliver the dead letters of ${name} again?`} text="Consumers get the original events, and their deliveries are counted anew. Letters that were delivered again before are not." does="Deliver them again" verb=${["queue", "redrive", name]} run=${() => post("redrive", {})} done=${() => tell("The dead letters are in the queue again.")} />
    <${Confirm} label="Rewind …" title=${`Let ${name} go on elsewhere?`} text="Events after that instant are delivered, also those that were settled. Events before it are not. What consumers have now is over." does="Rewind it" verb=${["queue", "rewind", name, "--to", to.trim()]} run=${() => post("rewind", { to: to.trim() })} done=${() => tell(`The queue goes on at ${to.trim()}.`)}>
      <div class="field"><label for="rewind-to">Go on at</label><input id="rewind-to" value=${to} autocomplete="off" spellcheck=${false} aria-describedby="rewind-hint" onInput=${(/** @type {any} */ event) => aim(event.currentTarget.value)} /><p class="hint muted" id="rewind-hint">How long ago, such as -10m, an instant such as 2026-11-21T10:00:00Z, or now.</p></div>
    <//>
    <${Confirm} label="Purge …" title=${`Empty ${name}?`} text=${`What waits now (${many(counts.ready + counts.later + counts.held_back)}) and what is lent (${many(counts.lent)}) is not delivered any more. It stays in the log, and a rewind brings it back.`} does="Empty it" verb=${["queue", "purge", name]} run=${() => post("purge")} done=${() => tell("Nothing waits in the queue any more.")} />`;
}

/** @param {{ name: string }} props */
export function Queue({ name }) {
  const read = useRead(`v1/queues/${part(name)}`);
  const consumers = useRead(read.found ? `v1/queues/${part(name)}/consumers` : null);
  const [done, say] = useState("");
  const [turn, anew] = useState(0);
  const { found, error } = read;
  function refresh() {
    read.again();
    consumers.again();
  }
  useAgain([read, consumers]);
  /** @param {string} text */
  function tell(text) {
    say(text);
    anew(turn + 1);
    refresh();
  }
  return html`<p class="back"><a href="#/queues">‹ Queues</a></p>
    <h1 tabindex="-1">${name}</h1>
    ${error && html`<${Trouble} error=${error} again=${refresh} what=${error.status === 404 ? error.title : undefined} />`}
    ${!found && !error && html`<${Loading} rows=${8} />`}
    ${found &&
    html`<p class="row facts"><${Standing} counts=${found.counts} /></p>
      <p class="row">${may("queues") && html`<${Changes} queue=${found} tell=${tell} />`}<button type="button" onClick=${refresh}>Read again</button><${Copy} text=${name} label="Copy name" /></p>
      <p role="status">${done}</p>
      <section><h2>How it stands</h2><${Counts} counts=${found.counts} /></section>
      <section><h2>Consumers</h2><${Consumers} read=${consumers} /></section>
      <section><h2>Dead letters</h2><${Letters} name=${name} turn=${turn} /></section>
      <section><h2>How it is declared</h2><${Declared} queue=${found} /></section>`}`;
}
