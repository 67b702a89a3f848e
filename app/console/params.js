/** The part of a form that says which method, and with which params: the catalogue makes its fields. */

import { html } from "./parts.js";
import { faultsOf, hintOf, noJson, paramsOf, typedOf } from "./form.js";
import { parse, written } from "./api.js";

/** The danger of a method that is asked for twice. */
export const HIGH = "high";

/** What such a form holds at first. @param {any[]} methods @param {any} [given] a command that it is like */
export function emptyForm(methods, given = null) {
  const method = given?.method ?? methods[0]?.name ?? "";
  return { method, other: !methods.some((one) => one.name === method), typed: /** @type {any} */ ({}), text: given ? written(given.params ?? {}, 2) : "{}", asJson: given !== null };
}

/** Leads to what is wrong. @param {any} form the element @param {string} method */
export function focusFault(form, method) {
  const at = method ? form.querySelector("[aria-invalid], input:invalid, select:invalid, textarea:invalid") : form.querySelector("#method-other, #method");
  at?.focus();
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

/** The params as the form has them, and what is wrong with them. @param {any} form @param {any} method @param {any[] | null} fields */
export function said(form, method, fields) {
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
export function refusedOf(error) {
  if (error?.status !== 422 || !Array.isArray(error.errors)) return [];
  return error.errors.filter((/** @type {any} */ one) => /^(command\.)?params/.test(one.field)).map((/** @type {any} */ one) => ({ path: String(one.field).replace(/^(command\.)?params\.?/, ""), said: String(one.reason) }));
}

/**
 * The fields for method and params.
 * @param {{ form: any, change: (some: any) => void, methods: any[], openness: string, method: any, fields: any[] | null, params: any, faults: any[], seen: any[] }} props
 */
export function Asked({ form, change, methods, openness, method, fields, params, faults, seen }) {
  const pick = (/** @type {any} */ event) => change({ method: event.currentTarget.value, other: event.currentTarget.value === "", typed: {} });
  function turn() {
    if (!form.asJson) change({ asJson: true, text: written(params, 2) });
    else change({ asJson: false, typed: (fields && faults.every((one) => one.path !== "") && typedOf(fields, params)) || form.typed });
  }
  return html`<div class="field"><label for="method">Method</label>
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
    </fieldset>`;
}
