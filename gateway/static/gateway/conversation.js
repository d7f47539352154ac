/** The turns of a conversation, always such that the API takes them. */

export class Conversation {
  turns = [];

  /** Return the turns with one more; calls that it does not answer are left out. */
  with(turn) {
    return [...(typeof turn.content === "string" ? this.#withoutOpenCalls() : this.turns), turn];
  }

  /** Take back the last turn: it has no answer, and two of one side in a row are no conversation.
   *
   * Returns its text, if it is one.
   */
  takeBack() {
    const last = this.turns.at(-1);
    this.turns = this.turns.slice(0, -1);
    return typeof last?.content === "string" ? last.content : "";
  }

  #withoutOpenCalls() {
    const last = this.turns.at(-1);
    if (!last || last.role !== "assistant") return this.turns;
    const content = last.content.filter((block) => block.type !== "tool_use");
    const before = this.turns.slice(0, -1);
    // An answer that was calls alone goes with what asked for it.
    return content.length ? [...before, { ...last, content }] : before.slice(0, -1);
  }
}
