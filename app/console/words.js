/** Words for what nodes say in codes. A code that is not here is shown as it is. */

/** @typedef {{ icon: string, word: string, tone: string }} Word */

/** @type {Record<string, Word>} */
const STATES = {
  held: { icon: "‖", word: "held", tone: "open" },
  pending: { icon: "○", word: "on record", tone: "open" },
  sent: { icon: "○", word: "sent", tone: "open" },
  acknowledged: { icon: "○", word: "with the broker", tone: "open" },
  running: { icon: "◔", word: "running", tone: "open" },
  succeeded: { icon: "✔", word: "succeeded", tone: "good" },
  failed: { icon: "✖", word: "refused", tone: "bad" },
  timed_out: { icon: "◷", word: "timed out", tone: "bad" },
  cancelled: { icon: "⊘", word: "cancelled", tone: "quiet" },
  unsent: { icon: "▲", word: "not sent", tone: "warn" },
};
const FINAL = new Set(["succeeded", "failed", "timed_out", "cancelled", "unsent"]);
/** Those that lists are filtered by. */
export const FILTERED_STATES = ["held", "running", ...FINAL];

/** @type {Record<string, Word>} */
const RUNS = {
  waiting: { icon: "○", word: "waits for its time", tone: "open" },
  running: STATES.running,
  paused: { icon: "‖", word: "paused", tone: "warn" },
  finishing: { icon: "◔", word: "ending", tone: "open" },
  aborting: { icon: "◔", word: "aborting", tone: "warn" },
  succeeded: STATES.succeeded,
  failed: { icon: "✖", word: "ended, not all succeeded", tone: "bad" },
  lapsed: { icon: "◷", word: "its time was over", tone: "bad" },
  aborted: { icon: "⊘", word: "aborted", tone: "quiet" },
};

/** @type {Record<string, Word>} */
export const TARGETS = {
  waiting: { icon: "○", word: "no turn yet", tone: "quiet" },
  handed: { icon: "◔", word: "in flight", tone: "open" },
  succeeded: STATES.succeeded,
  failed: STATES.failed,
  timed_out: STATES.timed_out,
  unreachable: { icon: "▲", word: "was away", tone: "warn" },
  unsent: STATES.unsent,
  cancelled: STATES.cancelled,
  skipped: { icon: "⊘", word: "skipped", tone: "quiet" },
  unknown: { icon: "?", word: "end unknown", tone: "warn" },
};

/** @type {Record<string, Word>} */
const DELIVERIES = {
  waiting: { icon: "◔", word: "waiting", tone: "open" },
  delivered: { icon: "✔", word: "delivered", tone: "good" },
  given_up: { icon: "✖", word: "given up", tone: "bad" },
};

/** Whether a device is there. @param {boolean | null} online @returns {Word} */
export function presenceOf(online) {
  if (online === null) return { icon: "?", word: "presence unknown", tone: "quiet" };
  return online ? { icon: "✔", word: "online", tone: "good" } : { icon: "✖", word: "offline", tone: "bad" };
}

/** @param {Record<string, Word>} words @param {string} code @returns {Word} */
export function wordOf(words, code) {
  return Object.hasOwn(words, code) ? words[code] : { icon: "?", word: code, tone: "quiet" };
}

/** @param {string} state */
export function stateOf(state) {
  return wordOf(STATES, state);
}

/** @param {string} state */
export function runOf(state) {
  return wordOf(RUNS, state);
}

/** @param {string} progress */
export function deliveryOf(progress) {
  return wordOf(DELIVERIES, progress);
}

/** @param {string} state */
export function targetOf(state) {
  return wordOf(TARGETS, state);
}

/** @param {string} state */
export function isFinal(state) {
  return FINAL.has(state);
}

/** @type {Record<string, { icon: string, word: string, name: string, tone: string }>} */
const PARTIES = {
  homing: { icon: "✖", word: "Homing", name: "homing", tone: "bad" },
  broker: { icon: "✖", word: "The broker", name: "broker", tone: "bad" },
  device: { icon: "▲", word: "Devices", name: "device", tone: "warn" },
  caller: { icon: "▲", word: "Callers", name: "caller", tone: "warn" },
};
const NOBODY = { icon: "✔", word: "All is well", name: "nobody", tone: "good" };

/** @param {string | null} party */
export function partyOf(party) {
  if (party === null) return NOBODY;
  return Object.hasOwn(PARTIES, party) ? PARTIES[party] : { icon: "?", word: party, name: party, tone: "quiet" };
}

