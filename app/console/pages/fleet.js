/** A fleet run: how far its waves are, why it stands, which targets failed, and the buttons that stop it. */

import { Copy, Loading, Mark, Trouble, Value, When, html } from "../parts.js";
import { useRef, useState } from "../vendor/hooks.js";
import { call, part, query, written } from "../api.js";
import { Confirm } from "../confirm.js";
import { keyed } from "../key.js";
import { Listed } from "../listed.js";
import { useAgain, usePages, useRead } from "../read.js";
import { TARGETS, capital, counted, endedOf, isOver, many, runOf, targetOf } from "../words.js";

const TARGETS_SHOWN = 50;

/** How many targets of each wave have ended: waves follow one another. @param {any} run @returns {number[]} */
function endedOfWaves(run) {
  let rest = endedOf(run.counts);
  return run.waves.map((/** @type {any} */ one) => {
    const ended = Math.min(one.size, rest);
    rest -= ended;
    return ended;
  });
}

/** @param {{ run: any }} props */
function Waves({ run }) {
  const ended = endedOfWaves(run);
  return html`<ol class="plain waves">${run.waves.map((/** @type {any} */ one, /** @type {number} */ at) => html`<li key=${at} aria-current=${one.current && !isOver(run.state) ? "step" : undefined}>
    <progress max=${one.size} value=${ended[at]} aria-label=${`Wave ${at + 1}`}></progress>
    <span>${many(ended[at])} of ${many(one.size)} ended${one.current && one.began_at ? html`, begun <${When} at=${one.began_at} />` : ""}</span></li>`)}</ol>`;
}

/** @param {{ rules: any[] }} props */
function Rules({ rules }) {
  if (!rules.length) return html`<p class="muted">No rule stops it.</p>`;
  return html`<ul class="plain">${rules.map((one, at) => html`<li key=${at}>${one.then === "abort" ? "Aborts" : "Pauses"} at ${one.share ? `${one.share} of those that have ended, once ${one.after ? many(one.after) : `${many(20)}, or the first wave,`} have` : counted(one.count, "target")}: ${one.of.map((/** @type {string} */ of) => targetOf(of).word).join(", ")}. <strong>${many(one.counted)}</strong> so far.</li>`)}</ul>`;
}

/** @param {{ failures: any[] }} props */
function Failures({ failures }) {
  return html`<section><h2>What failed</h2>
    <table class="rows fails"><caption class="offstage">Targets that ended alike</caption>
      <thead><tr><th scope="col">Count</th><th scope="col">State</th><th scope="col">Error</th><th scope="col">Devices</th></tr></thead>
      <tbody>${failures.map((one) => html`<tr key=${one.state + one.code + one.message}><td class="many">${many(one.count)}×</td><td class="what"><${Mark} of=${targetOf(one.state)} /></td><td class="main">${[one.code, one.message].filter(Boolean).join(": ")}</td><td class="where">${one.devices.join(", ")}</td></tr>`)}</tbody>
    </table></section>`;
}

/** What a target ended with; the code of a device may be any JSON. @param {any} one */
function errorOf({ code, message }) {
  return [code === null || typeof code === "string" ? code : written(code), message].filter(Boolean).join(": ");
}

/** @param {any} one */
function target(one) {
  return html`<tr key=${one.device_id}>
    <td class="main">${one.command_id ? html`<a data-row href=${`#/commands/${part(one.command_id)}`}>${one.device_id}</a>` : one.device_id}</td>
    <td class="what"><${Mark} of=${targetOf(one.state)} /></td>
    <td class="took"><span class="unit">wave </span>${one.wave}</td>
    <td class="when">${one.ended_at && html`<${When} at=${one.ended_at} />`}</td>
    <td class="note-cell">${errorOf(one)}</td>
  </tr>`;
}

/** @param {{ run: any }} props */
function Targets({ run }) {
  const [state, pick] = useState("");
  const listed = usePages(`v1/fleet-runs/${part(run.id)}/targets${query({ state, limit: TARGETS_SHOWN })}`, "targets");
  return html`<section><h2>Targets</h2>
    <p class="row"><label>State <select value=${state} onChange=${(/** @type {any} */ event) => pick(event.currentTarget.value)}><option value="">all, ${many(run.total)}</option>${Object.keys(TARGETS).map((one) => html`<option key=${one} value=${one}>${TARGETS[one].word}, ${many(run.counts[one] ?? 0)}</option>`)}</select></label><button type="button" onClick=${listed.again}>Read again</button></p>
    <${Listed} listed=${listed} word="target" caption="Targets, in the order of their turns" heads=${["Device", "State", "Wave", "Ended", "Error"]} row=${target} empty=${state ? "No target that you may read is in this state." : "You may read none of its targets."} /></section>`;
}

