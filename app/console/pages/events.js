/** Events: what devices say, from a while ago on, and live. */

import { Copy, Trouble, Value, When, html } from "../parts.js";
import { useEffect, useReducer, useRef, useState } from "../vendor/hooks.js";
import { Live, bytesOf, part, query, written } from "../api.js";
import { Stream } from "../listed.js";
import { counted } from "../words.js";

const MOST = 200;
const MOST_SAID = 160;
const SPANS = { "-1m": "last minute", "-10m": "last 10 minutes", "-1h": "last hour", "-24h": "last day", now: "now" };
const FIRST = "-1m";

/** @typedef {{ id: string, gap: string | null, event: any, text: string, bytes: number }} Row */
/** @typedef {{ rows: Row[], fresh: Row[], gaps: number }} Listed */

/** A row of an event of the stream; its text is bounded here once, however often it is drawn. @param {any} one @param {number} gaps @returns {Row} */
function rowOf(one, gaps) {
  if (one.name === "gap") return { id: `gap ${gaps}`, gap: one.data.until, event: null, text: "", bytes: 0 };
  const text = one.data.data_base64 ?? written(one.data.data);
  return { id: one.id, gap: null, event: one.data, text: text.slice(0, MOST_SAID), bytes: bytesOf(text) };
}

/** @param {Listed} listed @param {any} action @returns {Listed} */
function reduce(listed, action) {
  switch (action.type) {
    case "begin":
      return { rows: [], fresh: [], gaps: 0 };
    case "events": {
      let { gaps } = listed;
      const come = action.events.slice(-MOST).map((/** @type {any} */ one) => rowOf(one, one.name === "gap" ? ++gaps : gaps)).reverse();
      const next = { ...listed, gaps, fresh: [...come, ...listed.fresh].slice(0, MOST) };
      return action.hold ? next : reduce(next, { type: "show" });
    }
    case "show":
      return { ...listed, rows: [...listed.fresh, ...listed.rows].slice(0, MOST), fresh: [] };
    default:
      return listed;
  }
}

/** @param {{ row: Row }} props */
function Line({ row }) {
  const [open, turn] = useState(false);
  const { gap, event, text, bytes } = row;
  if (gap !== null) return html`<p class="note">Gap: events before <${When} at=${gap} /> are not in the log any more.</p>`;
  return html`<details onToggle=${(/** @type {any} */ toggled) => turn(toggled.currentTarget.open)}>
    <summary data-row><${When} at=${event.at} fine /> <strong><code>${event.topic}</code></strong> <span class="muted">${text}${text.length < MOST_SAID ? "" : `… ${counted(bytes, "byte")}`}</span></summary>
    ${open &&
    html`<p class="row muted">${event.device_id ? html`<span>said by <a href=${`#/devices/${part(event.device_id)}`}>${event.device_id}</a></span>` : ""}${event.kind && html`<span>${event.kind}</span>`}${event.id && html`<span>id ${event.id}</span>`}${event.data_base64 && html`<span>no JSON: its bytes in base64</span>`}<${Copy} text=${event.topic} label="Copy topic" kind="small" /></p>
      <${Value} value=${event.data_base64 ?? event.data} name=${`Value ${event.position}`} />`}
  </details>`;
}

/** @param {{ filters: any, change: (some: any) => void }} props */
function Filters({ filters, change }) {
  /** @param {any} event */
  function submit(event) {
    event.preventDefault();
    change(Object.fromEntries([...new FormData(event.currentTarget)].map(([name, value]) => [name, String(value).trim()])));
  }
  return html`<form class="filters" role="search" aria-label="Filter events" onSubmit=${submit} onChange=${(/** @type {any} */ event) => event.currentTarget.requestSubmit()}>
    <label>Topic filter <input name="topic" value=${filters.topic} placeholder="site/+/alarm" maxlength="1024" autocomplete="off" spellcheck=${false} /></label>
    <label>Database <input name="database" value=${filters.database} placeholder="all" maxlength="32" autocomplete="off" spellcheck=${false} /></label>
    <label>From <select name="from" value=${filters.from}>${Object.entries(SPANS).map(([value, word]) => html`<option key=${value} value=${value}>${word}</option>`)}</select></label>
    <button type="submit" class="offstage">Apply</button>
  </form>`;
}

/** @param {{ params: URLSearchParams, go: (params: Record<string, string>) => void }} props */
export function Events({ params, go }) {
  const from = params.get("from") ?? "";
  const filters = { topic: params.get("topic") ?? "", database: params.get("database") ?? "", from: Object.hasOwn(SPANS, from) ? from : FIRST };
  const [listed, tell] = useReducer(reduce, { rows: [], fresh: [], gaps: 0 });
  const [stream, setStream] = useState(/** @type {any} */ ({ state: "connecting", why: null }));
  const [paused, pause] = useState(false);
  const [failed, fail] = useState("");
  const [turn, again] = useState(0);
  const live = useRef(/** @type {Live | null} */ (null));
  const held = useRef(false);
  const asked = JSON.stringify([filters, turn]);

  useEffect(() => {
    tell({ type: "begin" });
    pause(false);
    fail("");
    held.current = false;
    const since = filters.from === "now" ? "" : filters.from;
    live.current = new Live(`v1/events/stream${query({ topic: filters.topic, database: filters.database, since })}`, {
      onEvents(events) {
        const problem = events.find((one) => one.name === "problem");
        if (problem) fail(String(problem.data?.detail ?? problem.data?.title ?? ""));
        const told = events.filter((one) => one.name === "event" || one.name === "gap");
        if (told.length) tell({ type: "events", events: told, hold: held.current });
      },
      onState(now, why) {
        if (now === "live") fail("");
        setStream({ state: now, why });
      },
    });
    return () => live.current?.close();
  }, [asked]);

  function toggle() {
    live.current?.pause(!paused);
    pause(!paused);
  }
  const hold = (/** @type {boolean} */ yes) => () => {
    held.current = yes;
  };
  const { state, why } = stream;
  const { rows, fresh } = listed;
  const over = state === "ended" && why;
  return html`<h1 tabindex="-1">Events</h1>
    <${Filters} filters=${filters} change=${go} />
    ${over && (why.status === 404 ? html`<p class="empty">${why.title}: ${why.message}.</p>` : html`<${Trouble} error=${why} again=${() => again(turn + 1)} />`)}
    ${!over && html`<${Stream} state=${state} why=${why} paused=${paused} toggle=${toggle} />`}
    ${failed && html`<p class="note">The stream broke off: ${failed}</p>`}
    <p class="news" role="status">${fresh.length > 0 && html`<button type="button" onClick=${() => tell({ type: "show" })}>↑ ${fresh.length} new</button>`}</p>
    ${!over && rows.length === 0 && html`<p class="empty">${filters.topic ? html`Nothing came on <code>${filters.topic}</code> yet, of what you may read.` : "No event came yet, of what you may read."}</p>`}
    ${rows.length > 0 && html`<div class="values" onMouseEnter=${hold(true)} onMouseLeave=${hold(false)} onFocusIn=${hold(true)} onFocusOut=${hold(false)}>${rows.map((row) => html`<${Line} key=${row.id} row=${row} />`)}</div>
      <p class="muted">${counted(rows.length, "row")} shown${rows.length >= MOST ? ", as many as this page keeps" : ""}, the newest first</p>`}`;
}
