/** The playground: a conversation with a model, streamed through the real API. */

import { AnswerView } from "./answer_view.js";
import { programs } from "./code.js";
import { Conversation } from "./conversation.js";
import { byId, element, readJson } from "./dom.js";
import { Message } from "./message.js";
import { SessionKey } from "./session_key.js";
import { events } from "./sse.js";

const options = readJson("options");
const models = new Map(readJson("models").map((model) => [model.id, model]));
const key = new SessionKey(options);
const log = byId("log");
let conversation = new Conversation();
let running = null;

/** Return the body that asks for an answer to these turns. Throws an Error that names what is wrong. */
function readBody(turns) {
  const model = byId("model").value;
  const body = { model, max_tokens: Number(byId("max-tokens").value) };
  if (byId("system").value.trim()) body.system = byId("system").value;
  body.messages = turns;
  if (byId("temperature").value !== "") body.temperature = Number(byId("temperature").value);
  if (byId("thinking").checked) {
    body.thinking = { type: "enabled", budget_tokens: Number(byId("budget").value) };
  } else if (models.get(model)?.can_think) {
    body.thinking = { type: "disabled" };
  }
  const tools = readTools();
  if (tools.length) body.tools = tools;
  return { ...body, stream: true };
}

function readTools() {
  const text = byId("tools").value.trim();
  if (!text) return [];
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new Error(`Tools: ${error.message}`);
  }
  if (!Array.isArray(tools)) throw new Error("Tools: must be a JSON array.");
  return tools;
}

function say(message) {
  byId("problem").textContent = message;
}

function setRunning(controller) {
  running = controller;
  byId("log-region").setAttribute("aria-busy", String(controller !== null));
  byId("send").disabled = controller !== null;
  byId("stop").disabled = controller === null;
  byId("clear").disabled = controller !== null;
}

function showKey() {
  const shown = key.shown;
  const until = shown?.until.toISOString().slice(11, 16);
  byId("key").textContent = shown
    ? `Key ${shown.prefix}… of ${shown.team}, until ${until} UTC or until you leave.`
    : "";
}

function showTurn({ role, content }) {
  const text = typeof content === "string" ? content : content.map((block) => block.content).join("\n");
  const title = element("p", { class: "op-role" }, role);
  log.append(element("li", { "data-role": role }, title, element("pre", { class: "op-said" }, text)));
}

function showCode(body) {
  for (const [language, text] of Object.entries(programs(location.origin, body))) {
    byId(`code-${language}`).textContent = text;
  }
}

function requestLink(requestId) {
  const address = options.request_url.replace("ID", encodeURIComponent(requestId));
  return element("a", { href: address, target: "_blank", rel: "noopener" }, "the whole story");
}

async function errorOf(response) {
  const said = await response.json().catch(() => null);
  return `${response.status}: ${said?.error?.message ?? "the API does not answer at this address."}`;
}

/** Says how fast an answer came. */
class Clock {
  #begin = performance.now();
  #first = null;

  tick() {
    this.#first ??= performance.now();
  }

  said(tokens) {
    if (this.#first === null) return "";
    const seconds = (performance.now() - this.#first) / 1000;
    const pace = seconds > 0 ? `, ${(tokens / seconds).toFixed(1)} tokens/s` : "";
    return `first token after ${Math.round(this.#first - this.#begin)} ms${pace}`;
  }
}

function summary({ usage, stopReason }, clock) {
  const { input_tokens: plain = 0, cache_read_input_tokens: read = 0, output_tokens: output = 0 } = usage;
  const tokens = `${plain} tokens in${read ? ` and ${read} from the cache` : ""}, ${output} out`;
  return [stopReason ?? "broken off", tokens, clock.said(output)].filter(Boolean).join(" · ");
}

function ask(body, signal) {
  return key.call(byId("team").value, (text) =>
    fetch("/v1/messages", {
      method: "POST",
      signal,
      headers: {
        "x-api-key": text,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: JSON.stringify(body),
    }),
  );
}

/** Ask for the next turn; `message` and `view` grow with what comes. Throws what goes wrong. */
async function stream(body, message, view, signal) {
  const clock = new Clock();
  const response = await ask(body, signal);
  showKey();
  try {
    if (!response.ok) throw new Error(await errorOf(response));
    for await (const event of events(response)) {
      const change = message.add(event);
      if (change) clock.tick();
      view.apply(change);
    }
    if (message.error) throw new Error(message.error.message);
  } finally {
    const requestId = response.headers.get("request-id");
    const link = requestId ? [" · ", requestLink(requestId)] : [];
    view.end(message.id ? summary(message, clock) : "no answer", ...link);
  }
}

async function answer(body) {
  const controller = new AbortController();
  const view = new AnswerView(log, body.model);
  const message = new Message();
  showCode(body);
  setRunning(controller);
  try {
    await stream(body, message, view, controller.signal);
  } catch (error) {
    view.fail(error.name === "AbortError" ? "Stopped." : error.message);
  }
  setRunning(null);
  if (message.turn) conversation.turns = [...body.messages, message.turn];
  else byId("prompt").value ||= conversation.takeBack();
  if (message.stopReason === "tool_use") askForResults(message.calls, view);
  view.item.scrollIntoView({ block: "nearest" });
}

/** Add a turn and ask for the next one. Returns whether that could be done. */
function submit(turn) {
  const turns = conversation.with(turn);
  let body;
  try {
    body = readBody(turns);
  } catch (error) {
    say(error.message);
    return false;
  }
  say("");
  // What was asked for and did not come is asked for no more.
  for (const form of log.querySelectorAll("form")) form.remove();
  conversation.turns = turns;
  showTurn(turn);
  answer(body);
  return true;
}

/** Ask what the called tools say. */
function askForResults(calls, view) {
  const fields = calls.map(({ id }) => element("textarea", { id: `result-${id}`, rows: "2", required: "" }));
  const rows = calls.map(({ name }, index) =>
    element("div", {}, element("label", { for: fields[index].id }, `What ${name} says`), fields[index]),
  );
  const button = element("button", { class: "op-button" }, "Send the results");
  const form = element("form", { class: "op-piece" }, ...rows, button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) return;
    const content = calls.map(({ id }, index) => ({
      type: "tool_result",
      tool_use_id: id,
      content: fields[index].value,
    }));
    submit({ role: "user", content });
  });
  view.item.append(form);
}

function showThinking() {
  const field = byId("thinking");
  field.disabled = !models.get(byId("model").value)?.can_think;
  if (field.disabled) field.checked = false;
  byId("budget-field").hidden = !field.checked;
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = byId("prompt").value;
  if (content.trim() && !running && submit({ role: "user", content })) byId("prompt").value = "";
});
byId("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("ask").requestSubmit();
});
byId("stop").addEventListener("click", () => running?.abort());
byId("clear").addEventListener("click", () => {
  conversation = new Conversation();
  log.replaceChildren();
  say("");
});
byId("code").addEventListener("toggle", () => {
  if (!byId("code").open || running) return;
  const content = byId("prompt").value;
  try {
    // What would be sent now.
    showCode(readBody(content.trim() ? conversation.with({ role: "user", content }) : conversation.turns));
  } catch (error) {
    say(error.message);
  }
});
byId("languages").addEventListener("change", ({ target }) => {
  for (const part of document.querySelectorAll("[data-language]")) {
    part.hidden = part.dataset.language !== target.value;
  }
});
byId("model").addEventListener("change", showThinking);
byId("thinking").addEventListener("change", showThinking);
addEventListener("pagehide", () => running?.abort());
showThinking();
setRunning(null);
