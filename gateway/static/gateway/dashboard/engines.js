/** A card for each engine, those that are in trouble first. */

import { byId } from "../dom.js";
import { count, percent, rate } from "./format.js";
import { hide, list, mark, text, tick } from "./page.js";

export const kinds = ["engine"];

const ORDER = ["missing", "failed", "draining", "loading", "ready"];
const LANES = ["realtime", "flex", "batch"];
// Rows of batches and background responses share what realtime and flex leave.
const NAMES = { realtime: "realtime", flex: "flex", batch: "batch and background" };
const filter = byId("engine-filter");
const template = byId("engine-card");

let last = null;
filter.addEventListener("input", () => last && show(last));

const compare = (one, other) =>
  ORDER.indexOf(one.state) - ORDER.indexOf(other.state) ||
  one.model.localeCompare(other.model) ||
  one.host.localeCompare(other.host) ||
  one.id.localeCompare(other.id);

export function show(state) {
  last = state;
  const wanted = filter.value.trim().toLowerCase();
  const engines = [...state.all("engine").values()];
  const shown = engines
    .filter(({ model, host, state: now }) => `${model} ${host} ${now}`.toLowerCase().includes(wanted))
    .sort(compare);
  list(byId("engines"), shown, ({ id }) => id, make, fillCard);
  text(byId("engines-count"), wanted ? `${shown.length} of ${engines.length}` : String(engines.length));
  hide(byId("no-engines"), shown.length > 0);
}

const parts = new WeakMap();

function make() {
  const card = template.content.firstElementChild.cloneNode(true);
  const found = [...card.querySelectorAll("[data-of]")].map((node) => [node.dataset.of, node]);
  const named = Object.fromEntries(found);
  for (const lane of LANES) named.slots.appendChild(document.createElement("i")).className = `lane-${lane}`;
  parts.set(card, named);
  return card;
}

function fillCard(card, engine) {
  const of = parts.get(card);
  mark(card, "state", engine.state);
  text(of.state, engine.state);
  text(of.model, engine.model);
  text(of.host, `${engine.host}, process ${engine.pid}`);
  text(of.reason, engine.reason);
  text(of.lanes, slots(engine));
  LANES.forEach((lane, place) => {
    const width = `${(100 * (engine.running[lane] ?? 0)) / Math.max(1, engine.capacity)}%`;
    const bar = of.slots.children[place];
    if (bar.style.width !== width) bar.style.width = width;
  });
  text(of.kv, percent(engine.kv_use));
  text(of.hits, percent(engine.prefix_hit_rate));
  text(of.pace, rate(engine.output_tokens_per_s));
  text(of.canary, engine.canary === "none" ? "not set" : engine.canary);
  if (engine.missing_since_s !== null) text(of.reason, "It stopped answering.");
  tick(of.up, engine.started_at_s);
}

function slots({ running, capacity, kept }) {
  const used = LANES.filter((lane) => running[lane]);
  const by = used.map((lane) => `${running[lane]} ${NAMES[lane]}`).join(", ");
  const taken = used.reduce((total, lane) => total + running[lane], 0);
  const free = kept ? `; ${count(kept)} kept free for realtime and flex` : "";
  return `${count(taken)} in use of ${count(capacity)}${by ? ` (${by})` : ""}${free}`;
}
