/** Sends a command to a device, by a form that the profile's catalogue makes. */

import { Copy, Loading, Trouble, html } from "../parts.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { call, part, query } from "../api.js";
import { sendByCommandLine, sendByCurl, sendByPython } from "../copy.js";
import { faultsOf, fieldsOf, hintOf, noJson, paramsOf, typedOf } from "../form.js";
import { parse, written } from "../json.js";
import { useRead } from "../read.js";

const KEY_BYTES = 16;
const HIGH = "high";

/** A key that makes a repetition of a call no second call; pages of plain HTTP have no `randomUUID`. */
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(KEY_BYTES))].map((one) => one.toString(16).padStart(2, "0")).join("");
}

/** @param {{ field: any, value: string, fault: string, change: (text: string) => void }} props */
function FormField({ field, value, fault, change }) {
  const { name, kind, schema, needed } = field;
  const id = `param-${name}`;
  const hint = hintOf(field);
  const more = { id, name, value, required: needed, "aria-describedby": `${id}-hint`, "aria-invalid": fault ? "true" : undefined };
  const typed = (/** @type {any} */ event) => change(event.currentTarget.value);
  const options = kind === "boolean" ? [true, false] : kind === "choice" ? schema.enum : null;
  return html`<div class="field">
    <label for=${id}><code>${name}</code>${needed ? "" : html` <span class="muted">may be left out</span>`}</label>
    ${options
      ? html`<select ...${more} onChange=${typed}><option value=""></option>${options.map((/** @type {any} */ one) => html`<option key=${written(one)} value=${written(one)}>${typeof one === "string" ? one : written(one)}</option>`)}</select>`
      : kind === "json"
        ? html`<textarea ...${more} rows="3" spellcheck=${false} onInput=${typed}></textarea>`
        : html`<input ...${more} inputmode=${kind === "string" ? undefined : "decimal"} autocomplete="off" spellcheck=${false} onInput=${typed} />`}
    <p class="hint" id=${`${id}-hint`}>${fault ? html`<span class="state bad"><span class="icon" aria-hidden="true">✖</span>${fault}</span> ` : ""}<span class="muted">${hint}</span></p>
  </div>`;
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

/** The params as the form has them, and what is wrong with them. @param {any} form @param {any} method @param {any[] | null} fields */
function said(form, method, fields) {
  if (fields && !form.asJson) {
    const { params, faults } = paramsOf(fields, form.typed);
    const wrong = faults.map((one) => one.path);
    const more = faultsOf(method.params, params).filter((one) => !wrong.includes(one.path.split(".")[0]));
    return { params, faults: [...faults, ...more] };
  }
  const text = form.text.trim() || "{}";
  const fault = noJson(text);
  if (fault) return { params: {}, faults: [{ path: "", said: fault }] };
  const params = parse(text);
  return { params, faults: method?.params ? faultsOf(method.params, params) : [] };
}

/** @param {any[]} faults @param {string} name */
function faultOf(faults, name) {
  return faults.filter((one) => one.path === name || one.path.startsWith(`${name}.`)).map((one) => (one.path === name ? one.said : `${one.path}: ${one.said}`)).join("; ");
}

/** What the node says is wrong, at the field that it names. @param {any} error */
function refusedOf(error) {
  if (error?.status !== 422 || !Array.isArray(error.errors)) return [];
  return error.errors.filter((/** @type {any} */ one) => String(one.field).startsWith("params")).map((/** @type {any} */ one) => ({ path: String(one.field).replace(/^params\.?/, ""), said: String(one.reason) }));
}

/** @param {{ device: string, profile: any, methods: any[], openness: string, given: any }} props */
function Form({ device, profile, methods, openness, given }) {
  const first = given?.method ?? methods[0]?.name ?? "";
  const [form, set] = useState({ method: first, other: !methods.some((one) => one.name === first), typed: /** @type {any} */ ({}), text: given ? written(given.params ?? {}, 2) : "{}", asJson: given !== null, timeout: "", oneWay: false });
  const [shown, show] = useState(false);
  const [error, fail] = useState(/** @type {any} */ (null));
  const [busy, work] = useState(false);
  const sent = useRef({ body: "", key: "" });
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const method = methods.find((one) => one.name === form.method) ?? null;
  const fields = method ? fieldsOf(method.params) : null;
  const { params, faults } = said(form, method, fields);
  const seen = [...(shown ? faults : []), ...refusedOf(error)];
  const change = (/** @type {any} */ some) => { set({ ...form, ...some }); fail(null); };
  const pick = (/** @type {any} */ event) => change({ method: event.currentTarget.value, other: event.currentTarget.value === "", typed: {} });
  const request = { device_id: device, method: form.method, params, profile };

  async function send() {
    const body = { method: form.method, profile, params, ...(form.timeout.trim() ? { timeout: form.timeout.trim() } : {}), ...(form.oneWay ? { one_way: true } : {}) };
    const text = written(body);
    if (text !== sent.current.body) sent.current = { body: text, key: newKey() };
    work(true);
    fail(null);
    try {
      const made = await call("POST", `v1/devices/${part(device)}/commands`, { text, headers: { Prefer: "respond-async", "Idempotency-Key": sent.current.key } });
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
    if (!form.method) document.querySelector("#method-other, #method")?.focus();
    else if (faults.length) event.currentTarget.querySelector("[aria-invalid], input:invalid, select:invalid, textarea:invalid")?.focus();
    else if (method?.danger === HIGH) box.current?.showModal();
    else send();
  }
  function turn() {
    if (!form.asJson) change({ asJson: true, text: written(params, 2) });
    else change({ asJson: false, typed: (fields && faults.every((one) => one.path !== "") && typedOf(fields, params)) || form.typed });
  }

  return html`<form class="sending" onSubmit=${submit} noValidate>
    <div class="field"><label for="method">Method</label>
      ${methods.length > 0 && html`<select id="method" value=${form.other ? "" : form.method} aria-describedby="method-hint" onChange=${pick}>${methods.map((one) => html`<option key=${one.name} value=${one.name}>${one.danger === HIGH ? "▲ " : ""}${one.name}${one.title ? ` — ${one.title}` : ""}</option>`)}${openness !== "closed" && html`<option value="">another method …</option>`}</select>`}
      ${form.other && html`<input id=${methods.length ? "method-other" : "method"} aria-label=${methods.length ? "Name of the method" : undefined} required maxlength="128" value=${form.method} autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => change({ method: event.currentTarget.value.trim() })} />`}
      <p class="hint muted" id="method-hint">${method?.danger === HIGH && html`<span class="state warn"><span class="icon" aria-hidden="true">▲</span>a mistake may do great harm</span> `}${method ? [method.description, method.usual && `usually takes ${method.usual}`].filter(Boolean).join(". ") : "The catalogue does not know it. The node judges its name alone."}</p>
    </div>
    <fieldset class="params"><legend>Params</legend>
      ${fields && html`<p class="row"><label><input type="checkbox" checked=${form.asJson} onChange=${turn} /> as JSON</label></p>`}
      ${fields && !form.asJson
        ? html`${fields.length === 0 && html`<p class="muted">It takes none.</p>`}${fields.map((one) => html`<${FormField} key=${one.name} field=${one} value=${form.typed[one.name] ?? ""} fault=${faultOf(seen, one.name)} change=${(/** @type {string} */ text) => change({ typed: { ...form.typed, [one.name]: text } })} />`)}`
        : html`<div class="field"><label for="params-json" class="offstage">Params as JSON</label><textarea id="params-json" rows="8" spellcheck=${false} value=${form.text} aria-describedby="params-hint" aria-invalid=${seen.length ? "true" : undefined} onInput=${(/** @type {any} */ event) => change({ text: event.currentTarget.value })}></textarea></div>`}
      <p id="params-hint" class="hint" role="status">${seen.filter((one) => form.asJson || !fields || !fields.some((field) => one.path.split(".")[0] === field.name)).map((one) => html`<span class="state bad" key=${one.path + one.said}><span class="icon" aria-hidden="true">✖</span>${one.path ? `${one.path}: ` : ""}${one.said}</span> `)}</p>
    </fieldset>
    <div class="row"><label>Timeout <input class="short" value=${form.timeout} placeholder="10s" autocomplete="off" onInput=${(/** @type {any} */ event) => change({ timeout: event.currentTarget.value })} /></label>
      <label><input type="checkbox" checked=${form.oneWay} onChange=${() => change({ oneWay: !form.oneWay })} /> one way: expect no answer</label></div>
    ${error && html`<${Trouble} error=${error} />`}
    <p class="row"><button type="submit" class="chief" disabled=${busy}>${busy ? "Sending …" : "Send"}</button>
      <${Copy} text=${() => sendByCurl(request)} label="Copy as curl" /><${Copy} text=${() => sendByPython(request)} label="Python" /><${Copy} text=${() => sendByCommandLine(request)} label="CLI" /></p>
    ${method && html`<${Sure} method=${method} device=${device} text=${written(params, 2)} box=${box} send=${send} />`}
  </form>`;
}

/** @param {{ device: string, params: URLSearchParams }} props */
export function Send({ device, params }) {
  const again = params.get("again");
  const profiles = useRead("v1/profiles");
  const before = useRead(again ? `v1/commands/${part(again)}` : null);
  const [record, know] = useState(/** @type {any} */ (undefined));
  useEffect(() => {
    call("GET", `v1/devices/${part(device)}`).then(know, () => know(null)); // without a record it goes by the default
  }, [device]);
  const profile = params.get("profile") ?? before.found?.profile ?? record?.profile ?? profiles.found?.default ?? null;
  const ready = profiles.found && record !== undefined && (!again || before.found);
  const methods = useRead(ready && profile ? `v1/profiles/${part(profile)}/methods` : null);
  const error = profiles.error ?? before.error ?? methods.error;
  const retry = () => [profiles, before, methods].forEach((one) => one.error && one.again());
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
