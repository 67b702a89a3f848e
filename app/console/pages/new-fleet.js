/** The form of a new fleet run: it says what the run would be, before anybody can begin it. */

import { Copy, Loading, Trouble, html } from "../parts.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { call, parse, part, written } from "../api.js";
import { Confirm } from "../confirm.js";
import { postByCurl } from "../copy.js";
import { fieldsOf, noJson } from "../form.js";
import { keyed } from "../key.js";
import { Asked, emptyForm, focusFault, refusedOf, said } from "../params.js";
import { useRead } from "../read.js";
import { counted, many } from "../words.js";

const PATH = "v1/fleet-runs";
const ANY = "";

/** @param {string} text @param {RegExp} by */
function words(text, by) {
  return text.split(by).map((one) => one.trim()).filter(Boolean);
}

/** Which devices the fields name: what they say together. @param {any} form */
function targetsOf({ devices, labels, ofProfile }) {
  const pairs = words(labels, /[\s,]+/).map((one) => [one.split("=", 1)[0], one.slice(one.indexOf("=") + 1)]);
  const all = [
    ...(words(devices, /[\s,]+/).length ? [{ devices: words(devices, /[\s,]+/) }] : []),
    ...(pairs.length ? [{ labels: Object.fromEntries(pairs) }] : []),
    ...(ofProfile ? [{ profile: ofProfile }] : []),
  ];
  return all.length > 1 ? { all } : (all[0] ?? { devices: [] });
}

/** Waves such as `1, 10% bake 5m, 50% wait, rest`. @param {string} text */
function wavesOf(text) {
  return words(text, /,/).map((one) => {
    const [first, ...more] = one.split(/\s+/);
    const size = /^\d+$/.test(first) ? Number(first) : first;
    const bake = more.includes("bake") ? more[more.indexOf("bake") + 1] : undefined;
    const then = ["wait", "approve"].find((word) => more.includes(word));
    return more.length ? { size, ...(bake ? { bake } : {}), ...(then ? { then } : {}) } : size;
  });
}

/** Rules such as `5%` or `3`. @param {any} form */
function stopOf({ stop, after, then }) {
  const bound = stop.trim();
  if (!bound) return [];
  return [bound.endsWith("%") ? { share: bound, ...(after.trim() ? { after: Number(after) } : {}), then } : { count: Number(bound), then }];
}

/** @param {any} form @param {any} params @param {string} profile */
function bodyOf(form, params, profile) {
  const { timeout, hold, flight } = form;
  return {
    targets: targetsOf(form),
    command: { method: form.method, params, ...(profile ? { profile } : {}), ...(timeout.trim() ? { timeout: timeout.trim() } : {}), ...(hold.trim() ? { hold: hold.trim() } : {}) },
    waves: wavesOf(form.waves),
    stop: stopOf(form),
    ...(flight.trim() ? { in_flight: Number(flight) } : {}),
  };
}

/** @param {{ name: string, label: string, hint: string, form: any, change: (some: any) => void, example?: string, wide?: boolean }} props */
function Field({ name, label, hint, form, change, example = "", wide }) {
  const id = `run-${name}`;
  const more = { id, value: form[name], placeholder: example, "aria-describedby": `${id}-hint`, autocomplete: "off", spellcheck: false, onInput: (/** @type {any} */ event) => change({ [name]: event.currentTarget.value }) };
  return html`<div class="field"><label for=${id}>${label}</label>${wide ? html`<textarea rows="2" ...${more}></textarea>` : html`<input ...${more} />`}<p class="hint muted" id=${`${id}-hint`}>${hint}</p></div>`;
}

