/** A command: what became of it, why, and the request that sends it again. */

import { Copy, Loading, State, Trouble, Value, When, html, progressOf, useTick } from "../parts.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { Live, call, part, query, written } from "../api.js";
import { Confirm } from "../confirm.js";
import { sendByCommandLine, sendByCurl, sendByPython } from "../copy.js";
import { may, myself } from "../person.js";
import { useAgain, useRead } from "../read.js";
import { SecondPerson } from "./second.js";
import { duration, now } from "../time.js";
import { STREAM, capital, counted, isFinal, stepOf, verdictOf, waitOf } from "../words.js";

const SETTLE_MS = 300;
/** Behind its beginning, where the audit is read from backwards: the clock of its node is not that of the store. */
const AUDITED_MS = 5000;

/** @param {{ one: any }} props */
function Step({ one }) {
  return html`<li>
    <span class="when"><${When} at=${one.at} fine /></span>
    <span class="where">${one.node ?? ""}</span>
    <span class="main"><strong>${stepOf(one.what)}</strong>${one.topic && html` <code>${one.topic}</code>`}${one.bytes !== null && html` <span class="muted">${one.bytes} bytes</span>`}${one.reason && html`<span class="why">${one.reason}</span>`}</span>
  </li>`;
}

/** @param {{ command: any }} props */
function Running({ command }) {
  useTick();
  const { percent, words } = progressOf(command.progress);
  const left = Date.parse(command.deadline) - now();
  return html`<section class="running" aria-label="Progress">
    ${percent !== null && html`<progress max="100" value=${percent} aria-label="Progress">${words}</progress>`}
    <p>${words && html`<strong>${words}</strong>, `}open for ${duration(now() - Date.parse(command.created_at))}, ${left > 0 ? `${duration(left)} left to its deadline` : "past its deadline"}.</p>
  </section>`;
}

/** What a command waits for before it is sent. @param {{ hold: any }} props */
function Waiting({ hold }) {
  useTick();
  return html`<section aria-label="What it waits for"><p>It waits for <strong>${hold.waits_for.map(waitOf).join(", ") || "nothing any more"}</strong>. If it is not sent until <${When} at=${hold.until} />, in ${duration(Date.parse(hold.until) - now())}, it ends as not sent. <span class="muted">${counted(hold.claims, "try", "tries")} so far.</span> <a href="#/held">All that is held</a></p></section>`;
}

/** @param {{ command: any, done: () => void }} props */
function Cancel({ command, done }) {
  const text = html`Its callers get the outcome <em>cancelled</em> at once. The device is not told: it may go on, and what it still answers is kept as a late answer.`;
  return html`<${Confirm} label="Cancel …" title=${`Cancel ${command.method} on ${command.device_id}?`} text=${text} does="Cancel the command" verb=${["cancel", command.id]} run=${() => call("POST", `v1/commands/${part(command.id)}/cancel`)} done=${done} />`;
}

