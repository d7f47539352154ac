/** Shows an answer in the playground while it comes: each block with what it says, as text. */

import { element } from "./dom.js";

const TITLES = {
  tool_use: (block) => `Call of ${block.name}`,
  mcp_tool_use: (block) => `Call of ${block.server_name} / ${block.name}`,
  mcp_tool_result: (block) => (block.is_error ? "Result (error)" : "Result"),
};

/** Return what a block says that begins whole, and nothing of one whose pieces are to come. */
function wholeText(block) {
  if (block.type === "mcp_tool_use") return JSON.stringify(block.input, null, 2);
  if (block.type === "mcp_tool_result") return block.content.map(({ text }) => text).join("\n");
  return "";
}

function frame(block, text) {
  if (block.type === "text") return element("pre", { class: "op-said op-piece" }, text);
  if (block.type === "thinking") {
    const thought = element("pre", { class: "op-said op-thinking" }, text);
    return element("details", { class: "op-piece", open: "" }, element("summary", {}, "Thinking"), thought);
  }
  const title = TITLES[block.type]?.(block) ?? block.type;
  return element("div", { class: "op-piece" }, element("h3", {}, title), element("pre", { tabindex: "0" }, text));
}

export class AnswerView {
  #texts = [];
  #body = element("div");
  #footer = element("p", { class: "op-footer" });

  constructor(log, model) {
    this.item = element("li", { "data-role": "assistant" }, element("p", { class: "op-role" }, model), this.#body, this.#footer);
    log.append(this.item);
  }

  /** Take a change that `Message.add` tells of. */
  apply(change) {
    if (change?.kind === "block") {
      const text = document.createTextNode(wholeText(change.block));
      this.#texts[change.index] = text;
      this.#body.append(frame(change.block, text));
    } else if (change?.kind === "text") {
      this.#texts[change.index].appendData(change.text);
    }
  }

  /** Say how it ended. */
  end(...said) {
    this.#footer.replaceChildren(...said);
  }

  /** Say why it did not end well. */
  fail(message) {
    this.#body.append(element("p", { class: "op-bad", role: "alert" }, message));
  }
}