/** What stops a run or lets it go on, each asked again. @param {{ run: any, tell: (done: string) => void }} props */
function Changes({ run, tell }) {
  const [forgive, turn] = useState(false);
  const [cancel, pick] = useState(false);
  const { method } = run.command;
  const post = (/** @type {string} */ what, /** @type {any} */ body = undefined) => call("POST", `v1/fleet-runs/${part(run.id)}/${what}`, { body });
  const goes = run.state === "running" || run.state === "waiting";
  return html`${goes && html`<${Confirm} label="Pause …" title=${`Pause ${method}?`} text="Nothing more is handed out, and what is held is not sent before the run goes on. What was sent goes on." does="Pause it" verb=${["fleet", "pause", run.id]} run=${() => post("pause")} done=${() => tell("The run is paused.")} />`}
    ${run.state === "paused" && html`<${Confirm} label="Resume …" title=${`Let ${method} go on?`} text=${`${capital(counted(run.counts.waiting ?? 0, "target has", "targets have"))} had no turn yet.`} does="Let it go on" verb=${["fleet", "resume", run.id, ...(forgive ? ["--forgive"] : [])]} run=${() => post("resume", { forgive })} done=${() => tell("The run goes on.")}>
      <p><label><input type="checkbox" checked=${forgive} onChange=${() => turn(!forgive)} /> Forgive: what has failed so far counts for no rule any more</label></p>
    <//>`}
    <${Confirm} label="Abort …" title=${`Abort ${method}?`} text="Targets without a turn are skipped, and what is held is cancelled, and not sent. There is no way back: begin another run for them." does="Abort it" verb=${["fleet", "abort", run.id, ...(cancel ? ["--cancel-open"] : [])]} run=${() => post("abort", { open: cancel ? "cancel" : "leave" })} done=${() => tell("The run ends.")}>
      <p><label><input type="checkbox" checked=${cancel} onChange=${() => pick(!cancel)} /> Cancel the ${many(run.counts.handed ?? 0)} in flight, too. Devices are not told.</label></p>
    <//>`;
}

/** Another run for those that this one has not brought to their end. @param {{ run: any }} props */
function Retry({ run }) {
  const keyOf = useRef(keyed());
  const count = (run.counts.failed ?? 0) + (run.counts.timed_out ?? 0);
  if (!count) return null;
  const { method } = run.command;
  return html`<${Confirm} label="Run again …" title=${`Send ${method} once more to ${counted(count, "device")}?`} text="Those that refused it, and those that did not answer in time, which may have done it. It is another run, with the same waves and rules, and it begins at once." does=${`Begin on ${counted(count, "device")}`} verb=${["fleet", "retry", run.id]} run=${() => call("POST", `v1/fleet-runs/${part(run.id)}/retry`, { headers: { "Idempotency-Key": keyOf.current(run.id) } })} done=${(/** @type {any} */ made) => { location.hash = `#/fleets/${part(made.id)}`; }} />`;
}

/** @param {{ run: any }} props */
function Steps({ run }) {
  return html`<ol class="steps">${run.steps.map((/** @type {any} */ one) => html`<li key=${one.at + one.state}><span class="when"><${When} at=${one.at} /></span><span class="where">${one.by}</span><span class="main"><strong>${runOf(one.state).word}</strong>${one.said && html`<span class="why">${one.said}</span>`}</span></li>`)}</ol>`;
}

/** @param {{ id: string }} props */
export function Fleet({ id }) {
  const read = useRead(`v1/fleet-runs/${part(id)}`);
  const why = useRead(`v1/fleet-runs/${part(id)}/explain`);
  const [done, say] = useState("");
  const { found: run, error } = read;
  function refresh() {
    read.again();
    why.again();
  }
  useAgain([read, why], run !== null && !isOver(run.state));
  const back = html`<p class="back"><a href="#/fleets">‹ Fleets</a></p>`;
  if (!run) return html`${back}<h1 tabindex="-1" class="id">${id}</h1>${error ? html`<${Trouble} error=${error} again=${refresh} />` : html`<${Loading} rows=${8} />`}`;
  const { icon, word, tone } = runOf(run.state);
  return html`${back}
    <h1 tabindex="-1"><code>${run.command.method}</code> on ${counted(run.total, "device")}</h1>
    <p class="row facts"><span class="muted">${run.by ? `begun by ${run.by}` : "begun"} <${When} at=${run.created_at} /></span>${run.driver && html`<span class="muted">driven by ${run.driver}</span>`}</p>
    <p class="id muted">${run.id} <${Copy} text=${run.id} label="Copy id" kind="small" /></p>
    ${error && html`<${Trouble} error=${error} again=${refresh} />`}
    <section class=${`headline ${tone}`} aria-label="Why it stands">
      <p class="party"><span class="icon" aria-hidden="true">${icon}</span>${capital(word)}</p>
      ${why.found && html`<p class="sentence">${capital(why.found.said)}.</p>`}
      ${why.found?.held > 0 && html`<p>Of those in flight, ${many(why.found.held)} wait for their device.</p>`}
    </section>
    ${why.error && html`<${Trouble} error=${why.error} again=${why.again} />`}
    <p class="row">${isOver(run.state) ? html`<${Retry} run=${run} />` : html`<${Changes} run=${run} tell=${(/** @type {string} */ text) => { say(text); refresh(); }} />`}<button type="button" onClick=${refresh}>Read again</button></p>
    <p role="status">${done}</p>
    <section><h2>Waves</h2><${Waves} run=${run} /></section>
    <ul class="chips" aria-label="Targets by state">${Object.entries(run.counts).map(([state, count]) => html`<li key=${state}><${Mark} of=${targetOf(state)} />${many(count)}</li>`)}</ul>
    ${why.found?.failures.length > 0 && html`<${Failures} failures=${why.found.failures} />`}
    <section><h2>Stop rules</h2><${Rules} rules=${why.found?.rules ?? []} /></section>
    <${Targets} run=${run} />
    <section><h2>What happened</h2><${Steps} run=${run} /></section>
    <section class="parts" aria-label="Contents">
      <details><summary>Command</summary><${Value} value=${run.command} name="Command" /></details>
      <details><summary>Which devices</summary><${Value} value=${run.targets} name="Which devices" /></details>
    </section>`;
}
