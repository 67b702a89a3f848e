/** Commands: the latest ones, and what happens to them while one looks. */

import { Copy, Loading, State, Trouble, When, html, progressOf } from "../parts.js";
import { useEffect, useReducer, useRef, useState } from "../vendor/hooks.js";
import { Live, call, part, query, written } from "../api.js";
import { csv } from "../copy.js";
import { Stream } from "../listed.js";
import { useOnceMore } from "../read.js";
import { duration, iso, madeAt } from "../time.js";
import { FILTERED_STATES, counted, isFinal, stateOf } from "../words.js";

const PAGE = 100;
const MOST = 500;
const MOST_SAID = 120;
const SPANS = { "": "any time", "-10m": "last 10 minutes", "-1h": "last hour", "-24h": "last day" };

/** @typedef {{ id: string, device_id: string, profile: string, method: string, state: string, created: number, ended: number | null, home: string, note: string, percent: number | null }} Row */

/** @param {any} error */
function noteOf(error) {
  if (error === null || error === undefined) return "";
  const text = typeof error.message === "string" ? error.message : written(error);
  return text.length > MOST_SAID ? `${text.slice(0, MOST_SAID)}…` : text;
}

/** @param {any} one @returns {Row} */
function rowOf(one) {
  return {
    id: one.id,
    device_id: one.device_id,
    profile: one.profile,
    method: one.method,
    state: one.state,
    created: Date.parse(one.created_at),
    ended: one.finished_at ? Date.parse(one.finished_at) : null,
    home: one.home_node,
    note: noteOf(one.error),
    percent: progressOf(one.progress).percent,
  };
}

/** A row as an event of the stream makes it, of which `before` was known. @param {any} event @param {Row | undefined} before @returns {Row} */
function rowAfter(event, before) {
  const { data } = event;
  const ended = isFinal(data.state);
  return {
    id: data.command_id,
    device_id: data.device_id,
    profile: data.profile,
    method: data.method,
    state: before && isFinal(before.state) ? before.state : data.state,
    created: before?.created ?? madeAt(data.command_id),
    ended: before?.ended ?? (ended ? Date.parse(data.at) : null),
    home: before?.home ?? "",
    note: event.name === "outcome" ? noteOf(data.error) : (before?.note ?? ""),
    percent: ended ? null : (progressOf(data.progress).percent ?? before?.percent ?? null),
  };
}

