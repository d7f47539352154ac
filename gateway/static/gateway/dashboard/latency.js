/** The times that requests saw, against those that they are to see. */

import { byId } from "../dom.js";
import { Chart } from "./chart.js";
import { count, time } from "./format.js";
import { dress, fill, list, row, text } from "./page.js";
import { pastMinutes } from "./traffic.js";

export const kinds = ["latency", "model", "minute"];

const SHARES = ["p50", "p95", "p99"];
const DASHES = [[2, 3], undefined, [8, 4]];
const picker = byId("latency-model");
const chart = (name) => new Chart(document.querySelector(`[data-chart=${name}]`), time, { points: true });
const first = chart("first");
const between = chart("between");
export const charts = [first, between];

let last = null;
// By somebody, or for them; it stays so then, whatever comes and goes.
let isChosen = false;
picker.addEventListener("change", () => {
  isChosen = true;
  if (last) draw(last);
});

export function show(state) {
  last = state;
  const latencies = state.one("latency") ?? [];
  list(byId("latencies"), latencies, ({ model, lane }) => `${lane} ${model}`, () => row(11, 2), (node, item) =>
    fillTimes(node, item),
  );
  for (const [place, item] of latencies.entries()) judge(byId("latencies").rows[place], item, state);
  const models = [...state.all("model").keys()].sort();
  list(picker, models, (model) => model, makeOption, () => {});
  prefer(models, state);
  draw(state);
}

/** Choose a model that is served, once there is one: charts of one that is not are empty. */
function prefer(models, state) {
  const ready = isChosen ? undefined : models.find((model) => state.one(`model/${model}`).engines.ready > 0);
  if (ready === undefined) return;
  picker.value = ready;
  isChosen = true;
}

function makeOption(model) {
  const option = document.createElement("option");
  option.value = option.textContent = model;
  return option;
}

function fillTimes({ cells }, { model, lane, requests, first_token, between_tokens }) {
  fill(cells, [model, lane, count(requests), ...first_token.map(time)]);
  between_tokens.forEach((value, place) => text(cells[7 + place], time(value)));
}

/** Show the targets, which are realtime's, and by p95 whether they are met: in words, not only in colour. */
function judge({ cells }, { model, lane, first_token, between_tokens }, state) {
  const targets = lane === "realtime" ? state.one(`model/${model}`) : undefined;
  for (const [cell, seen, target] of [
    [cells[6], first_token[1], targets?.first_token_target_s],
    [cells[10], between_tokens[1], targets?.between_tokens_target_s],
  ]) {
    const isKnown = target !== null && target !== undefined && seen !== null;
    const isMet = isKnown && seen <= target;
    text(cell, isKnown ? `${time(target)} ${isMet ? "met" : "missed"}` : time(target));
    dress(cell, isKnown ? `op-number ${isMet ? "op-good" : "op-bad"}` : "op-number");
  }
}

function draw(state) {
  const model = picker.value;
  const targets = state.one(`model/${model}`);
  plot(first, "first_token", model, targets?.first_token_target_s, state);
  plot(between, "between_tokens", model, targets?.between_tokens_target_s, state);
}

function plot(drawn, field, model, target, state) {
  const minutes = state.all("minute");
  const times = pastMinutes();
  const series = SHARES.map((label, place) => ({ label, color: `--${label}`, dash: DASHES[place] }));
  const columns = SHARES.map((_, place) => times.map((at) => minutes.get(String(at))?.[field][model]?.[place] ?? null));
  if (target !== null && target !== undefined) {
    series.push({ label: "target", color: "--target", dash: [12, 6] });
    columns.push(times.map(() => target));
  }
  drawn.set(series, [times, ...columns]);
}
