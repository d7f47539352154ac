/** Puts the events of a Messages stream together to the message that they tell. */

const PIECES = { text_delta: "text", thinking_delta: "thinking", signature_delta: "signature" };

export class Message {
  content = [];
  usage = {};
  id = null;
  model = null;
  stopReason = null;
  error = null;
  #inputs = new Map();

  /** Take the next event. Returns what it changed: `{kind, index, text}`, or null. */
  add(event) {
    switch (event.type) {
      case "message_start":
        this.id = event.message.id;
        this.model = event.message.model;
        this.usage = { ...event.message.usage };
        return null;
      case "content_block_start":
        this.content[event.index] = { ...event.content_block };
        return { kind: "block", index: event.index, block: event.content_block };
      case "content_block_delta":
        return this.#grow(event.index, event.delta);
      case "content_block_stop":
        this.#close(event.index);
        return null;
      case "message_delta":
        this.stopReason = event.delta.stop_reason;
        this.usage = { ...this.usage, ...event.usage };
        return null;
      case "error":
        this.error = event.error;
        return null;
      default:
        return null; // pings, and what may come
    }
  }

  /** Return the calls that the caller is to run. */
  get calls() {
    return this.content.filter((block) => block?.type === "tool_use");
  }

  /** Return the turn to send back: whole blocks alone, should the answer have been broken off. */
  get turn() {
    const whole = this.content.filter((block, index) => {
      if (this.#inputs.has(index)) return false;
      return block.type !== "text" || block.text !== "";
    });
    const ended = this.stopReason !== null;
    const content = ended ? whole : whole.filter((block) => block.type === "text");
    return content.length ? { role: "assistant", content } : null;
  }

  #grow(index, delta) {
    const block = this.content[index];
    if (delta.type === "input_json_delta") {
      this.#inputs.set(index, (this.#inputs.get(index) ?? "") + delta.partial_json);
      return { kind: "text", index, text: delta.partial_json };
    }
    const field = PIECES[delta.type];
    if (!field) return null;
    block[field] = (block[field] ?? "") + delta[field];
    return field === "signature" ? null : { kind: "text", index, text: delta[field] };
  }

  #close(index) {
    const input = this.#inputs.get(index);
    if (input === undefined) return;
    this.content[index].input = JSON.parse(input || "{}");
    this.#inputs.delete(index);
  }
}
