/** Server-sent events of a `fetch`. */

/** Cuts a text that arrives in any pieces into the events that it has; each is `{event, data}`. */
export class EventParser {
  #rest = "";

  feed(piece) {
    // A line may end in CR LF, whose halves may come apart: what ends in CR waits.
    const text = this.#rest + piece;
    const end = text.endsWith("\r") ? text.length - 1 : text.length;
    const blocks = text.slice(0, end).replaceAll("\r\n", "\n").split("\n\n");
    this.#rest = blocks.pop() + text.slice(end);
    return blocks.map(parse).filter((event) => event.data !== "");
  }
}

function parse(block) {
  const event = { event: "message", data: "" };
  const data = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") event.event = value;
    if (name === "data") data.push(value);
  }
  event.data = data.join("\n");
  return event;
}

/** Yield the JSON of each event of a response, as it comes. */
export async function* events(response) {
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const { data } of parser.feed(value)) yield JSON.parse(data);
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
