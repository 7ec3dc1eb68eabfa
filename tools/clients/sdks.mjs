// Checks a scripted server with the JavaScript SDKs of OpenAI, Anthropic and Ollama: a chat, a stream, a
// call of a tool with its result, and a stream that is left. What is checked is what sdks.py checks.
//
//     npm install --prefix target/js openai @anthropic-ai/sdk ollama
//     cargo run -p hearth-server --example scripted -- 8123 get_weather '{"city": "Paris"}' &
//     cp tools/clients/sdks.mjs target/js/ && node target/js/sdks.mjs http://127.0.0.1:8123

import assert from "node:assert";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";

const url = process.argv[2];
const question = { role: "user", content: "What is the weather in Paris?" };
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const definition = { name: "get_weather", description: "The weather of a city", parameters: schema };
const tools = [{ type: "function", function: definition }];
const said = (text) => assert.ok(text.startsWith("word0"), text);

async function openai() {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const ask = (fields) => client.chat.completions.create({ model: "default", ...fields });
  let text = "";
  for await (const chunk of await ask({ messages: [question], max_tokens: 8, stream: true })) {
    text += chunk.choices[0]?.delta?.content ?? "";
  }
  said(text);
  const { finish_reason, message } = (await ask({ messages: [question], tools })).choices[0];
  assert.equal(finish_reason, "tool_calls");
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sunny" };
  const messages = [question, message, result];
  said((await ask({ messages, tools })).choices[0].message.content);
  said((await client.responses.stream({ model: "default", input: "Hi" }).finalResponse()).output_text);
  const leaving = new AbortController();
  const left = await client.chat.completions.create(
    { model: "default", messages, stream: true },
    { signal: leaving.signal },
  );
  for await (const _ of left) {
    leaving.abort();
    break;
  }
}

async function anthropic() {
  const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const tools = [{ name: "get_weather", input_schema: schema }];
  const fields = { model: "default", max_tokens: 50, messages: [question] };
  said((await client.messages.stream(fields).finalMessage()).content[0].text);
  const { content, stop_reason } = await client.messages.stream({ ...fields, tools }).finalMessage();
  assert.equal(stop_reason, "tool_use");
  assert.deepEqual(content[0].input, { city: "Paris" });
  const result = { type: "tool_result", tool_use_id: content[0].id, content: "sunny" };
  const turn = [{ role: "assistant", content }, { role: "user", content: [result] }];
  const last = { ...fields, tools, messages: [question, ...turn] };
  said((await client.messages.create(last)).content[0].text);
  const left = client.messages.stream(fields);
  for await (const _ of left) {
    left.abort();
    break;
  }
}

async function ollama() {
  const client = new Ollama({ host: url });
  const fields = { model: "default", messages: [question] };
  let text = "";
  for await (const part of await client.chat({ ...fields, stream: true })) {
    text += part.message.content;
  }
  said(text);
  const { message } = await client.chat({ ...fields, tools });
  assert.deepEqual(message.tool_calls[0].function.arguments, { city: "Paris" });
  const result = { role: "tool", tool_name: "get_weather", content: "sunny" };
  const messages = [question, message, result];
  said((await client.chat({ ...fields, messages, tools })).message.content);
  for await (const _ of await client.chat({ ...fields, stream: true })) {
    client.abort();
    break;
  }
}

for (const client of [openai, anthropic, ollama]) {
  await client();
  console.log("ok  ", client.name);
}
