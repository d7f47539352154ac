/** The page of one batch: told of each change over a WebSocket, until the batch has ended. */

import { byId, refresh } from "./dom.js";

const AGAIN_MS = 2000;
const WHY_EVERY_MS = 5000;
const MICROS = 1_000_000;
const ENDED = 1000;
// From here on, closing codes say that trying again is of no use.
const NOT_TOLD = 4000;

const number = new Intl.NumberFormat("en");
const units = new Intl.NumberFormat("en", { minimumFractionDigits: 6 });

function duration(seconds) {
  if (seconds < 90) return `about ${Math.ceil(seconds)} s left`;
  if (seconds < 5400) return `about ${Math.ceil(seconds / 60)} min left`;
  return `about ${(seconds / 3600).toFixed(1)} h left`;
}

function show(progress) {
  const ended = progress.completed + progress.failed + progress.cancelled + progress.expired;
  for (const field of document.querySelectorAll("#batch [data-field]")) {
    const name = field.dataset.field;
    if (name === "cost_micros") field.textContent = units.format(progress.cost_micros / MICROS);
    else field.textContent = number.format(name === "ended" ? ended : progress[name]);
  }
  const bar = byId("progress");
  bar.max = progress.total || 1;
  bar.value = ended;
  bar.classList.toggle("op-without", ended - progress.completed > progress.completed);
  byId("time-left").textContent = progress.time_left_s === null ? "" : duration(progress.time_left_s);
}

async function take(progress) {
  // What else changes with the status, the server says.
  if (progress.status !== byId("batch").dataset.status) await refresh("batch");
  show(progress);
}

function watch() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(`${scheme}//${location.host}/admin/ws/batches/${byId("batch").dataset.id}`);
  // One after another: a refresh takes a moment.
  let last = Promise.resolve();
  socket.addEventListener("open", () => (byId("connection").textContent = "live"));
  socket.addEventListener("message", ({ data }) => {
    last = last.then(() => take(JSON.parse(data))).catch(() => {});
  });
  socket.addEventListener("close", async ({ code }) => {
    await last;
    if (code === ENDED) return void refresh("batch").catch(() => {});
    const again = code < NOT_TOLD;
    byId("connection").textContent = again ? "not connected, trying again" : "not told any more";
    if (again) setTimeout(watch, AGAIN_MS);
  });
}

/** Why it stands still does not come over the socket: engines come and go without the batch. */
async function askWhy() {
  if (!byId("batch").hasAttribute("data-running")) return;
  // A page that nobody sees asks for nothing.
  if (!document.hidden) await refresh("waiting").catch(() => {});
  setTimeout(askWhy, WHY_EVERY_MS);
}

if (byId("batch").hasAttribute("data-running")) {
  watch();
  setTimeout(askWhy, WHY_EVERY_MS);
}
