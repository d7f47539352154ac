/** Buttons with `data-copies` copy the text of the element with that id. */

import { byId } from "./dom.js";

const SHOWN_MS = 1500;

async function copy(source) {
  // Browsers have the clipboard only on https and on this machine.
  if (navigator.clipboard) return navigator.clipboard.writeText(source.textContent);
  const selection = getSelection();
  selection.selectAllChildren(source);
  if (!document.execCommand("copy")) throw new Error("the browser does not copy");
  selection.removeAllRanges();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copies]");
  if (!button) return;
  const before = button.textContent;
  try {
    await copy(byId(button.dataset.copies));
    button.textContent = "Copied";
  } catch {
    button.textContent = "Press Ctrl-C";
  }
  setTimeout(() => (button.textContent = before), SHOWN_MS);
});
