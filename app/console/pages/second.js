/** The decision of a second person about a command that waits for one. */

import { Trouble, When, html } from "../parts.js";
import { useRef } from "../vendor/hooks.js";
import { call, part, written } from "../api.js";
import { Confirm } from "../confirm.js";
import { useRead } from "../read.js";

/** @param {{ proposal: any, decision: string, word: string, text: any, done: () => void }} props */
function Decide({ proposal, decision, word, text, done }) {
  const { command, fingerprint } = proposal;
  const note = useRef(/** @type {HTMLInputElement | null} */ (null));
  /** What was looked at is what is decided about: the node compares the fingerprint. */
  const run = () =>
    call("POST", `v1/commands/${part(command.id)}/approvals`, {
      body: { decision, note: note.current?.value.trim() ?? "" },
      headers: { "If-Match": `"${fingerprint}"` },
    });
  return html`<${Confirm} label=${`${word} …`} title=${`${word} ${command.method} on ${command.device_id}?`} text=${text} does=${`${word} it`} verb=${["held", decision, command.id]} run=${run} done=${done}>
    <pre tabindex="0" role="region" aria-label="The command"><code>${written({ method: command.method, params: command.params, device: command.device_id, profile: command.profile }, 2)}</code></pre>
    <label>Note <input ref=${note} maxlength="500" autocomplete="off" /></label>
  <//>`;
}

/** @param {{ command: any, done: () => void }} props */
export function SecondPerson({ command, done }) {
  const { found: proposal, error, again } = useRead(`v1/commands/${part(command.id)}/approvals`);
  const until = command.hold.approval?.until;
  return html`<section aria-label="Second person"><h2>A second person decides</h2>
    <p>${proposal ? html`<strong>${proposal.asked_by ?? "Somebody"}</strong> has asked for this command, and it is sent once another person has approved it.` : "It is sent once another person has approved it."}${until && html` There is time for that until <${When} at=${until} />.`}</p>
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${proposal && !proposal.may_decide && html`<p class="muted">You do not decide: ${proposal.why_not}.</p>`}
    ${proposal?.may_decide &&
    html`<p class="row">
      <${Decide} proposal=${proposal} decision="approve" word="Approve" text="It is sent as soon as it can be, as that of whoever has asked for it." done=${done} />
      <${Decide} proposal=${proposal} decision="refuse" word="Refuse" text="It ends as cancelled, and its caller is told your note." done=${done} />
    </p>`}
  </section>`;
}
