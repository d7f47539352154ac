/**
 * The way to /admin/live. It comes back by itself: soon at first, then at longer intervals, and at
 * once when the page is looked at again or the network is back. Nobody is told anything while the
 * page is out of sight for long.
 */

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 10_000;
const QUIET_MS = 20_000;
const ANSWER_MS = 5_000;
const OUT_OF_SIGHT_MS = 60_000;
const DENIED = 4401;

export class Connection {
  #url;
  #take;
  #tell;
  #socket = null;
  #waitMs = FIRST_WAIT_MS;
  #again = 0;
  #quiet = 0;
  #sight = 0;
  #denied = false;

  /** `take` gets each message, `tell` one of: live, lost, paused, denied. */
  constructor(path, take, tell) {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.#url = `${scheme}//${location.host}${path}`;
    this.#take = take;
    this.#tell = tell;
    addEventListener("online", () => this.#connectNow());
    document.addEventListener("visibilitychange", () => this.#look());
    this.#connect();
  }

  #connect() {
    clearTimeout(this.#again);
    if (this.#socket || this.#denied) return;
    const socket = (this.#socket = new WebSocket(this.#url));
    socket.addEventListener("message", ({ data }) => this.#hear(data));
    socket.addEventListener("close", ({ code }) => this.#lose(socket, code));
    this.#listen(ANSWER_MS);
  }

  #connectNow() {
    this.#waitMs = FIRST_WAIT_MS;
    this.#connect();
  }

  #hear(data) {
    this.#waitMs = FIRST_WAIT_MS;
    this.#listen(QUIET_MS);
    this.#tell("live");
    this.#take(JSON.parse(data));
  }

  /** After so long without a word ask for one, and give up if there is none. */
  #listen(patienceMs) {
    clearTimeout(this.#quiet);
    const socket = this.#socket;
    this.#quiet = setTimeout(() => {
      if (socket.readyState === WebSocket.OPEN && patienceMs === QUIET_MS) {
        socket.send("?");
        this.#listen(ANSWER_MS);
      } else {
        socket.close();
        this.#lose(socket, 1006);
      }
    }, patienceMs);
  }

  #lose(socket, code) {
    if (socket !== this.#socket) return;
    this.#socket = null;
    clearTimeout(this.#quiet);
    if (code === DENIED) {
      this.#denied = true;
      return this.#tell("denied");
    }
    if (document.hidden && !this.#sight) return this.#tell("paused");
    this.#tell("lost");
    this.#again = setTimeout(() => this.#connect(), this.#waitMs * (0.5 + Math.random()));
    this.#waitMs = Math.min(2 * this.#waitMs, LONGEST_WAIT_MS);
  }

  #look() {
    clearTimeout(this.#sight);
    this.#sight = 0;
    if (!document.hidden) return this.#connectNow();
    this.#sight = setTimeout(() => {
      this.#sight = 0;
      clearTimeout(this.#again);
      this.#socket?.close();
    }, OUT_OF_SIGHT_MS);
  }
}
