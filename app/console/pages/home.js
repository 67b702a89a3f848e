/** Home: which party is in trouble, what fails, what is open. */

import { Age, Copy, Hour, Loading, Trouble, When, html, useTick } from "../parts.js";
import { part } from "../api.js";
import { myself } from "../person.js";
import { OVERVIEW_MS, useAgain, useOverview, useRead } from "../read.js";
import { clock, difference, iso } from "../time.js";
import { capital, checkOf, counted, isWell, partyOf, verdictOf } from "../words.js";

/** Commands that wait for a second person are read one by one. */
const APPROVALS_MS = 60_000;
const APPROVALS_SHOWN = 10;

/** The state of one check over all nodes. @param {any[]} nodes @param {string} name */
function chipOf(nodes, name) {
  const told = nodes.filter((one) => one.answered && one.checks && Object.hasOwn(one.checks, name));
  const bad = told.filter((one) => !isWell(one.checks[name]));
  const warned = told.filter((one) => one.checks[name] !== "ok");
  const word = checkOf(name);
  if (bad.length) return { icon: "✖", tone: "bad", text: `${word} ${told.length - bad.length}/${told.length}`, why: bad[0].checks[name] };
  if (warned.length) return { icon: "▲", tone: "warn", text: word, why: warned[0].checks[name] };
  return { icon: "✔", tone: "good", text: word, why: "ok" };
}

/** @param {any} overview */
function chipsOf(overview) {
  if (!overview.nodes) return [];
  const all = overview.nodes.length;
  const ready = all - overview.nodes.filter((/** @type {any} */ one) => one.ready === false).length;
  const names = [...new Set(overview.nodes.flatMap((/** @type {any} */ one) => Object.keys(one.checks ?? {})))];
  return [
    { icon: ready === all ? "✔" : "✖", tone: ready === all ? "good" : "bad", text: `nodes ${ready}/${all}`, why: `${ready} of ${all} can serve, as far as they tell` },
    ...names.map((name) => chipOf(overview.nodes, name)),
  ];
}

/** What is shared in a chat: in UTC, with a link. @param {any} overview */
function shared(overview) {
  const party = partyOf(overview.verdict.party);
  return [
    `${party.word}: ${overview.verdict.text}`,
    chipsOf(overview).map((one) => `${one.icon} ${one.text}`).join("  "),
    `${iso(Date.parse(overview.at))} ${location.href.split("#")[0]}`,
  ].join("\n");
}

/** Where the verdict can be seen: the latest command that failed so, or the nodes. @param {any} overview */
function evidenceOf(overview) {
  if (overview.verdict.party === "device" || overview.verdict.party === "caller") {
    const group = overview.trouble.find((/** @type {any} */ one) => one.party === overview.verdict.party);
    if (group) return `#/commands/${group.newest.id}`;
  }
  return overview.nodes ? "#/nodes" : null;
}

/** @param {{ overview: any }} props */
function Headline({ overview }) {
  const { verdict } = overview;
  const evidence = evidenceOf(overview);
  const party = partyOf(verdict.party);
  return html`<section class=${`headline ${party.tone}`} aria-label="Verdict">
    <p class="party"><span class="icon" aria-hidden="true">${party.icon}</span>${party.word}</p>
    <p class="sentence">${capital(verdict.text)}.${verdict.since && html` Since <${When} at=${verdict.since} />.`}</p>
    <p class="row">
      ${evidence && html`<a class="button" href=${evidence}>Evidence</a>`}
      <${Copy} text=${() => shared(overview)} label="Share" />
    </p>
  </section>`;
}

/** @param {{ overview: any }} props */
function Chips({ overview }) {
  const chips = chipsOf(overview);
  if (!chips.length) return html`<p class="muted">The state of nodes needs the <code>nodes</code> right without a tenant.</p>`;
  return html`<ul class="chips" aria-label="Checks of all nodes">
    ${chips.map((one) => html`<li key=${one.text} class=${one.tone} title=${one.why}><span class="icon" aria-hidden="true">${one.icon}</span>${one.text}</li>`)}
  </ul>`;
}

