/** The page of one request keeps up with it until nothing more is expected. */

import { byId, refresh } from "./dom.js";

const EVERY_MS = 2000;

async function look() {
  if (!byId("story")?.hasAttribute("data-running")) return;
  // A page that nobody sees asks for nothing, and one that is read keeps what was opened in it.
  if (!document.hidden && !document.querySelector("#story details[open]")) {
    await refresh("story").catch(() => {});
  }
  setTimeout(look, EVERY_MS);
}

setTimeout(look, EVERY_MS);
