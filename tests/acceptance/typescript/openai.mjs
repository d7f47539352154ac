// Runs scenarios with OpenAI's TypeScript SDK, a line of JSON in and a line of JSON out for each.
//
// A line has a scenario's name and its arguments. Where Tandem is and with which key the SDK itself
// reads from OPENAI_BASE_URL and OPENAI_API_KEY.

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import OpenAI, { toFile } from "openai";

const client = new OpenAI({ maxRetries: 0 });

// The caller ends what does not end.
async function until(over, look) {
  for (;;) {
    const seen = await look();
    if (over(seen)) return seen;
    await sleep(50);
  }
}

const scenarios = {
  create: (asked) => client.chat.completions.create(asked),

  async stream(asked) {
    const heard = { content: "", reasons: [] };
    const stream = client.chat.completions
      .stream({ ...asked, stream_options: { include_usage: true } })
      .on("content", (delta) => (heard.content += delta))
      .on("chunk", (chunk) => heard.reasons.push(...chunk.choices.map((one) => one.finish_reason)));
    return { completion: await stream.finalChatCompletion(), heard };
  },

  // The SDK calls the tools by itself, and asks again with what they came to.
  async runTools(asked, result) {
    const calls = [];
    const tools = asked.tools.map((tool) => ({
      type: "function",
      function: { ...tool.function, parse: JSON.parse, function: (said) => (calls.push(said), result) },
    }));
    const runner = client.chat.completions.runTools({ ...asked, tools });
    return { content: await runner.finalContent(), calls };
  },

  async storeFile(name, content) {
    const stored = await client.files.create({
      file: await toFile(Buffer.from(content), name),
      purpose: "user_data",
      expires_after: { anchor: "created_at", seconds: 3600 },
    });
    // One file a page, so that the SDK has to turn pages.
    const listed = [];
    for await (const file of client.files.list({ purpose: "user_data", limit: 1 })) listed.push(file.id);
    const retrieved = await client.files.retrieve(stored.id);
    const read = await (await client.files.content(stored.id)).text();
    const deleted = await client.files.delete(stored.id);
    return { stored, listed, retrieved, read, deleted };
  },

  retrieveFile: (id) => client.files.retrieve(id),

  async runBatch(lines, endpoint) {
    const content = lines.map((line) => JSON.stringify(line)).join("\n");
    const file = await toFile(Buffer.from(content), "rows.jsonl");
    const input = await client.files.create({ file, purpose: "batch" });
    const made = await client.batches.create({
      input_file_id: input.id,
      endpoint,
      completion_window: "24h",
      metadata: { for: "a test" },
    });
    const isOver = ({ status }) => ["completed", "failed", "expired", "cancelled"].includes(status);
    const ended = await until(isOver, () => client.batches.retrieve(made.id));
    const listed = [];
    for await (const batch of client.batches.list({ limit: 1 })) {
      listed.push(batch.id);
      if (batch.id === made.id) break;
    }
    const read = async (id) => (id ? (await (await client.files.content(id)).text()).trim().split("\n").map(JSON.parse) : []);
    return { made, ended, listed, answers: await read(ended.output_file_id), errors: await read(ended.error_file_id) };
  },

  async cancelBatch(line) {
    const file = await toFile(Buffer.from(JSON.stringify(line)), "rows.jsonl");
    const input = await client.files.create({ file, purpose: "batch" });
    const made = await client.batches.create({
      input_file_id: input.id,
      endpoint: line.url,
      completion_window: "24h",
    });
    await client.batches.cancel(made.id);
    return until(({ status }) => status === "cancelled", () => client.batches.retrieve(made.id));
  },

  respond: (asked) => client.responses.create(asked),

  async streamResponse(asked) {
    let heard = "";
    const stream = client.responses.stream(asked).on("response.output_text.delta", ({ delta }) => (heard += delta));
    return { response: await stream.finalResponse(), heard };
  },

  // Leaves a stream at its first text, and goes on from there.
  async resumeResponse(asked) {
    const seen = [];
    const stream = await client.responses.create({ ...asked, background: true, stream: true });
    for await (const event of stream) {
      seen.push(event);
      if (event.type === "response.output_text.delta") break;
    }
    const { id } = seen[0].response;
    const after = { stream: true, starting_after: seen.at(-1).sequence_number };
    for await (const event of await client.responses.retrieve(id, after)) seen.push(event);
    return { events: seen, response: await client.responses.retrieve(id) };
  },

  async cancelResponse(asked) {
    const { id } = await client.responses.create({ ...asked, background: true });
    const cancelled = await client.responses.cancel(id);
    await client.responses.delete(id);
    return cancelled;
  },

  retrieveResponse: (id) => client.responses.retrieve(id),
};

async function run(scenario, parameters) {
  try {
    return { value: await scenarios[scenario](...parameters) };
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    const { name, status, type, code, param, message, requestID } = error;
    const found = { status, type, code, param, requestID };
    const told = Object.fromEntries(Object.entries(found).map(([key, value]) => [key, value ?? null]));
    return { error: { name: error.constructor.name ?? name, message, ...told } };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const [scenario, parameters] = JSON.parse(line);
  console.log(JSON.stringify(await run(scenario, parameters)));
}
