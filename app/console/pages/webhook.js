/** A webhook: what it is told of, how its deliveries went, and once more. */

import { Copy, Loading, Mark, Trouble, Value, When, html } from "../parts.js";
import { useState } from "../vendor/hooks.js";
import { call, part, query } from "../api.js";
import { Confirm } from "../confirm.js";
import { Pages, Without } from "../listed.js";
import { useAgain, usePages, useRead } from "../read.js";
import { Secret } from "../secret.js";
import { counted, deliveryOf, hookOf } from "../words.js";

const PAGE = 50;
const OUTCOMES = ["waiting", "delivered", "given_up"];
/** Redelivered by one press, at most. */
const MOST = 100;

/** @param {{ hook: string, one: any, retry: (ids: string[]) => Promise<any>, tell: (text: string) => void }} props `hook`: its id */
function Delivery({ hook, one, retry, tell }) {
  const [open, turn] = useState(false);
  return html`<details onToggle=${(/** @type {any} */ event) => turn(event.currentTarget.open)}>
    <summary data-row><${When} at=${one.created_at} /> <strong>${one.type}</strong> <${Mark} of=${deliveryOf(one.progress)} /> <span class="muted">${counted(one.attempts, "attempt")}${one.status ? `, answered ${one.status}` : ""}${one.reason ? `: ${one.reason}` : ""}</span></summary>
    ${open &&
    html`<p class="muted"><span class="id">${one.event_id}</span>${one.attempted_at ? html`, last tried <${When} at=${one.attempted_at} />` : ""}${one.next_at ? html`, next about <${When} at=${one.next_at} />` : ""}</p>
      <p class="row">${one.progress !== "waiting" && html`<${Confirm} label="Redeliver …" title=${`Deliver ${one.event_id} again?`} text="The receiver gets it with the same id, by which it can tell that it has had it." does="Deliver it again" verb=${["webhooks", "redeliver", hook, one.event_id]} run=${() => retry([one.event_id])} done=${() => tell("It is delivered again.")} />`}${one.body?.data?.command?.id && html`<a class="button" href=${`#/commands/${part(one.body.data.command.id)}`}>Its command</a>`}</p>
      <${Value} value=${one.body} name="Body" />`}
  </details>`;
}

/** @param {{ hook: any, tell: (text: string) => void, show: (made: any) => void }} props */
function Changes({ hook, tell, show }) {
  const path = `v1/webhooks/${part(hook.id)}`;
  const [busy, work] = useState(false);
  const [error, fail] = useState(/** @type {any} */ (null));
  async function test() {
    if (busy) return;
    work(true);
    fail(null);
    try {
      const { delivered, status, reason } = await call("POST", `${path}/test`);
      tell(`The test was ${delivered ? "delivered" : "not delivered"}${status ? `: answered ${status}` : ""}${reason ? `: ${reason}` : ""}.`);
    } catch (problem) {
      fail(problem);
    }
    work(false);
  }
  const turn = (/** @type {boolean} */ enabled) => () => call("PATCH", path, { body: { enabled } });
  return html`<p class="row"><button type="button" aria-disabled=${busy} onClick=${test}>${busy ? "Testing …" : "Test"}</button>
      ${hook.enabled
        ? html`<${Confirm} key="off" label="Disable …" title=${`Tell ${hook.url} nothing?`} text="What waits for it is kept for a day, and delivered if it is enabled by then." does="Disable it" verb=${["webhooks", "update", hook.id, "--disabled"]} run=${turn(false)} done=${() => tell("It is disabled.")} />`
        : html`<${Confirm} key="on" label="Enable …" title=${`Tell ${hook.url} again?`} text="What has waited for less than a day is delivered." does="Enable it" verb=${["webhooks", "update", hook.id, "--enabled"]} run=${turn(true)} done=${() => tell("It is enabled.")} />`}
      <${Confirm} label="New secret …" title="Replace its secret?" text="For a day deliveries are signed with both, so that receivers that know either go on." does="Replace it" verb=${["webhooks", "rotate", hook.id]} run=${() => call("POST", `${path}/rotate`)} done=${(/** @type {any} */ made) => { tell("It has a new secret."); show(made); }} />
      <${Confirm} label="Delete …" title=${`Delete the webhook to ${hook.url}?`} text="Its deliveries go with it, also those that wait." does="Delete it" verb=${["webhooks", "delete", hook.id]} run=${() => call("DELETE", path)} done=${() => { location.hash = "#/webhooks"; }} />
      <${Copy} text=${hook.id} label="Copy id" /></p>
    ${error && html`<${Trouble} error=${error} />`}`;
}

/** @param {{ id: string, outcome: string, go: (some: Record<string, string>) => void, tell: (text: string) => void }} props */
function Deliveries({ id, outcome, go, tell }) {
  const path = `v1/webhooks/${part(id)}/deliveries`;
  const listed = usePages(`${path}${query({ outcome, limit: PAGE })}`, "deliveries");
  const { rows, loaded, error, again } = listed;
  useAgain([listed], rows.length <= PAGE);
  const failed = rows.filter((/** @type {any} */ one) => one.progress === "given_up").slice(0, MOST).map((/** @type {any} */ one) => one.event_id);
  /** @param {string[]} ids */
  async function retry(ids) {
    for (const one of ids) await call("POST", `${path}/${part(one)}/retry`);
    again();
  }
  return html`<section><h2>Deliveries</h2>
    <p class="row"><label>Outcome <select value=${outcome} onChange=${(/** @type {any} */ event) => go({ outcome: event.currentTarget.value })}><option value="">all</option>${OUTCOMES.map((one) => html`<option key=${one} value=${one}>${deliveryOf(one).word}</option>`)}</select></label><button type="button" onClick=${again}>Read again</button>${failed.length > 0 && html`<${Confirm} label=${`Redeliver ${failed.length} …`} title=${`Deliver ${counted(failed.length, "delivery", "deliveries")} again?`} text="Those that are shown here and were given up." does=${`Deliver ${failed.length} again`} run=${() => retry(failed)} done=${() => tell(`${counted(failed.length, "delivery", "deliveries")} again on the way.`)} />`}</p>
    ${error && html`<${Without} error=${error} again=${again} />`}
    ${!loaded && !error && html`<${Loading} rows=${4} />`}
    ${loaded && rows.length === 0 && html`<p class="empty">${outcome ? "No delivery stands so." : "Nothing was delivered within the last three days, and nothing waits."}</p>`}
    ${rows.length > 0 && html`<div class="values">${rows.map((/** @type {any} */ one) => html`<${Delivery} key=${one.event_id} hook=${id} one=${one} retry=${retry} tell=${tell} />`)}</div>`}
    <${Pages} listed=${listed} word="delivery" all="deliveries" /></section>`;
}

/** @param {{ id: string, params: URLSearchParams, go: (some: Record<string, string>) => void }} props */
export function Webhook({ id, params, go }) {
  const { found: hook, error, again } = useRead(`v1/webhooks/${part(id)}`);
  const [done, say] = useState("");
  const [made, show] = useState(/** @type {any} */ (null));
  const back = html`<p class="back"><a href="#/webhooks">‹ Webhooks</a></p>`;
  if (!hook) return html`${back}<h1 tabindex="-1" class="id">${id}</h1>${error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Loading} rows=${6} />`}`;
  /** @param {string} text */
  function tell(text) {
    say(text);
    again();
  }
  return html`${back}
    <h1 tabindex="-1">${hook.url}</h1>
    <p class="row facts"><${Mark} of=${hookOf(hook)} />${hook.disabled_at && html`<span class="muted">since <${When} at=${hook.disabled_at} />${hook.disabled_reason ? `: ${hook.disabled_reason}` : ""}</span>`}<span class="id muted">${hook.id}</span></p>
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    <${Changes} hook=${hook} tell=${tell} show=${show} />
    <p role="status">${done}</p>
    <dl class="checks wide">
      ${hook.queue
        ? html`<div><dt>Events of the queue</dt><dd><a href=${`#/queues/${part(hook.queue)}`}>${hook.queue}</a>, ${hook.batch ?? 32} at once at most</dd></div>`
        : html`<div><dt>Told of</dt><dd>${hook.events.map((/** @type {string} */ one) => html`<span class="chip" key=${one}>${one}</span> `)}</dd></div><div><dt>Devices</dt><dd>${hook.devices}</dd></div><div><dt>Methods</dt><dd>${hook.methods}</dd></div>`}
      <div><dt>Tenant</dt><dd>${hook.tenant || "none"}</dd></div>
      <div><dt>Made</dt><dd><${When} at=${hook.created_at} /></dd></div>
      <div><dt>Its secret is of</dt><dd><${When} at=${hook.rotated_at ?? hook.created_at} /></dd></div>
    </dl>
    <${Deliveries} id=${id} outcome=${params.get("outcome") ?? ""} go=${go} tell=${tell} />
    ${made && html`<${Secret} text=${made.secret} title="The new secret" hint=${html`The receiver verifies with it what <code>${made.id}</code> delivers.`} done=${() => show(null)} />`}`;
}
