/** Logging in, by a key or by name and password. What is typed goes to the node once, and is kept by nobody here. */

import { Trouble, html } from "../parts.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { call } from "../api.js";
import { remember } from "../person.js";

const BY_KEY = "key";
const BY_PASSWORD = "password";

/** Why an issuer's login came to nothing; the node names the reason in the address. @type {Record<string, string>} */
const FAULTS = {
  denied: "The issuer has not logged you in.",
  stale: "This login was begun in another browser, or more than ten minutes ago. Begin again.",
  away: "The issuer does not answer. Try again, or log in by a key.",
  refused: "The issuer has logged you in, but its token does not count here. Ask whoever runs Homing.",
  large: "The issuer's token is too large for a cookie. Ask whoever runs Homing.",
};

/** The reason in the address, which is taken out of it. */
function faultOfAddress() {
  const named = new URLSearchParams(location.search).get("login");
  if (named === null) return "";
  history.replaceState(null, "", location.pathname + location.hash);
  return Object.hasOwn(FAULTS, named) ? String(FAULTS[named]) : "";
}

/** A link to the issuer where this node has one. It is no call: the browser itself goes there, and comes back. */
function AtIssuer() {
  const [issuer, set] = useState("");
  const [fault] = useState(faultOfAddress);
  useEffect(() => {
    call("GET", "console/session").then(
      (offered) => set(String(offered?.issuer ?? "")),
      () => set(""),
    );
  }, []);
  return html`${fault && html`<p class="note" role="alert">${fault}</p>`}
    ${issuer &&
    html`<p class="row"><a class="button" href="session/oidc" onClick=${remember}>Log in at ${issuer}</a></p>`}`;
}

/** @param {{ by: string }} props */
function Fields({ by }) {
  if (by === BY_KEY) {
    return html`<label>Key <input name="key" type="password" required maxlength="256" autocomplete="off" spellcheck=${false} /></label>`;
  }
  return html`<label>Name <input name="name" required maxlength="256" autocomplete="username" autocapitalize="none" spellcheck=${false} /></label>
    <label>Password <input name="password" type="password" required maxlength="256" autocomplete="current-password" /></label>
    <label>Tenant <input name="tenant" maxlength="256" autocomplete="organization" placeholder="none" spellcheck=${false} /></label>`;
}

/** @param {{ why: string, done: () => void }} props */
export function Login({ why, done }) {
  const [by, change] = useState(BY_KEY);
  const [error, fail] = useState(/** @type {any} */ (null));
  const [busy, work] = useState(false);
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  const clear = location.protocol === "http:" && !/^(localhost|127\.|\[::1\])/.test(location.hostname);

  /** @param {any} event */
  async function submit(event) {
    event.preventDefault();
    if (busy) return;
    const found = [...new FormData(event.currentTarget)].map(([name, value]) => [name, String(value).trim()]);
    work(true);
    fail(null);
    try {
      await call("POST", "console/session", { body: Object.fromEntries(found.filter(([, value]) => value)) });
      form.current?.reset();
      done();
    } catch (problem) {
      fail(problem);
      work(false);
    }
  }

  return html`<section class="login" aria-labelledby="login-title">
    <h1 tabindex="-1" id="login-title">Log in</h1>
    <p>${why}</p>
    ${clear && html`<p class="note">This connection is not encrypted: whoever is on the way can read what you send.</p>`}
    <${AtIssuer} />
    <form ref=${form} onSubmit=${submit}>
      <fieldset class="row">
        <legend class="offstage">Log in by</legend>
        <label><input type="radio" name="by" value=${BY_KEY} form="" checked=${by === BY_KEY} onChange=${() => change(BY_KEY)} /> a key</label>
        <label><input type="radio" name="by" value=${BY_PASSWORD} form="" checked=${by === BY_PASSWORD} onChange=${() => change(BY_PASSWORD)} /> name and password</label>
      </fieldset>
      <${Fields} key=${by} by=${by} />
      <p class="row"><button type="submit" class="chief" aria-disabled=${busy}>${busy ? "Logging in …" : "Log in"}</button></p>
    </form>
    ${error && html`<${Trouble} error=${error} />`}
    <p class="muted">The login lasts for twelve hours at most, and no longer than the key. It ends at once when it, the key or the password is taken away.</p>
  </section>`;
}
