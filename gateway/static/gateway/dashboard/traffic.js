/** The charts of requests and tokens by lane. */

import { rate } from "./format.js";
import { Chart } from "./chart.js";
import { LANES } from "./now.js";
import { nowS } from "./page.js";

export const kinds = ["minute", "rates"];

const MINUTES = 60;
const DASHES = { realtime: undefined, flex: [8, 4], background: [2, 3], batch: [10, 3, 2, 3] };

const chart = (name) => new Chart(document.querySelector(`[data-chart=${name}]`), rate);
const requests = chart("requests");
const tokens = chart("tokens");
export const charts = [requests, tokens];

/** The minutes that are over, oldest first, by the server's clock. */
export function pastMinutes() {
  const current = Math.floor(nowS() / 60) * 60;
  return Array.from({ length: MINUTES }, (_, place) => current + (place - MINUTES) * 60);
}

const line = (lane, label = lane, dash = DASHES[lane]) => ({ label, color: `--lane-${lane}`, dash });

export function show(state) {
  const minutes = state.all("minute");
  const rates = state.one("rates") ?? {};
  const past = pastMinutes();
  const times = [...past, Math.floor(nowS())];
  const column = (field, lane) => [
    ...past.map((at) => (minutes.get(String(at))?.[field][lane] ?? 0) / 60),
    rates[lane]?.[`${field}_per_s`] ?? 0,
  ];
  // Lanes that nobody uses take no room.
  const used = LANES.filter((lane) => lane === "realtime" || column("requests", lane).some(Boolean));
  requests.set(used.map((lane) => line(lane)), [times, ...used.map((lane) => column("requests", lane))]);
  tokens.set(
    used.flatMap((lane) => [line(lane, `${lane}, output`, undefined), line(lane, `${lane}, input`, [3, 3])]),
    [times, ...used.flatMap((lane) => [column("output_tokens", lane), column("input_tokens", lane)])],
  );
}
