/** The key that a page calls the API with: made when it is first needed, revoked at the end. */

import { csrfToken } from "./dom.js";

// A key that ends so soon is not begun with.
const SPARE_MS = 60_000;
// Gateways learn of a new key within about a second; until then they do not know it.
const YOUNG_MS = 5_000;
const AGAIN_MS = 400;
const UNKNOWN_KEY = 401;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class SessionKey {
  #options;
  #key = null;
  #team = null;
  #madeAt = 0;

  /** `options` are what the page's view says: `purpose`, `open_url` and `close_url`. */
  constructor(options) {
    this.#options = options;
    addEventListener("pagehide", () => this.close());
  }

  /** What is known of the key, but for its text; null while there is none. */
  get shown() {
    if (!this.#key) return null;
    const { prefix, team, expires_at: end } = this.#key;
    return { prefix, team, until: new Date(end) };
  }

  /** Call `ask` with the text of a key of the team; what it returns has a `status`.
   *
   * Throws an Error if no key is to be had, and what `ask` throws.
   */
  async call(team, ask) {
    const { key } = await this.#open(team);
    for (;;) {
      const answer = await ask(key);
      if (answer.status !== UNKNOWN_KEY || Date.now() - this.#madeAt > YOUNG_MS) return answer;
      await pause(AGAIN_MS);
    }
  }

  /** Revoke the key, if there is one. What it was used for until now goes on. */
  close() {
    if (!this.#key) return;
    const form = new URLSearchParams({ id: this.#key.id });
    this.#key = null;
    // It outlives the page. Should it fail, the key ends by itself.
    this.#post(this.#options.close_url, form, { keepalive: true }).catch(() => {});
  }

  async #open(team) {
    if (this.#key && this.#team === team && this.shown.until - Date.now() > SPARE_MS) return this.#key;
    this.close();
    const form = new URLSearchParams({ team, purpose: this.#options.purpose });
    const response = await this.#post(this.#options.open_url, form);
    const said = await response.json().catch(() => ({}));
    if (!said.key) throw new Error(said.error ?? `No key could be made (${response.status}).`);
    this.#key = said;
    this.#team = team;
    this.#madeAt = Date.now();
    return said;
  }

  #post(url, body, more = {}) {
    return fetch(url, { method: "POST", body, headers: { "X-CSRFToken": csrfToken() }, ...more });
  }
}
