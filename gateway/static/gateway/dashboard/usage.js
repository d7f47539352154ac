/** Spend and usage by team and model, of as many days as are picked: the address keeps which. */

import { byId, element } from "../dom.js";
import { count, days, money } from "./format.js";
import { fill, hide, list, nowS, row, text } from "./page.js";

export const kinds = ["usage"];

const address = byId("board").dataset.team;
const section = document.querySelector("[data-section=usage]");

// The first and the last day of each, as days ago: as gateway.live.usage has them.
const WINDOWS = { today: [0, 0], yesterday: [1, 1], week: [6, 0], month: [29, 0] };
const KEPT = "#days=";

let last = null;
for (const button of document.querySelectorAll("[name=window]")) {
  if (location.hash === KEPT + button.value) button.checked = true;
  button.addEventListener("change", () => {
    history.replaceState(history.state, "", KEPT + button.value);
    if (last) show(last);
  });
}

const figures = (use) => [
  money(use.cost_micros),
  count(use.requests),
  count(use.input_tokens),
  count(use.output_tokens),
];

export function show(state) {
  last = state;
  const picked = document.querySelector("[name=window]:checked").value;
  const usage = state.one(`usage/${picked}`);
  // Who may not see money is told nothing of it.
  hide(section, usage === undefined);
  if (usage === undefined) return;
  text(byId("usage-days"), days(nowS(), ...WINDOWS[picked]));
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
