/** What went wrong in the last hour, with the way to the requests it happened to. */

import { byId, element } from "../dom.js";
import { count, span } from "./format.js";
import { hide, list, row, text, tick } from "./page.js";

export const kinds = ["errors"];

const address = byId("board").dataset.requests;

const ago = (passed) => (passed < 60 ? "this minute" : `${span(passed)} ago`);

export function show(state) {
  const errors = state.one("errors") ?? [];
  list(byId("errors"), errors, ({ kind, model }) => `${kind} ${model}`, make, (node, { requests, last_minute_s }) => {
    text(node.cells[2], count(requests));
    tick(node.cells[3], last_minute_s, ago);
  });
  hide(byId("no-errors"), errors.length > 0);
}

function make({ kind, model }) {
  const made = row(4, 2);
  const query = new URLSearchParams({ status__exact: "failed", model, within: "hour" });
  made.cells[0].append(element("a", { href: `${address}?${query}` }, kind.replaceAll("_", " ")));
  made.cells[1].append(model);
  return made;
}
