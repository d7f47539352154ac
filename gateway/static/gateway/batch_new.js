/** Sends a batch's file through the API and makes the batch, as any client does. */

import { byId, readJson } from "./dom.js";
import { SessionKey } from "./session_key.js";

const FIRST_BYTES = 64 * 1024;

const options = readJson("options");
const form = byId("new-batch");
const key = form && new SessionKey(options);

/** Choose what the first line is for. */
async function guess() {
  const [file] = byId("file").files;
  if (!file) return;
  const [line] = (await file.slice(0, FIRST_BYTES).text()).split("\n");
  try {
    const { url } = JSON.parse(line);
    const known = [...byId("endpoint").options].find((option) => option.value === url);
    if (known) known.selected = true;
  } catch {
    // A first line that is cut, or wrong: the server says so.
  }
}

/** Send the file; unlike `fetch`, this tells how far it is. */
function upload(text, file, onProgress) {
  return new Promise((resolve, reject) => {
    const call = new XMLHttpRequest();
    const body = new FormData();
    body.append("purpose", "batch");
    body.append("file", file);
    call.open("POST", "/v1/files");
    call.setRequestHeader("x-api-key", text);
    call.responseType = "json";
    call.upload.addEventListener("progress", ({ loaded, total }) => onProgress(loaded / total));
    call.addEventListener("load", () => resolve({ status: call.status, said: call.response }));
    call.addEventListener("error", () => reject(new Error("The connection was lost.")));
    call.send(body);
  });
}

async function create(text, inputFile, endpoint) {
  const response = await fetch("/v1/batches", {
    method: "POST",
    headers: { "x-api-key": text, "content-type": "application/json" },
    body: JSON.stringify({ input_file_id: inputFile, endpoint, completion_window: "24h" }),
  });
  return { status: response.status, said: await response.json().catch(() => null) };
}

function checked({ status, said }) {
  if (status === 200) return said;
  throw new Error(said?.error?.message ?? `The API did not answer (${status}).`);
}

async function submit() {
  const [file] = byId("file").files;
  const team = byId("team").value;
  const bar = byId("sent");
  bar.hidden = false;
  byId("state").textContent = "Sending the file…";
  const stored = checked(await key.call(team, (text) => upload(text, file, (share) => (bar.value = share))));
  byId("state").textContent = "Making the batch…";
  const made = checked(await key.call(team, (text) => create(text, stored.id, byId("endpoint").value)));
  key.close();
  location.assign(options.batch_url.replace("ID", made.id));
}

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  byId("problem").textContent = "";
  byId("submit").disabled = true;
  try {
    await submit();
  } catch (error) {
    byId("problem").textContent = error.message;
    byId("state").textContent = "";
  } finally {
    byId("submit").disabled = false;
    byId("sent").hidden = true;
  }
});
byId("file")?.addEventListener("change", guess);
