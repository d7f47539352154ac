/** Programs that send the same request as the playground: the same address and the same body.
 *
 * Pure. The key is not part of them: they take it from TANDEM_API_KEY. The SDKs ask for a stream by
 * themselves, which is why `stream` is not among what they are told.
 */

// Every version of the API takes them, but the SDKs' newer ones have no arguments for them.
const SAMPLING = new Set(["temperature", "top_p", "top_k"]);

const json = (value) => JSON.stringify(value, null, 2);

// Strings in JSON have no bare line breaks, so that this moves nothing within them.
const indented = (text) => text.replaceAll("\n", "\n  ");

/** Write a JSON value as Python does. A JSON string is a Python string, with the same escapes. */
function python(value, depth) {
  const inner = "    ".repeat(depth + 1);
  const outer = "    ".repeat(depth);
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const items = Array.isArray(value)
    ? value.map((item) => python(item, depth + 1))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${python(item, depth + 1)}`);
  if (!items.length) return open + close;
  return `${open}\n${items.map((item) => `${inner}${item},\n`).join("")}${outer}${close}`;
}

function curlCode(address, body) {
  // No line of the JSON can be the mark that ends it.
  return `curl -N ${address}/v1/messages \\
  -H "x-api-key: $TANDEM_API_KEY" \\
  -H "anthropic-version: 2023-06-01" \\
  -H "content-type: application/json" \\
  --data-binary @- <<'JSON'
${json(body)}
JSON
`;
}

function pythonCode(address, { stream, ...body }) {
  const entries = Object.entries(body);
  const sampling = entries.filter(([name]) => SAMPLING.has(name));
  const known = entries.filter(([name]) => !SAMPLING.has(name));
  const args = sampling.length ? [...known, ["extra_body", Object.fromEntries(sampling)]] : known;
  return `import os

import anthropic

client = anthropic.Anthropic(
    base_url=${JSON.stringify(address)},
    api_key=os.environ["TANDEM_API_KEY"],
)
with client.messages.stream(
${args.map(([name, value]) => `    ${name}=${python(value, 1)},\n`).join("")}) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
print()
`;
}

function typescriptField([name, value]) {
  const field = `  ${name}: ${indented(json(value))},\n`;
  return SAMPLING.has(name) ? `  // @ts-expect-error The SDK's types have no sampling.\n${field}` : field;
}

function typescriptCode(address, { stream, ...body }) {
  return `import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({
  baseURL: ${JSON.stringify(address)},
  apiKey: process.env.TANDEM_API_KEY,
});
const stream = client.messages.stream({
${Object.entries(body).map(typescriptField).join("")}});
stream.on("text", (text) => process.stdout.write(text));
await stream.finalMessage();
`;
}

/** Return the programs by language: for the address of the API, and the body that is sent. */
export function programs(address, body) {
  return {
    python: pythonCode(address, body),
    typescript: typescriptCode(address, body),
    curl: curlCode(address, body),
  };
}
