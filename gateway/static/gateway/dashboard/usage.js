/** Spend and usage by team and model, of as many days as are picked. */

import { byId, element } from "../dom.js";
import { count, money } from "./format.js";
import { fill, hide, list, row, text } from "./page.js";

export const kinds = ["usage"];

const address = byId("board").dataset.team;
const section = document.querySelector("[data-section=usage]");

let last = null;
for (const button of document.querySelectorAll("[name=window]")) {
  button.addEventListener("change", () => last && show(last));
}

const figures = (use) => [
  count(use.requests),
  count(use.input_tokens),
  count(use.output_tokens),
  money(use.cost_micros),
];

export function show(state) {
  last = state;
  const picked = document.querySelector("[name=window]:checked").value;
  const usage = state.one(`usage/${picked}`);
  // Who may not see money is told nothing of it.
  hide(section, usage === undefined);
  if (usage === undefined) return;
  list(byId("usage-teams"), usage.teams, ({ id, name }) => id ?? name, makeTeam, (node, use) => {
    text(node.cells[0].firstElementChild, use.name);
    figures(use).forEach((value, place) => text(node.cells[place + 1], value));
  });
  list(byId("usage-models"), usage.models, ({ name }) => name, () => row(5, 1), (node, use) =>
    fill(node.cells, [use.name, ...figures(use)]),
  );
  list(byId("usage-total"), [usage.total], () => "total", () => row(5, 1), (node, use) =>
    fill(node.cells, ["All", ...figures(use)]),
  );
}

function makeTeam({ id }) {
  const made = row(5, 1);
  const name = id === null ? element("span") : element("a", { href: address.replace("/0/", `/${id}/`) });
  made.cells[0].append(name);
  return made;
}