/** @param {{ group: any }} props */
function Group({ group }) {
  const party = group.party === null ? { icon: "?", word: "unclear", tone: "quiet" } : partyOf(group.party);
  const newest = group.newest;
  return html`<tr>
    <td class="who"><span class=${`state ${party.tone}`}><span class="icon" aria-hidden="true">${party.icon}</span>${party.word}</span></td>
    <td class="many">${group.count}×</td>
    <td class="main"><a data-row href=${`#/commands/${newest.id}`}>${verdictOf(group.code)}</a></td>
    <td class="what"><code>${group.profile}:${group.method}</code></td>
    <td class="where">${group.devices === 1 ? newest.device_id : counted(group.devices, "device")}</td>
    <td class="when"><${When} at=${newest.at} /></td>
  </tr>`;
}

/** @param {{ overview: any }} props */
function Fails({ overview }) {
  const { trouble } = overview;
  return html`<section>
    <h2>What fails</h2>
    ${trouble.length === 0
      ? html`<p class="empty">No command that you may read has failed in the last hour.</p>`
      : html`<table class="rows fails">
          <caption class="offstage">Failures of the last hour, in groups</caption>
          <thead><tr><th scope="col">Party</th><th scope="col">Count</th><th scope="col">Reason</th><th scope="col">Method</th><th scope="col">Devices</th><th scope="col">Latest</th></tr></thead>
          <tbody>${trouble.map((/** @type {any} */ group) => html`<${Group} key=${group.newest.id} group=${group} />`)}</tbody>
        </table>`}
  </section>`;
}

/** What the person may decide about as a second one. A node that asks nobody who they are knows no second person. */
function Waiting() {
  const asked = useRead(myself() ? "v1/approvals" : null);
  useAgain([asked], true, APPROVALS_MS);
  const mine = (asked.found?.approvals ?? []).filter((/** @type {any} */ one) => one.may_decide);
  if (!mine.length) return null;
  return html`<section>
    <h2>Waiting for you <span class="count">${mine.length}</span></h2>
    <table class="rows">
      <caption class="offstage">Commands that you may approve or refuse, the soonest end first</caption>
      <thead><tr><th scope="col">Device</th><th scope="col">Method</th><th scope="col">Asked by</th><th scope="col">Until</th></tr></thead>
      <tbody>${mine.slice(0, APPROVALS_SHOWN).map(
        (/** @type {any} */ { command, asked_by: by }) => html`<tr key=${command.id}>
          <td class="main"><a data-row href=${`#/commands/${part(command.id)}`}>${command.device_id}</a></td>
          <td class="what"><code>${command.method}</code></td>
          <td class="who"><span class="unit">asked by </span>${by ?? "somebody"}</td>
          <td class="when"><span class="unit">until </span><${When} at=${command.hold?.approval?.until} /></td>
        </tr>`,
      )}</tbody>
    </table>
    ${mine.length > APPROVALS_SHOWN && html`<p class="row"><a href="#/held">All that is held</a></p>`}
  </section>`;
}

/** @param {{ overview: any }} props */
function Open({ overview }) {
  const { open_commands: open, nodes } = overview;
  const all = nodes ? nodes.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + (one.open ?? 0), 0) : open.length;
  return html`<section>
    <h2>Open now${all ? html` <span class="count">${all}</span>` : ""}</h2>
    ${open.length === 0
      ? html`<p class="empty">No command is open. <a href="#/commands">Commands</a> has those that have ended.</p>`
      : html`<table class="rows open">
          <caption class="offstage">Commands that have been open for longest</caption>
          <thead><tr><th scope="col">Device</th><th scope="col">Method</th><th scope="col">Open for</th><th scope="col">Node</th></tr></thead>
          <tbody>${open.slice(0, 12).map(
            (/** @type {any} */ one) => html`<tr key=${one.id}>
              <td class="main"><a data-row href=${`#/commands/${one.id}`}>${one.device_id}</a></td>
              <td class="what"><code>${one.method}</code></td>
              <td class="when"><${Age} at=${one.created_at} /></td>
              <td class="where">${one.home_node}</td>
            </tr>`,
          )}</tbody>
        </table>`}
    ${all > Math.min(open.length, 12) && html`<p class="muted">Shown are those that have been open for longest.</p>`}
  </section>`;
}

/** @param {{ readAt: number, error: any, live: boolean, again: () => void }} props */
function Shown({ readAt, error, live, again }) {
  useTick();
  const at = clock(readAt - difference());
  if (error && readAt) {
    const seconds = Math.round((Date.now() - readAt) / 1000);
    return html`<${Trouble} error=${error} again=${again} what=${`No answer for ${seconds} s. Shown is the state of ${at}.`} />`;
  }
  return html`<p class="muted shown">Shown: ${at}, ${live ? "followed" : `read every ${OVERVIEW_MS / 1000} s`} while this page is visible.</p>`;
}

export function Home() {
  const { overview, readAt, error, live, again } = useOverview();
  if (!overview) return html`<h1 class="offstage" tabindex="-1">Home</h1>${error ? html`<${Trouble} error=${error} again=${again} />` : html`<${Loading} rows=${6} />`}`;
  return html`<h1 class="offstage" tabindex="-1">Home</h1>
    <div class=${error ? "stale" : ""}>
      <${Headline} overview=${overview} />
      <${Chips} overview=${overview} />
      ${overview.last_hour && html`<${Hour} hour=${overview.last_hour} at=${overview.at} /><p class="row"><a href="#/latency">Latency of each method</a></p>`}
      ${!overview.complete && html`<p class="note">The store did not say which nodes there are: shown is what one node knows.</p>`}
      <${Waiting} />
      <${Fails} overview=${overview} />
      <${Open} overview=${overview} />
    </div>
    <${Shown} readAt=${readAt} error=${error} live=${live} again=${again} />`;
}