/** @type {Record<string, string>} */
const VERDICTS = {
  answered: "answered",
  device_refused: "refused by the device",
  probe_confirmed: "settled by the state of the device",
  probe_verified: "timed out, and found out afterwards",
  cancelled: "cancelled",
  held: "waits to be sent",
  not_approved: "not approved in time",
  refused_by_second: "refused by a second person",
  superseded: "a later command took its place",
  not_allowed_any_more: "not allowed any more",
  hold_expired: "its hold ended",
  waiting: "waiting",
  not_handed_over: "not handed over to the broker",
  not_acknowledged: "not acknowledged by the broker",
  no_subscriber: "nobody was subscribed",
  wrong_profile: "wrong profile",
  silent: "the device is silent",
  answered_late: "answered late",
  answered_elsewhere: "answered elsewhere",
  id_changed: "answered with another id",
  undecodable: "the answer cannot be read",
  node_died: "the node died",
  no_idea: "no idea",
};

/** @param {string | null} code */
export function verdictOf(code) {
  if (code === null) return "not explained yet";
  return Object.hasOwn(VERDICTS, code) ? VERDICTS[code] : code;
}

/** @type {Record<string, string>} */
const STEPS = {
  registered: "on record",
  claimed: "claimed, to be sent",
  given_back: "the claim was undone",
  published: "published",
  publish_failed: "not published",
  acknowledged: "acknowledged by the broker",
  progressed: "progress",
  delivered: "handed to the caller",
  missed: "a message that answered no command",
  late: "a late answer",
  verified: "found out afterwards",
};

/** @param {string} what */
export function stepOf(what) {
  return Object.hasOwn(STEPS, what) ? STEPS[what] : stateOf(what).word;
}

/** What held commands wait for. @param {string} what */
export function waitOf(what) {
  if (what === "approval") return "a second person";
  return what === "device" ? "the device to be there" : what;
}

/** @type {Record<string, string>} */
const CHECKS = { store: "store", mqtt: "broker", broker: "own broker", cluster: "cluster", canary: "canary", access: "access" };

/** @param {string} name */
export function checkOf(name) {
  return Object.hasOwn(CHECKS, name) ? CHECKS[name] : name;
}

/** Whether a check says that a part can do its work; behind `ok, but` it says what to look at. @param {string} said */
export function isWell(said) {
  return said === "ok" || said.startsWith("ok, but ");
}

/** @type {Record<string, { word: string, tone: string }>} */
export const STREAM = {
  connecting: { word: "connecting …", tone: "quiet" },
  live: { word: "live", tone: "good" },
  broken: { word: "connection lost, trying again", tone: "warn" },
  paused: { word: "paused", tone: "quiet" },
  hidden: { word: "asleep in the background", tone: "quiet" },
  ended: { word: "ended", tone: "quiet" },
};

/** A count, as people write it; older nodes may not know it. @param {number} count */
export function many(count) {
  return count?.toLocaleString("en") ?? "?";
}

/** @param {number} count @param {string} one @param {string} [others] */
export function counted(count, one, others = `${one}s`) {
  return `${many(count)} ${count === 1 ? one : others}`;
}

/** A sentence begins with a capital. @param {string} text */
export function capital(text) {
  return text ? text[0].toUpperCase() + text.slice(1) : "";
}

/** How many targets of a run have had their turn, and ended. @param {Record<string, number>} counts */
export function endedOf(counts) {
  return Object.entries(counts).reduce((sum, [state, count]) => (["waiting", "handed", "skipped"].includes(state) ? sum : sum + count), 0);
}

/** True if nothing follows. @param {string} state of a run */
export function isOver(state) {
  return ["succeeded", "failed", "lapsed", "aborted"].includes(state);
}

/** The outcomes that a webhook may be told of. */
export const HOOK_EVENTS = ["command.succeeded", "command.failed", "command.timed_out", "command.cancelled", "command.unsent", "command.late", "command.verified", "command.approval_asked"];

/** @param {any} hook @returns {Word} */
export function hookOf(hook) {
  return hook.enabled ? { icon: "✔", word: "enabled", tone: "good" } : { icon: "▲", word: "disabled", tone: "warn" };
}

/** @param {any} key @param {number} now in milliseconds @returns {Word} */
export function keyOf(key, now) {
  if (key.revoked_at) return { icon: "⊘", word: "revoked", tone: "quiet" };
  if (key.expires_at && Date.parse(key.expires_at) <= now) return { icon: "◷", word: "expired", tone: "quiet" };
  return { icon: "✔", word: "counts", tone: "good" };
}

/** @param {any} principal @returns {Word} */
export function principalOf(principal) {
  return principal.disabled ? { icon: "⊘", word: "disabled", tone: "warn" } : { icon: "✔", word: principal.kind ?? "enabled", tone: "good" };
}

/** @param {any} decision @returns {Word} */
export function decisionOf(decision) {
  return decision.allowed ? { icon: "✔", word: "Yes", tone: "good" } : { icon: "✖", word: "No", tone: "bad" };
}

/** What rules allow or deny. */
export const ACTIONS = ["send", "read", "cancel", "fleet", "stream", "publish", "webhooks", "queues", "consume", "access", "audit", "nodes", "metrics", "trace", "approve", "override"];
