/** Messages between devices and broker: those that come, and what each profile makes of one that is typed. */

import { Copy, Mark, Trouble, When, html } from "../parts.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { Live, call, query } from "../api.js";
import { textOf, useSubmit } from "../submit.js";
import { counted } from "../words.js";

const MOST = 200;
const TIMES = { "60s": "a minute", "5m": "five minutes" };
const READ = { icon: "✔", word: "read", tone: "good" };
const IGNORED = { icon: "–", word: "ignored", tone: "quiet" };

/** The message that was chosen to be tried: no address has what devices say. */
let given = { topic: "", payload: "" };

/** What each profile makes of a message. @param {{ readings: any[] }} props */
function Readings({ readings }) {
  if (!readings.length) return html`<p class="muted">No profile of this node has this topic.</p>`;
  return html`<ul class="readings">${readings.map((one) => html`<li key=${one.profile + one.sentence}><${Mark} of=${one.outcome.startsWith("ignored") ? IGNORED : READ} /> <strong>${one.profile}</strong> ${one.sentence}</li>`)}</ul>`;
}

/** @param {{ one: any }} props */
function Message({ one }) {
  const said = one.payload ?? `hex ${one.payload_hex}`;
  const read = one.readings.filter((/** @type {any} */ each) => !each.outcome.startsWith("ignored"));
  const hand = () => { given = { topic: one.topic, payload: one.cut ? "" : (one.payload ?? "") }; };
  return html`<details><summary data-row><${When} at=${one.at} fine /> <strong><code>${one.topic}</code></strong> <span class="muted">${counted(one.bytes, "byte")}${one.retain ? ", retained" : ""}: ${read.length ? read.map((/** @type {any} */ each) => `${each.profile} ${each.outcome}`).join(", ") : one.readings.length ? "ignored" : "no profile has the topic"}</span></summary>
    <${Readings} readings=${one.readings} />
    <pre tabindex="0" role="region" aria-label=${`Payload of message ${one.key}`}><code>${said}${one.cut ? "…" : ""}</code></pre>
    <p class="row"><a class="button" href="#/try" onClick=${hand}>Try it …</a><${Copy} text=${one.topic} label="Copy topic" kind="small" /></p></details>`;
}

/** Listens while the page is shown. @param {{ topic: string, lasting: string }} props */
function Ear({ topic, lasting }) {
  const [rows, add] = useState(/** @type {any[]} */ ([]));
  const [stream, set] = useState(/** @type {any} */ ({ state: "connecting", why: null }));
  const [end, over] = useState(/** @type {any} */ (null));
  const count = useRef(0);
  useEffect(() => {
    const live = new Live(`v1/traffic${query({ topic, for: lasting })}`, {
      onEvents(events) {
        const come = events.filter((one) => one.name === "message").map((one) => ({ ...one.data, key: ++count.current }));
        if (come.length) add((before) => [...come.reverse(), ...before].slice(0, MOST));
        const last = events.find((one) => one.name === "end" || one.name === "problem");
        if (!last) return;
        live.close(); // it would listen once more
        if (last.name === "end") over(last.data);
        else set({ state: "ended", why: { asked: "GET /v1/traffic", status: last.data?.status, title: last.data?.title, message: last.data?.detail } });
      },
      onState: (state, why) => set({ state, why }),
    });
    return () => live.close();
  }, []);
  const failed = !end && stream.state === "ended" && stream.why;
  const heard = counted(end ? end.heard : count.current, "message");
  return html`${failed ? html`<${Trouble} error=${failed} />` : html`<p role="status">${end ? `It has ended: ${heard}, ${end.strangers} of them on topics that no profile has${end.dropped ? `, ${end.dropped} dropped as too many came at once` : ""}.` : stream.state === "live" ? `Listening, ${heard}.` : `${stream.why ? stream.why.message : "Connecting"} …`}</p>`}
    ${!failed && rows.length === 0 && html`<p class="empty">Nothing came${topic ? html` on <code>${topic}</code>` : ""} yet. Does the node's user name have the right to read it?</p>`}
    <div class="values">${rows.map((one) => html`<${Message} key=${one.key} one=${one} />`)}</div>`;
}

/** @param {{ params: URLSearchParams, go: (params: Record<string, string>) => void }} props */
export function Traffic({ params, go }) {
  const [told, listen] = useState({ topic: "", lasting: "", turn: 0 });
  const asked = params.get("for") ?? "";
  /** @param {any} event */
  function submit(event) {
    event.preventDefault();
    const typed = new FormData(event.currentTarget);
    const [topic, lasting] = [textOf(typed, "topic"), textOf(typed, "for")];
    go({ topic, for: lasting });
    listen({ topic, lasting, turn: told.turn + 1 });
  }
  return html`<h1 tabindex="-1">Traffic</h1>
    <p class="muted">What devices and broker say to each other, as a connection of its own hears it. It publishes nothing and takes nothing away from nodes. <a href="#/try">Try a message</a> that nobody has sent.</p>
    <form class="filters" aria-label="Listen" onSubmit=${submit}>
      <label>Topic filter <input name="topic" value=${params.get("topic") ?? ""} placeholder="all of the profiles" maxlength="1024" autocomplete="off" spellcheck=${false} /></label>
      <label>For <select name="for" value=${Object.hasOwn(TIMES, asked) ? asked : "60s"}>${Object.entries(TIMES).map(([value, word]) => html`<option key=${value} value=${value}>${word}</option>`)}</select></label>
      <button type="submit" class="chief">Listen</button>
    </form>
    ${told.turn > 0 && html`<${Ear} key=${told.turn} topic=${told.topic} lasting=${told.lasting} />`}`;
}

export function Try() {
  const [first] = useState(given);
  const [found, show] = useState(/** @type {any} */ (null));
  const form = useSubmit((typed) => call("POST", "v1/profiles/trial", { body: { topic: textOf(typed, "topic"), payload: String(typed.get("payload") ?? ""), retain: typed.get("retain") !== null } }), show, false);
  return html`<p class="back"><a href="#/profiles">‹ Profiles</a></p>
    <h1 tabindex="-1">Try a message</h1>
    <p class="muted">What each profile of this node would make of it, if a device said it now. Nothing is sent.</p>
    <form onSubmit=${form.submit}>
      <div class="field"><label for="topic">Topic</label><input id="topic" name="topic" required maxlength="1024" defaultValue=${first.topic} placeholder="homing/drone-1/response" autocomplete="off" spellcheck=${false} /></div>
      <div class="field"><label for="payload">Payload</label><textarea id="payload" name="payload" rows="6" maxlength="65536" spellcheck=${false} defaultValue=${first.payload}></textarea></div>
      <p class="row"><label><input type="checkbox" name="retain" /> retained: the broker has kept it from before</label></p>
      <p class="row"><button type="submit" class="chief" aria-disabled=${form.busy}>Read it</button></p>
    </form>
    ${form.error && html`<${Trouble} error=${form.error} />`}
    <section role="status" aria-label="Readings">${found && !form.error && html`<h2>${counted(found.bytes, "byte")} on <code>${found.topic}</code></h2><${Readings} readings=${found.readings} />`}</section>`;
}
