/** Changes only what differs: a page that is told a hundred figures a second must not be laid out anew. */

import { NONE, span } from "./format.js";

const texts = new WeakMap();
const lists = new WeakMap();
const ticking = new Map();
let aheadS = 0;

/** Take the server's clock: what passes is counted by it. */
export const setClock = (serverS) => (aheadS = serverS - Date.now() / 1000);

export const nowS = () => Date.now() / 1000 + aheadS;

export function text(node, value) {
  if (texts.get(node) === value) return;
  texts.set(node, value);
  node.textContent = value;
}

export function mark(node, name, value) {
  if (node.dataset[name] !== value) node.dataset[name] = value;
}

export function dress(node, className) {
  if (node.className !== className) node.className = className;
}

export function hide(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

/**
 * Show items as children of a node, in their order. A child is made once for each key, and filled
 * when its item is another object than before.
 */
export function list(parent, items, key, make, fill) {
  if (!lists.has(parent)) lists.set(parent, new Map());
  const known = lists.get(parent);
  const shown = new Set();
  let place = parent.firstElementChild;
  for (const item of items) {
    let name = String(key(item));
    while (shown.has(name)) name += "+";
    shown.add(name);
    let entry = known.get(name);
    if (!entry) known.set(name, (entry = { node: make(item), item: undefined }));
    if (entry.item !== item) fill(entry.node, (entry.item = item));
    if (entry.node === place) place = place.nextElementSibling;
    else parent.insertBefore(entry.node, place);
  }
  for (const [name, { node }] of known) {
    if (shown.has(name)) continue;
    node.remove();
    known.delete(name);
  }
}

/** Make a row: its first cell is its heading; the columns from `numbers` on hold figures. */
export function row(columns, numbers) {
  const made = document.createElement("tr");
  for (let column = 0; column < columns; column += 1) {
    const cell = made.appendChild(document.createElement(column ? "td" : "th"));
    if (!column) cell.scope = "row";
    if (column >= numbers) cell.className = "op-number";
  }
  return made;
}

export function fill(cells, values) {
  values.forEach((value, column) => text(cells[column], value));
}

/** Show how long a moment is ago, or ahead, and keep it right; a dash for none. */
export function tick(node, epochS, say = span) {
  if (epochS === null || epochS === undefined) {
    ticking.delete(node);
    return text(node, NONE);
  }
  ticking.set(node, { epochS, say });
  text(node, say(nowS() - epochS));
}

function advance() {
  if (document.hidden) return;
  for (const [node, { epochS, say }] of ticking) {
    if (node.isConnected) text(node, say(nowS() - epochS));
    else ticking.delete(node);
  }
}

setInterval(advance, 1000);
document.addEventListener("visibilitychange", advance);
