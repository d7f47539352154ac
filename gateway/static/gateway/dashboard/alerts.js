/** Whether all is well, and if not what to do. */

import { byId, element } from "../dom.js";
import { hide, list, mark, text, tick } from "./page.js";

export const kinds = ["alerts", "deadlines", "balances", "model"];

const verdict = byId("verdict");
const section = verdict.closest("section");
const WAYS = {
  errors: "See these requests",
  no_engine: "How to start one",
  deadline: "Open the batch",
  balance: "Open the team",
};

function make({ kind, link, since_s }) {
  const line = element("p", {}, element("strong"));
  if (since_s !== null) line.append(" For ", element("span"), " now.");
  const advice = element("p", { class: "op-soft" }, element("span"));
  if (link) advice.append(" ", element("a", { href: link }, WAYS[kind] ?? "Open the model"));
  return element("li", {}, line, advice);
}

function fillAlert(node, { level, text: what, advice, since_s }) {
  mark(node, "level", level);
  text(node.querySelector("strong"), `${level === "critical" ? "Now: " : ""}${what}`);
  text(node.querySelector("p + p > span"), advice);
  if (since_s !== null) tick(node.querySelector("p > span"), since_s);
}

function say(alerts) {
  if (!alerts.length) return "All is well.";
  const critical = alerts.filter(({ level }) => level === "critical").length;
  const things = alerts.length === 1 ? "One thing needs" : `${alerts.length} things need`;
  return `${things} attention ${critical ? "now" : "soon"}.`;
}

export function show(state) {
  const alerts = ["alerts", "deadlines", "balances"].flatMap((name) => state.one(name) ?? []);
  const isCritical = ({ level }) => level === "critical";
  const ordered = [...alerts.filter(isCritical), ...alerts.filter((alert) => !isCritical(alert))];
  text(verdict, say(ordered));
  mark(section, "level", ordered.length ? (isCritical(ordered[0]) ? "critical" : "warning") : "well");
  // Two of one kind are told apart by what they are about.
  const key = ({ kind, text: what, link, about }) => `${kind} ${about || link || what}`;
  list(byId("alerts"), ordered, key, make, fillAlert);
  hide(byId("empty"), state.all("model").size > 0);
}