/** @param {{ dry: any, method: string, begin: () => Promise<any> }} props */
function Dry({ dry, method, begin }) {
  const shown = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => shown.current?.scrollIntoView({ block: "nearest" }), []); // the form is longer than most screens
  return html`<section ref=${shown} class="headline" role="status" aria-label="What it would be">
    <p class="sentence">It would send <code>${method}</code> to <strong>${counted(dry.total, "device")}</strong>, in ${counted(dry.waves.length, "wave")} of ${dry.waves.map(many).join(", ")}.</p>
    <details><summary>${dry.total > dry.devices.length ? `The first ${many(dry.devices.length)} devices` : "The devices"}</summary><p>${dry.devices.map((/** @type {string} */ one) => html`<span class="chip" key=${one}>${one}</span> `)}</p></details>
    <p class="row"><${Confirm} label="Begin …" title=${`Send ${method} to ${counted(dry.total, "device")}?`} text="The devices are those that fit when it begins. It can be paused and aborted; what devices have been told cannot be taken back." does=${`Begin on ${counted(dry.total, "device")}`} run=${begin} done=${(/** @type {any} */ run) => { location.hash = `#/fleets/${part(run.id)}`; }} /></p>
  </section>`;
}

/** @param {{ profiles: any[], usual: string }} props */
function Form({ profiles, usual }) {
  const [profile, pick] = useState(usual);
  const catalogue = useRead(`v1/profiles/${part(profile)}/methods`);
  const methods = catalogue.found?.methods ?? [];
  const [form, set] = useState({ ...emptyForm([]), of: "", devices: "", labels: "", ofProfile: ANY, waves: "1, 10%, rest", stop: "5%", after: "", then: "pause", flight: "", timeout: "", hold: "", whole: false, document: "" });
  const [shown, show] = useState(false);
  const [dry, look] = useState(/** @type {any} */ (null));
  const [error, fail] = useState(/** @type {any} */ (null));
  const [busy, work] = useState(false);
  const keyOf = useRef(keyed());
  const method = methods.find((one) => one.name === form.method) ?? null;
  const fields = method ? fieldsOf(method.params) : null;
  const { params, faults } = said(form, method, fields);
  const seen = [...(shown ? faults : []), ...refusedOf(error)];
  const change = (/** @type {any} */ some) => { set({ ...form, ...some }); fail(null); look(null); };
  useEffect(() => {
    if (catalogue.found) set((before) => ({ ...before, ...emptyForm(methods), of: profile }));
  }, [catalogue.found]);
  const fault = form.whole ? noJson(form.document) : "";
  const text = () => (form.whole ? form.document : written(bodyOf(form, params, profile), 2));
  const named = form.whole && !fault ? (parse(form.document)?.command?.method ?? "") : form.method;

  /** @param {any} event */
  async function submit(event) {
    event.preventDefault();
    show(true);
    if (busy) return;
    if (form.whole ? fault : !form.method || faults.length) return focusFault(event.currentTarget, form.whole ? "json" : form.method);
    work(true);
    fail(null);
    try {
      look(await call("POST", `${PATH}?dry_run=true`, { text: text() }));
    } catch (problem) {
      look(null);
      fail(problem);
    }
    work(false);
  }
  const begin = () => call("POST", PATH, { text: text(), headers: { "Idempotency-Key": keyOf.current(text()) } });
  const more = { form, change };
  return html`<form class="sending" onSubmit=${submit} noValidate>
    <p class="row"><label><input type="checkbox" checked=${form.whole} onChange=${() => change(form.whole ? { whole: false } : { whole: true, document: text() })} /> all of it as JSON</label></p>
    ${form.whole
      ? html`<div class="field"><label for="run-json">The run as JSON</label><textarea id="run-json" rows="18" spellcheck=${false} value=${form.document} aria-invalid=${fault ? "true" : undefined} aria-describedby="run-json-hint" onInput=${(/** @type {any} */ event) => change({ document: event.currentTarget.value })}></textarea><p class="hint" id="run-json-hint">${fault && html`<span class="state bad"><span class="icon" aria-hidden="true">✖</span>${fault}</span>`}</p></div>`
      : html`<fieldset class="params"><legend>Which devices</legend>
          <${Field} ...${more} name="devices" label="Devices" hint="Ids, and patterns where devices are on record, such as dock-*." example="dock-1 dock-2" wide />
          <${Field} ...${more} name="labels" label="Labels" hint="Of devices on record. All of them must fit." example="site=north" />
          <div class="field"><label for="run-of">Their profile</label><select id="run-of" value=${form.ofProfile} onChange=${(/** @type {any} */ event) => change({ ofProfile: event.currentTarget.value })}><option value="">any</option>${profiles.map((one) => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}</select></div>
        </fieldset>
        <div class="field"><label for="profile">Send by the profile</label><select id="profile" value=${profile} onChange=${(/** @type {any} */ event) => { pick(event.currentTarget.value); look(null); }}>${profiles.map((one) => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}</select></div>
        ${catalogue.error && html`<${Trouble} error=${catalogue.error} again=${catalogue.again} />`}
        ${form.of === profile ? html`<${Asked} form=${form} change=${change} methods=${methods} openness=${catalogue.found?.unknown ?? "closed"} method=${method} fields=${fields} params=${params} faults=${faults} seen=${seen} />` : html`<${Loading} rows=${4} />`}
        <fieldset class="params"><legend>How it goes</legend>
          <${Field} ...${more} name="waves" label="Waves" hint="Numbers, shares and rest, one after the other. Behind each may stand “wait”, until a person resumes, “approve”, until another person does, or “bake 5m”." />
          <${Field} ...${more} name="stop" label="Stop when so many have failed" hint="A share such as 5%, or a number. Empty: never." />
          <div class="row"><label>not before so many have ended <input class="short" inputmode="numeric" placeholder="20" value=${form.after} onInput=${(/** @type {any} */ event) => change({ after: event.currentTarget.value })} /></label>
            <label>then <select value=${form.then} onChange=${(/** @type {any} */ event) => change({ then: event.currentTarget.value })}><option value="pause">pause</option><option value="abort">abort</option></select></label></div>
          <${Field} ...${more} name="flight" label="At once, at most" hint="Targets in flight, 1 to 5000; 100 if it is left out." />
          <${Field} ...${more} name="timeout" label="Timeout of each command" hint="10s if it is left out." />
          <${Field} ...${more} name="hold" label="How long a device may be away" hint="From when its turn comes; 5m if it is left out." />
        </fieldset>`}
    ${error && html`<${Trouble} error=${error} />`}
    <p class="row"><button type="submit" class="chief" aria-disabled=${busy}>${busy ? "Looking …" : "See what it would be"}</button><${Copy} text=${() => postByCurl(PATH, text())} label="Copy as curl" /><${Copy} text=${text} label="JSON" /></p>
    ${dry && html`<${Dry} dry=${dry} method=${named} begin=${begin} />`}
  </form>`;
}

export function NewFleet() {
  const { found, error, again } = useRead("v1/profiles");
  return html`<p class="back"><a href="#/fleets">‹ Fleets</a></p>
    <h1 tabindex="-1">New fleet run</h1>
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${!error && !found && html`<${Loading} rows=${6} />`}
    ${found && html`<${Form} profiles=${found.profiles} usual=${found.default} />`}`;
}
