/** A profile that is typed: what is wrong with it, what a command would publish, and how a message would be read. */

import { Trouble, html } from "../parts.js";
import { useState } from "../vendor/hooks.js";
import { call, parse } from "../api.js";
import { may } from "../person.js";
import { textOf, useSubmit } from "../submit.js";

/** @param {FormData} typed */
function draftOf(typed) {
  /** @type {Record<string, any>} */
  const draft = { toml: String(typed.get("toml") ?? "") };
  for (const name of ["method", "device_id", "topic"]) {
    const text = textOf(typed, name);
    if (text) draft[name] = text;
  }
  const payload = String(typed.get("payload") ?? "");
  if (payload || draft.topic) draft.payload = payload;
  const params = textOf(typed, "params");
  if (params) {
    try {
      draft.params = parse(params);
    } catch (error) {
      throw { asked: "", title: "The params are no JSON", message: /** @type {Error} */ (error).message };
    }
  }
  return draft;
}

/** Sentences of the node. @param {{ name: string, lines: string[], bad?: boolean }} props */
function Lines({ name, lines, bad = false }) {
  if (!lines.length) return null;
  return html`<h3>${name}</h3><pre tabindex="0" role="region" aria-label=${name} class=${bad ? "bad" : ""}><code>${lines.join("\n")}</code></pre>`;
}

/** @param {{ found: any }} props */
function Findings({ found }) {
  if (found.faults.length) return html`<h2>It is no profile yet</h2><${Lines} name="What is wrong" lines=${found.faults} bad />`;
  return html`<h2>${found.name} is well formed</h2>
    <${Lines} name="Said in vain" lines=${found.hints} />
    <${Lines} name=${`${found.command.method} to ${found.command.device_id}`} lines=${found.publishes} bad=${!found.accepted} />
    ${found.answers !== null && html`<${Lines} name=${found.answers ? "The message answers the command" : "The message does not answer the command"} lines=${found.readings.length ? found.readings : ["no kind of the profile has this topic"]} />`}
    <${Lines} name="How answers are read" lines=${found.reads} />`;
}

export function Draft() {
  if (may("trace") === false) return html`<h1 tabindex="-1">Try a profile</h1><p class="empty" role="status">This page needs the trace right without a tenant.</p>`;
  return html`<${Trial} />`;
}

function Trial() {
  const [found, show] = useState(/** @type {any} */ (null));
  const form = useSubmit((typed) => call("POST", "v1/profiles/draft", { body: draftOf(typed) }), show, false);
  return html`<p class="back"><a href="#/profiles">‹ Profiles</a></p>
    <h1 tabindex="-1">Try a profile</h1>
    <p class="muted">What the node would make of a profile that it does not have. Nothing is sent or kept. What is left empty is an example that fits.</p>
    <form onSubmit=${form.submit}>
      <div class="field"><label for="toml">Profile, as TOML</label><textarea id="toml" name="toml" rows="14" required maxlength="65536" spellcheck=${false} placeholder=${'name = "lamp"'}></textarea></div>
      <div class="field"><label for="method">Method</label><input id="method" name="method" maxlength="256" placeholder="the first of the profile" autocomplete="off" spellcheck=${false} /></div>
      <div class="field"><label for="params">Params, as JSON</label><textarea id="params" name="params" rows="3" maxlength="65536" spellcheck=${false} placeholder="those that the profile needs"></textarea></div>
      <div class="field"><label for="device">Device</label><input id="device" name="device_id" maxlength="128" placeholder="an id of the profile's form" autocomplete="off" spellcheck=${false} /></div>
      <div class="field"><label for="payload">What the device says</label><textarea id="payload" name="payload" rows="3" maxlength="65536" spellcheck=${false} aria-describedby="payload-hint"></textarea><p id="payload-hint" class="hint"><code>{id}</code> becomes the id of the command.</p></div>
      <div class="field"><label for="topic">On topic</label><input id="topic" name="topic" maxlength="1024" placeholder="where answers are expected" autocomplete="off" spellcheck=${false} /></div>
      <p class="row"><button type="submit" class="chief" aria-disabled=${form.busy}>${form.busy ? "Trying …" : "Try it"}</button></p>
    </form>
    ${form.error && html`<${Trouble} error=${form.error} />`}
    <section role="status" aria-label="Findings">${found && !form.error && html`<${Findings} found=${found} />`}</section>`;
}
