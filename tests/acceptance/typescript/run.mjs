// Runs scenarios with Anthropic's TypeScript SDK, a line of JSON in and a line of JSON out for each.
//
// A line has a scenario's name and its arguments. Where Tandem is and with which key the SDK itself
// reads from ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY.

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import Anthropic from "@anthropic-ai/sdk";
import { jsonSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/json-schema";

const client = new Anthropic({ maxRetries: 0 });

const scenarios = {
  create: (asked) => client.messages.create(asked),

  async stream(asked) {
    const heard = { text: "", thinking: "", json: "" };
    const stream = client.messages
      .stream(asked)
      .on("text", (delta) => (heard.text += delta))
      .on("thinking", (delta) => (heard.thinking += delta))
      .on("inputJson", (delta) => (heard.json += delta));
    return { message: await stream.finalMessage(), heard };
  },

  // Asks, answers every call with the same result, and asks again with more to say.
  async useTools(asked, result, more) {
    const called = await client.messages.create(asked);
    const results = called.content
      .filter((block) => block.type === "tool_use")
      .map((call) => ({ type: "tool_result", tool_use_id: call.id, content: result }));
    const messages = [
      ...asked.messages,
      { role: "assistant", content: called.content },
      { role: "user", content: [...results, { type: "text", text: more }] },
    ];
    const tool_choice = { type: "auto" };
    const answered = await client.messages.create({ ...asked, messages, tool_choice });
    return { called, answered };
  },

  // The SDK makes the format of the schema, and a value of the answer.
  async parse(asked, schema) {
    const output_config = { format: jsonSchemaOutputFormat(schema) };
    const whole = await client.messages.parse({ ...asked, output_config });
    const streamed = await client.messages.stream({ ...asked, output_config }).finalMessage();
    return [whole.parsed_output, streamed.parsed_output];
  },

  countTokens: (asked) => client.messages.countTokens(asked),

  // One model a page, so that the SDK has to turn pages.
  async listModels(filter) {
    const models = [];
    for await (const model of client.models.list({ limit: 1, ...filter })) models.push(model);
    return models;
  },

  retrieveModel: (id) => client.models.retrieve(id),

  async runBatch(requests) {
    const { batches } = client.messages;
    const made = await batches.create({ requests });
    const ended = await endOf(made.id);
    const results = [];
    for await (const result of await batches.results(made.id)) results.push(result);
    // One batch a page, so that the SDK has to turn pages.
    const listed = [];
    for await (const batch of batches.list({ limit: 1 })) {
      listed.push(batch.id);
      if (batch.id === made.id) break;
    }
    return { made, ended, results, listed, deleted: await batches.delete(made.id) };
  },

  async cancelBatch(requests) {
    const { id } = await client.messages.batches.create({ requests });
    const cancelled = await client.messages.batches.cancel(id);
    const ended = await endOf(id);
    const results = [];
    for await (const result of await client.messages.batches.results(id)) results.push(result);
    return { cancelled, ended, results };
  },

  retrieveBatch: (id) => client.messages.batches.retrieve(id),
};

// The caller ends what does not end.
async function endOf(id) {
  for (;;) {
    const batch = await client.messages.batches.retrieve(id);
    if (batch.processing_status === "ended") return batch;
    await sleep(50);
  }
}

async function run(scenario, parameters) {
  try {
    return { value: await scenarios[scenario](...parameters) };
  } catch (error) {
    if (!(error instanceof Anthropic.APIError)) throw error;
    const { name, status, type, message, requestID } = error;
    return { error: { name, status: status ?? null, type, message, requestID: requestID ?? null } };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const [scenario, parameters] = JSON.parse(line);
  console.log(JSON.stringify(await run(scenario, parameters)));
}