/** @param {string} pattern */
function fits(pattern) {
  const parts = pattern.split("*").map((one) => one.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const found = new RegExp(`^${parts.join(".*")}$`, "s");
  return (/** @type {string} */ text) => pattern === "" || found.test(text);
}

/** @typedef {{ rows: Row[], fresh: Row[], cursor: string | null, loaded: boolean }} Listed */

/** @param {Listed} listed @param {any} action @returns {Listed} */
function reduce(listed, action) {
  const known = new Map(listed.rows.map((row) => [row.id, row]));
  switch (action.type) {
    case "begin":
      return { rows: [], fresh: [], cursor: null, loaded: false };
    case "page": {
      const more = action.commands.map(rowOf).filter((/** @type {Row} */ row) => action.fits(row.device_id) && !known.has(row.id));
      return { ...listed, rows: [...listed.rows, ...more], cursor: action.cursor, loaded: true };
    }
    case "events": {
      const waiting = new Map(listed.fresh.map((row) => [row.id, row]));
      for (const event of action.events) {
        const id = event.data.command_id;
        const before = known.get(id) ?? waiting.get(id);
        if (!before && !action.wants(event.data.state)) continue;
        (known.has(id) ? known : waiting).set(id, rowAfter(event, before));
      }
      const next = { ...listed, rows: [...known.values()], fresh: [...waiting.values()].slice(-MOST) };
      return action.hold ? next : reduce(next, { type: "show" });
    }
    case "show": {
      const rows = [...listed.fresh, ...listed.rows].sort((one, other) => other.created - one.created);
      return { ...listed, rows: rows.slice(0, MOST), fresh: [] };
    }
    default:
      return listed;
  }
}

/** The rows for a spreadsheet, with times in UTC. @param {Row[]} rows */
function csvOf(rows) {
  const heads = ["id", "created_at", "device_id", "profile", "method", "state", "finished_at", "error"];
  return csv([heads, ...rows.map((row) => [row.id, iso(row.created), row.device_id, row.profile, row.method, row.state, row.ended === null ? "" : iso(row.ended), row.note])]);
}

/** @param {{ row: Row }} props */
function Line({ row }) {
  return html`<tr>
    <td class="when"><${When} at=${Number.isFinite(row.created) ? new Date(row.created).toISOString() : null} /></td>
    <td class="main"><a data-row href=${`#/commands/${row.id}`}>${row.device_id}</a></td>
    <td class="what"><code>${row.method}</code></td>
    <td class="who"><${State} state=${row.state} />${row.percent !== null && html` <span class="percent">${Math.round(row.percent)} %</span>`}</td>
    <td class="took">${row.ended === null ? "" : duration(row.ended - row.created)}</td>
    <td class="note-cell">${row.note}</td>
  </tr>`;
}

/** @param {{ filters: any, change: (some: any) => void }} props */
function Filters({ filters, change }) {
  /** @param {any} event */
  function submit(event) {
    event.preventDefault();
    const found = new FormData(event.currentTarget);
    change(Object.fromEntries([...found].map(([name, value]) => [name, String(value).trim()])));
  }
  return html`<form class="filters" role="search" aria-label="Filter commands" onSubmit=${submit} onChange=${(/** @type {any} */ event) => event.currentTarget.requestSubmit()}>
    <label>State <select name="state" value=${filters.state}>
      <option value="">all</option>
      ${FILTERED_STATES.map((name) => html`<option key=${name} value=${name}>${stateOf(name).word}</option>`)}
    </select></label>
    <label>Device <input name="device" value=${filters.device} placeholder="dock-*" autocomplete="off" spellcheck=${false} /></label>
    <label>Method <input name="method" value=${filters.method} placeholder="cover_*" autocomplete="off" spellcheck=${false} /></label>
    <label>From <select name="from" value=${filters.from}>
      ${Object.entries(SPANS).map(([value, word]) => html`<option key=${value} value=${value}>${word}</option>`)}
    </select></label>
    <button type="submit" class="offstage">Apply</button>
  </form>`;
}

/** @param {{ params: URLSearchParams, go: (params: Record<string, string>) => void }} props */
export function Commands({ params, go }) {
  const filters = { state: params.get("state") ?? "", device: params.get("device") ?? "", method: params.get("method") ?? "", from: params.get("from") ?? "" };
  const [listed, tell] = useReducer(reduce, { rows: [], fresh: [], cursor: null, loaded: false });
  const [error, fail] = useState(/** @type {any} */ (null));
  const [stream, setStream] = useState(/** @type {any} */ ({ state: "connecting", why: null }));
  const [paused, pause] = useState(false);
  const [missed, miss] = useState("");
  const [turn, set] = useState(0);
  const again = () => set((count) => count + 1);
  const live = useRef(/** @type {Live | null} */ (null));
  const held = useRef(false);
  const list = useRef(/** @type {AbortController | null} */ (null));
  const asked = JSON.stringify([filters, turn]);

  /** @param {string | null} cursor */
  async function read(cursor) {
    const signal = list.current?.signal;
    const device = filters.device.includes("*") ? "" : filters.device;
    const path = `v1/commands${query({ limit: PAGE, state: filters.state, device, method: filters.method, since: filters.from, cursor })}`;
    try {
      const page = await call("GET", path, { signal });
      fail(null);
      tell({ type: "page", ...page, fits: fits(filters.device) });
    } catch (problem) {
      if (!signal?.aborted) fail(problem);
    }
  }

  useEffect(() => {
    const gone = new AbortController();
    list.current = gone;
    held.current = false; // the list that somebody pointed at is gone
    tell({ type: "begin" });
    miss("");
    pause(false);
    const { state, device, method } = filters;
    const path = `v1/commands/events${query({ state: isFinal(state) ? state : "", device, method })}`; // others change
    live.current = new Live(path, {
      onEvents(events) {
        const gap = events.find((one) => one.name === "gap");
        if (gap) miss(gap.data.since);
        const told = events.filter((one) => one.data?.command_id);
        if (told.length) tell({ type: "events", events: told, hold: held.current, wants: (/** @type {string} */ one) => !state || one === state });
      },
      onState: (now, why) => setStream({ state: now, why }),
    });
    read(null);
    return () => {
      gone.abort();
      live.current?.close();
    };
  }, [asked]);

  function toggle() {
    live.current?.pause(!paused);
    pause(!paused);
  }

  const hold = (/** @type {boolean} */ yes) => () => {
    held.current = yes;
  };
  const { rows, fresh, cursor, loaded } = listed;
  useOnceMore(rows.length ? null : error, again);
  const filtered = Object.values(filters).some(Boolean);
  return html`<h1 tabindex="-1">Commands</h1>
    <p class="row"><a href="#/held">Held</a><a href="#/latency">Latency</a>${filters.device && !filters.device.includes("*") && html`<a href=${`#/devices/${part(filters.device)}`}>The device ${filters.device}</a>`}</p>
    <${Filters} filters=${filters} change=${go} />
    <${Stream} state=${stream.state} why=${stream.why} paused=${paused} toggle=${toggle} />
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${missed && html`<p class="note">What happened before <${When} at=${missed} /> may be missing here. <button type="button" onClick=${again}>Read the list anew</button></p>`}
    <p class="news" role="status">${fresh.length > 0 && html`<button type="button" onClick=${() => tell({ type: "show" })}>↑ ${fresh.length} new</button>`}</p>
    ${!loaded && !error && html`<${Loading} rows=${8} />`}
    ${loaded && rows.length === 0 && html`<p class="empty">${filtered ? "No command on record fits these filters, of what you may read." : "No command is on record, of what you may read. The first lines of the tutorial send one:"}</p>`}
    ${loaded && rows.length === 0 && !filtered && html`<pre tabindex="0" role="region" aria-label="How to send a command"><code>homing send dock-1 cover_open</code></pre>`}
    ${rows.length > 0 &&
    html`<table class="rows commands" onMouseEnter=${hold(true)} onMouseLeave=${hold(false)} onFocusIn=${hold(true)} onFocusOut=${hold(false)}>
      <caption class="offstage">Commands, newest first</caption>
      <thead><tr><th scope="col">Time</th><th scope="col">Device</th><th scope="col">Method</th><th scope="col">State</th><th scope="col">Took</th><th scope="col">Error</th></tr></thead>
      <tbody>${rows.map((row) => html`<${Line} key=${row.id} row=${row} />`)}</tbody>
    </table>`}
    <p class="row">
      ${cursor && rows.length < MOST && html`<button type="button" onClick=${() => read(cursor)}>Older</button>`}
      ${loaded && html`<span class="muted">${counted(rows.length, "command")} shown${rows.length >= MOST ? ", as many as this page keeps" : ""}</span>`}
      ${rows.length > 0 && html`<${Copy} text=${() => csvOf(rows)} label="Copy as CSV" />`}
    </p>`;
}
