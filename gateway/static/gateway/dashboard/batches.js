/** Open batches, those whose window ends first at the top. */

import { byId, element } from "../dom.js";
import { count, span } from "./format.js";
import { dress, hide, list, row, text, tick } from "./page.js";

export const kinds = ["batch"];

const NOBODY = "00000000-0000-0000-0000-000000000000";
const address = byId("board").dataset.batch;
const section = document.querySelector("[data-section=batch]");

const ahead = (passed) => (passed > 0 ? `${span(passed)} ago` : `in ${span(-passed)}`);

export function show(state) {
  const open = state.one("batch");
  // Who may not see batches is told nothing of them.
  hide(section, open === undefined);
  const batches = [...state.all("batch")].filter(([id]) => id).map(([, batch]) => batch);
  batches.sort((one, other) => one.expires_at_s - other.expires_at_s || one.id.localeCompare(other.id));
  list(byId("batches"), batches, ({ id }) => id, make, fillBatch);
  const all = open?.open ?? 0;
  text(byId("batches-count"), all > batches.length ? `the first ${batches.length} of ${count(all)}` : "");
  hide(byId("no-batches"), batches.length > 0);
}

function make({ id }) {
  const made = row(8, 5);
  made.cells[0].append(element("a", { href: address.replace(NOBODY, id), title: id }, `…${id.slice(-6)}`));
  const progress = element("div", { class: "progress" });
  progress.append(element("progress", { "aria-label": `Rows of …${id.slice(-6)} that have ended` }), element("span"));
  made.cells[4].append(progress);
  return made;
}

function fillBatch({ cells }, batch) {
  text(cells[1], batch.team);
  text(cells[2], batch.model || "several");
  text(cells[3], batch.status.replace("_", " "));
  const bar = cells[4].querySelector("progress");
  bar.max = batch.total || 1;
  bar.value = batch.ended;
  text(cells[4].querySelector("span"), `${count(batch.ended)} of ${count(batch.total)}`);
  text(cells[5], count(batch.failed));
  tick(cells[6], batch.expires_at_s, ahead);
  tick(cells[7], batch.forecast_s, ahead);
  const isLate = batch.forecast_s !== null && batch.forecast_s > batch.expires_at_s;
  dress(cells[7], isLate ? "op-number op-bad" : "op-number");
}
