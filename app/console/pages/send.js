/** Sends a command to a device, by a form that the profile's catalogue makes. */

import { Copy, Loading, Trouble, html } from "../parts.js";
import { useRef, useState } from "../vendor/hooks.js";
import { call, part, query, written } from "../api.js";
import { bodyOf, sendByCommandLine, sendByCurl, sendByPython } from "../copy.js";
import { fieldsOf } from "../form.js";
import { keyed } from "../key.js";
import { Asked, HIGH, emptyForm, focusFault, refusedOf, said } from "../params.js";
import { passing, useRead } from "../read.js";

/** The fate of a command whose device is not there. @type {Record<string, string>} */
const AWAY = { "": "as the node decides", fail: "do not send it", send: "send it all the same", hold: "wait until it is back" };

/** What a form asks for besides method and params; nothing where the node is to decide. @param {any} form @returns {import("../copy.js").Wishes} */
function wishesOf({ timeout, oneWay, away, hold }) {
  return {
    ...(timeout.trim() ? { timeout: timeout.trim() } : {}),
    ...(oneWay ? { one_way: true } : {}),
    ...(away === "hold" ? { hold: hold.trim() } : away ? { if_offline: away } : {}),
  };
}

/** @param {{ method: any, device: string, text: string, box: any, send: () => void }} props */
function Sure({ method, device, text, box, send }) {
  return html`<dialog ref=${box} aria-labelledby="sure-title">
    <h2 id="sure-title">${method.title || method.name} on ${device}?</h2>
    <p>The profile says that a mistake with <code>${method.name}</code> may do great harm.</p>
    <pre tabindex="0" role="region" aria-label="The params"><code>${text}</code></pre>
    <p class="row"><button type="button" autofocus onClick=${() => box.current?.close()}>No</button><button type="button" class="danger" onClick=${() => { box.current?.close(); send(); }}>Send it to ${device}</button></p>
  </dialog>`;
}

/** @param {{ device: string, profile: any, methods: any[], openness: string, given: any }} props */
function Form({ device, profile, methods, openness, given }) {
  const [form, set] = useState({ ...emptyForm(methods, given), timeout: "", oneWay: false, away: "", hold: "8h" });
  const [shown, show] = useState(false);
  const [error, fail] = useState(/** @type {any} */ (null));
  const [busy, work] = useState(false);
  const keyOf = useRef(keyed());
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const method = methods.find((one) => one.name === form.method) ?? null;
  const fields = method ? fieldsOf(method.params) : null;
  const { params, faults } = said(form, method, fields);
  const seen = [...(shown ? faults : []), ...refusedOf(error)];
  const change = (/** @type {any} */ some) => { set({ ...form, ...some }); fail(null); };
  const request = { device_id: device, method: form.method, params, profile, wishes: wishesOf(form) };

  async function send() {
    const text = bodyOf(request);
    work(true);
    fail(null);
    try {
      const made = await call("POST", `v1/devices/${part(device)}/commands`, { text, headers: { Prefer: "respond-async", "Idempotency-Key": keyOf.current(text) } });
      location.hash = `#/commands/${made.id}`;
    } catch (problem) {
      fail(problem);
      work(false);
    }
  }
  /** @param {any} event */
  function submit(event) {
    event.preventDefault();
    show(true);
    if (busy) return;
    if (!form.method || faults.length) focusFault(event.currentTarget, form.method);
    else if (method?.danger === HIGH) box.current?.showModal();
    else send();
  }
  return html`<form class="sending" onSubmit=${submit} noValidate>
    <${Asked} form=${form} change=${change} methods=${methods} openness=${openness} method=${method} fields=${fields} params=${params} faults=${faults} seen=${seen} />
    <div class="row"><label>Timeout <input class="short" value=${form.timeout} placeholder="10s" autocomplete="off" onInput=${(/** @type {any} */ event) => change({ timeout: event.currentTarget.value })} /></label>
      <label><input type="checkbox" checked=${form.oneWay} onChange=${() => change({ oneWay: !form.oneWay })} /> one way: expect no answer</label>
      <label>If it is away <select value=${form.away} onChange=${(/** @type {any} */ event) => change({ away: event.currentTarget.value })}>${Object.entries(AWAY).map(([value, word]) => html`<option key=${value} value=${value}>${word}</option>`)}</select></label>
      ${form.away === "hold" && html`<label>for at most <input class="short" value=${form.hold} placeholder="8h" autocomplete="off" onInput=${(/** @type {any} */ event) => change({ hold: event.currentTarget.value })} /></label>`}</div>
    ${error && html`<${Trouble} error=${error} />`}
    <p class="row"><button type="submit" class="chief" aria-disabled=${busy}>${busy ? "Sending …" : "Send"}</button>
      <${Copy} text=${() => sendByCurl(request)} label="Copy as curl" /><${Copy} text=${() => sendByPython(request)} label="Python" /><${Copy} text=${() => sendByCommandLine(request)} label="CLI" /></p>
    ${method && html`<${Sure} method=${method} device=${device} text=${written(params, 2)} box=${box} send=${send} />`}
  </form>`;
}

/** @param {{ device: string, params: URLSearchParams }} props */
export function Send({ device, params }) {
  const again = params.get("again");
  const profiles = useRead("v1/profiles");
  const before = useRead(again ? `v1/commands/${part(again)}` : null);
  const record = useRead(`v1/devices/${part(device)}`);
  const judged = record.found || (record.error && !passing(record.error)); // without a record it goes by the default
  const profile = params.get("profile") ?? before.found?.profile ?? record.found?.profile ?? profiles.found?.default ?? null;
  const ready = profiles.found && judged && (!again || before.found);
  const methods = useRead(ready && profile ? `v1/profiles/${part(profile)}/methods` : null);
  const error = profiles.error ?? before.error ?? methods.error ?? (judged ? null : record.error);
  const retry = () => [profiles, before, methods, record].forEach((one) => one.error && one.again());
  const pick = (/** @type {any} */ event) => {
    location.replace(`#/devices/${part(device)}/send${query({ profile: event.currentTarget.value, again })}`);
  };
  return html`<p class="back"><a href=${`#/devices/${part(device)}`}>‹ ${device}</a></p>
    <h1 tabindex="-1">Send to ${device}</h1>
    ${error && html`<${Trouble} error=${error} again=${retry} />`}
    ${!error && !methods.found && html`<${Loading} rows=${5} />`}
    ${profiles.found && profile && html`<div class="field"><label for="profile">Profile</label><select id="profile" value=${profile} onChange=${pick}>${profiles.found.profiles.map((/** @type {any} */ one) => html`<option key=${one.name} value=${one.name}>${one.name}${one.description ? ` — ${one.description}` : ""}</option>`)}</select></div>`}
    ${methods.found && html`<${Form} key=${`${device} ${profile} ${again}`} device=${device} profile=${profile} methods=${methods.found.methods} openness=${methods.found.unknown} given=${again ? before.found : null} />`}`;
}