/** @param {{ command: any, explanation: any, open: boolean, again: () => void }} props */
function Actions({ command, explanation, open, again }) {
  const asked = query({ device: command.device_id, until: new Date(Date.parse(command.created_at) + AUDITED_MS).toISOString() });
  return html`<p class="row actions">
    ${open && html`<${Cancel} command=${command} done=${again} />`}
    <a class="button" href=${`#/devices/${part(command.device_id)}/send?${new URLSearchParams({ again: command.id })}`}>Send again as new …</a>
    ${myself() && may("audit") && html`<a class="button" href=${`#/access/audit${asked}`}>Who asked</a>`}
    <${Copy} text=${() => sendByCurl(command)} label="Copy as curl" />
    <${Copy} text=${() => sendByPython(command)} label="Python" />
    <${Copy} text=${() => sendByCommandLine(command)} label="CLI" />
    <${Copy} text=${() => written(explanation, 2)} label="JSON" />
    <${Copy} text=${() => location.href} label="Link" />
  </p>`;
}

/** @param {{ title: string, value: any }} props */
function Part({ title, value }) {
  if (value === null || value === undefined) return null;
  return html`<details open=${title === "Error" || title === "Late answer"}><summary>${title}</summary><${Value} value=${value} name=${title} /></details>`;
}

/** @param {{ explanation: any }} props */
function Misses({ explanation }) {
  const { misses, heard, presence, gaps } = explanation;
  return html`${misses.length > 0 &&
    html`<section><h2>Nearest misses <span class="count">${misses.length}</span></h2>
      <p class="muted">Messages that answered no command and may have been meant as this answer, nearest first.</p>
      <ul class="steps">${misses.map((/** @type {any} */ one) => html`<li><span class="when"><${When} at=${one.at} fine /></span><span class="where">${one.node}</span><span class="main"><code>${one.topic}</code> <strong>${one.reason}</strong>${one.got && html`<span class="why">names ${one.got}</span>`}</span></li>`)}</ul></section>`}
    ${(heard.length > 0 || presence) &&
    html`<section><h2>The device was heard</h2>
      ${presence && html`<p>According to the event log it is ${presence.online ? "online" : "offline"} since <${When} at=${presence.since} />, last seen <${When} at=${presence.last_seen} />.</p>`}
      <ul class="steps">${heard.slice(0, 8).map((/** @type {any} */ one) => html`<li><span class="when"><${When} at=${one.at} /></span><span class="where">${one.node}</span><span class="main"><code>${one.topic}</code> <span class="muted">profile ${one.profile}</span></span></li>`)}</ul></section>`}
    ${gaps.length > 0 && html`<section><h2>What nobody can know any more</h2><ul class="plain">${gaps.map((/** @type {string} */ one) => html`<li>${one}</li>`)}</ul></section>`}`;
}

/** What the stream of an open command tells of its progress, and how it stands. All else that happens has the page read anew. @param {string} id @param {boolean} open @param {{ again: () => void, look: () => void }} read */
function useStory(id, open, { again, look }) {
  const [told, tell] = useState({ progress: /** @type {any} */ (null), stream: /** @type {any} */ (null) });
  useEffect(() => {
    if (!open) return undefined;
    let timer = 0;
    const live = new Live(`v1/commands/${part(id)}/events`, {
      onEvents(events) {
        const latest = events.findLast((one) => one.name === "progress");
        if (latest) tell((before) => ({ ...before, progress: latest.data.progress }));
        clearTimeout(timer);
        timer = setTimeout(events.some((one) => one.name === "outcome") ? again : look, SETTLE_MS);
      },
      onState: (state, why) => tell((before) => ({ ...before, stream: { state, why } })),
    });
    return () => {
      clearTimeout(timer);
      live.close();
    };
  }, [id, open]);
  return open ? told : { progress: null, stream: null };
}

/** @param {{ id: string }} props */
export function Command({ id }) {
  const read = useRead(`v1/commands/${part(id)}/explain`);
  const { found: explanation, error, again: retry } = read;
  const open = explanation !== null && !isFinal(explanation.command.state);
  const { progress, stream } = useStory(id, open, read);
  useAgain([read], open); // nothing tells that what was held is sent

  const back = html`<p class="back"><a href="#/commands">‹ Commands</a></p>`;
  if (!explanation) {
    const unknown = error?.status === 404 || error?.status === 422;
    return html`${back}<h1 tabindex="-1" class="id">${id}</h1>
      ${error && unknown && html`<div class="trouble" role="alert"><p><strong>There is no such command, or it is not yours to read, or its retention has ended.</strong></p><p class="muted">${error.message}</p></div>`}
      ${error && !unknown && html`<${Trouble} error=${error} again=${retry} />`}
      ${!error && html`<${Loading} rows=${5} />`}`;
  }
  const { verdict, timeline } = explanation;
  const command = progress === null ? explanation.command : { ...explanation.command, state: "running", progress };
  const took = command.finished_at ? ` after ${duration(Date.parse(command.finished_at) - Date.parse(command.created_at))}` : "";
  return html`${back}
    <h1 tabindex="-1"><code>${command.method}</code> on <a href=${`#/devices/${part(command.device_id)}`}>${command.device_id}</a></h1>
    <p class="row facts"><${State} state=${command.state} />${took && html`<span>${took}</span>`}<span class="muted">profile ${command.profile}</span><span class="muted">home ${command.home_node}</span>${stream && html`<span class=${`state ${STREAM[stream.state].tone}`} role="status"><span class="dot" aria-hidden="true"></span>${STREAM[stream.state].word}</span>`}</p>
    <p class="id muted">${command.id} <${Copy} text=${command.id} label="Copy id" kind="small" /></p>
    ${error && html`<${Trouble} error=${error} again=${retry} />`}
    <section class=${`headline ${open ? "quiet" : command.state === "succeeded" ? "good" : "bad"}`} aria-label="Explanation">
      <p class="party">${capital(verdictOf(verdict.code))}</p>
      <p class="sentence">${capital(verdict.text)}.</p>
      ${verdict.evidence.length > 0 && html`<ul class="plain">${verdict.evidence.map((/** @type {string} */ one) => html`<li>${one}</li>`)}</ul>`}
    </section>
    ${command.state === "held" && command.hold ? html`<${Waiting} hold=${command.hold} />` : open && html`<${Running} command=${command} />`}
    ${command.state === "held" && command.hold?.waits_for.includes("approval") && html`<${SecondPerson} command=${command} done=${retry} />`}
    <${Actions} command=${command} explanation=${explanation} open=${open} again=${retry} />
    <section><h2>What happened</h2><ol class="steps">${timeline.map((/** @type {any} */ one) => html`<${Step} one=${one} />`)}</ol></section>
    <section class="parts" aria-label="Contents">
      <${Part} title="Error" value=${command.error} />
      <${Part} title="Late answer" value=${command.late} />
      <${Part} title="Found out afterwards" value=${command.verified} />
      <${Part} title="Result" value=${command.result} />
      <${Part} title="Params" value=${command.params} />
      <${Part} title="Progress" value=${command.progress ?? command.last_progress} />
    </section>
    <${Misses} explanation=${explanation} />`;
}
