/** The dashboard: takes what the server tells, and shows what has changed of it. */

import { byId, element } from "../dom.js";
import * as alerts from "./alerts.js";
import * as batches from "./batches.js";
import { Connection } from "./connection.js";
import * as engines from "./engines.js";
import * as errors from "./errors.js";
import * as latency from "./latency.js";
import * as now from "./now.js";
import { mark, setClock, text } from "./page.js";
import { State } from "./state.js";
import * as traffic from "./traffic.js";
import * as usage from "./usage.js";

const VIEWS = [alerts, now, traffic, latency, engines, batches, usage, errors];
const MINUTE_MS = 60_000;
const STATES = {
  live: "Live",
  lost: "Not connected: these figures are as they were. Trying again …",
  paused: "Paused while the page is out of sight",
  denied: "You are not signed in any more.",
};

const board = byId("board");
const connection = byId("connection");
const state = new State();
let changed = new Set();
let frame = 0;

function take(message) {
  setClock(message.at_s);
  for (const kind of state.take(message)) changed.add(kind);
  if (changed.size && !document.hidden) frame ||= requestAnimationFrame(show);
}

function show() {
  frame = 0;
  const kinds = changed;
  changed = new Set();
  for (const view of VIEWS) {
    if (view.kinds.some((kind) => kinds.has(kind))) view.show(state);
  }
}

function tell(name) {
  mark(connection, "state", name);
  text(connection, STATES[name]);
  if (name === "denied") {
    const login = `${board.dataset.login}?next=${encodeURIComponent(location.pathname)}`;
    connection.append(" ", element("a", { href: login }, "Sign in"));
  }
}

/** Draw with the colours of the theme that the page has now. */
function recolour() {
  for (const chart of [...traffic.charts, ...latency.charts]) chart.forget();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && changed.size) frame ||= requestAnimationFrame(show);
});
new MutationObserver(recolour).observe(document.documentElement, {
  attributes: true,
  attributeFilter: ["class", "data-theme"],
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
// Time passes in the charts though nothing is told.
setInterval(() => {
  if (document.hidden || !state.has("alerts")) return;
  traffic.show(state);
  latency.show(state);
}, MINUTE_MS);

new Connection(board.dataset.live, take, tell);
