/** The figures of the last minute, in all and by lane. */

import { byId } from "../dom.js";
import { count, rate } from "./format.js";
import { fill, list, row, text, tick } from "./page.js";

export const kinds = ["rates", "queue", "engine", "errors"];
export const LANES = ["realtime", "flex", "background", "batch"];

const figures = Object.fromEntries(
  [...document.querySelectorAll("[data-figure]")].map((node) => [node.dataset.figure, node]),
);
const NOTHING = { requests_per_s: 0, input_tokens_per_s: 0, output_tokens_per_s: 0 };

const sum = (items, name) => items.reduce((total, item) => total + (item[name] ?? 0), 0);

export function show(state) {
  const rates = state.one("rates") ?? {};
  const queues = [...state.all("queue").values()];
  for (const name of Object.keys(NOTHING)) text(figures[name], rate(sum(Object.values(rates), name)));
  text(figures.running, count(sum(queues, "running")));
  text(figures.waiting, count(sum(queues, "waiting")));
  const engines = [...state.all("engine").values()];
  const ready = engines.filter((engine) => engine.state === "ready").length;
  text(figures.ready, ready === engines.length ? count(ready) : `${ready} of ${engines.length}`);
  text(figures.failed, count(sum(state.one("errors") ?? [], "requests")));
  const lanes = LANES.map((lane) => ({
    lane,
    rates: rates[lane] ?? NOTHING,
    queue: state.one(`queue/${lane}`) ?? { running: 0, waiting: 0, since_s: null },
  }));
  list(byId("lanes"), lanes, ({ lane }) => lane, () => row(7, 1), fillLane);
}

function fillLane({ cells }, { lane, rates, queue }) {
  fill(cells, [
    lane,
    count(queue.running),
    count(queue.waiting),
    "",
    rate(rates.requests_per_s),
    rate(rates.input_tokens_per_s),
    rate(rates.output_tokens_per_s),
  ]);
  tick(cells[3], queue.waiting ? queue.since_s : null);
}
