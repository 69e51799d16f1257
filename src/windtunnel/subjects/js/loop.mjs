// The `loop` subject: a minimal agent. Chat completions, one shell tool, until an answer without tool calls.
//
//   node loop.mjs --model ID --thinking LEVEL --system FILE --session DIR [--max-turns N] < prompt
//
// OPENAI_BASE_URL and OPENAI_API_KEY say where the model is. Writes <session>/loop.jsonl: one line a message, with the
// usage of each answer (input excludes cached tokens, reasoning is part of output), and an `end` line. Exit 0 when it
// came to an end of its own, 1 on an error.

import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import * as path from "node:path";
import { parseArgs } from "node:util";

const RETRY_MS = [500, 1_000, 2_000];
const OUTPUT_LIMIT = 20_000;
const TOOL_TIMEOUT_S = { usual: 120, most: 3_600 };
const DRAIN_MS = 500;
const TOOLS = [
  {
    type: "function",
    function: {
      name: "bash",
      description: "Run a shell command in the working directory. Returns its output and exit code.",
      parameters: {
        type: "object",
        properties: {
          command: { type: "string", description: "The command line" },
          timeout: { type: "number", description: `Seconds until it is killed, ${TOOL_TIMEOUT_S.usual} if not given` },
        },
        required: ["command"],
      },
    },
  },
];

const { values: args } = parseArgs({
  options: {
    model: { type: "string" },
    thinking: { type: "string" },
    system: { type: "string" },
    session: { type: "string" },
    "max-turns": { type: "string", default: "100" },
  },
});

/** The provider said no. `again`: the same request may work later. */
class Refused extends Error {
  constructor(message, again) {
    super(message);
    this.again = again;
  }
}

// ---- the transcript --------------------------------------------------------------------------------------------

function record(entry) {
  try {
    fs.mkdirSync(args.session, { recursive: true });
    fs.appendFileSync(path.join(args.session, "loop.jsonl"), JSON.stringify(entry) + "\n");
  } catch {
    // The transcript is a by-product: work goes on without it.
  }
}

function say(message, extra = {}) {
  record({ type: "message", ts: new Date().toISOString(), ...message, ...extra });
  return message;
}

// ---- the model -------------------------------------------------------------------------------------------------

function post(body) {
  const url = new URL(process.env.OPENAI_BASE_URL.replace(/\/$/, "") + "/chat/completions");
  const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
  if (process.env.OPENAI_API_KEY) headers.authorization = `Bearer ${process.env.OPENAI_API_KEY}`;
  const { request } = url.protocol === "https:" ? https : http;
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: "POST", headers }, resolve);
    sent.on("error", reject);
    sent.end(body);
  });
}

/** Whole lines of a response, decoded; a torn stream throws. */
async function* lines(response) {
  let rest = "";
  response.setEncoding("utf8");
  for await (const text of response) {
    const parts = (rest + text).split("\n");
    rest = parts.pop();
    yield* parts;
  }
  if (rest) yield rest;
}

/** One completion: {content, tool_calls, finish_reason, usage, model}. */
async function complete(messages) {
  const effort = args.thinking === "off" ? "none" : args.thinking;
  const body = { model: args.model, messages, tools: TOOLS, stream: true, stream_options: { include_usage: true } };
  if (effort) body.reasoning_effort = effort;
  let response;
  try {
    response = await post(JSON.stringify(body));
  } catch (error) {
    throw new Refused(`connection: ${error.code ?? error.message}`, true);
  }
  if (response.statusCode !== 200) {
    let text = "";
    for await (const line of lines(response)) text = (text + line).slice(0, 2_000);
    throw new Refused(`HTTP ${response.statusCode}: ${text}`, response.statusCode === 429 || response.statusCode >= 500);
  }
  try {
    return await collect(response);
  } catch (error) {
    throw error instanceof Refused ? error : new Refused(`stream: ${error.code ?? error.message}`, true);
  }
}

async function collect(response) {
  const answer = { content: "", calls: [], finish_reason: null, usage: null, model: null };
  for await (const line of lines(response)) {
    const data = line.startsWith("data:") ? line.slice(5).trim() : line.trim();
    if (data === "[DONE]") break;
    if (data.startsWith("{")) take(answer, JSON.parse(data));
  }
  if (answer.finish_reason === null) throw new Refused("stream ended without finish_reason", true);
  return answer;
}

function take(answer, chunk) {
  if (chunk.error) throw new Refused(`error in the stream: ${JSON.stringify(chunk.error).slice(0, 2_000)}`, false);
  answer.model = chunk.model ?? answer.model;
  answer.usage = chunk.usage ?? answer.usage;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  answer.finish_reason = choice.finish_reason ?? answer.finish_reason;
  answer.content += choice.delta?.content ?? "";
  for (const part of choice.delta?.tool_calls ?? []) {
    const call = (answer.calls[part.index ?? 0] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    call.id = part.id || call.id;
    call.function.name += part.function?.name ?? "";
    call.function.arguments += part.function?.arguments ?? "";
  }
}

async function ask(messages) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await complete(messages);
    } catch (error) {
      if (!error.again || attempt >= RETRY_MS.length) throw error;
      record({ type: "retry", ts: new Date().toISOString(), error: error.message, delay_ms: RETRY_MS[attempt] });
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS[attempt]));
    }
  }
}

function usage(said) {
  if (!said) return null;
  const cached = said.prompt_tokens_details?.cached_tokens ?? 0;
  return {
    input: Number.isInteger(said.prompt_tokens) ? said.prompt_tokens - cached : null,
    cache_read: said.prompt_tokens_details?.cached_tokens ?? null,
    output: said.completion_tokens ?? null,
    reasoning: said.completion_tokens_details?.reasoning_tokens ?? null,
  };
}

// ---- the tool --------------------------------------------------------------------------------------------------

function kill(child) {
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // Nobody left in the group.
  }
}

/** Keep the first and last half of the limit: errors stand at either end. */
function cut(text) {
  if (text.length <= OUTPUT_LIMIT) return text;
  const half = OUTPUT_LIMIT / 2;
  return `${text.slice(0, half)}\n[... ${text.length - OUTPUT_LIMIT} characters left out ...]\n${text.slice(-half)}`;
}

function bash(command, timeout) {
  const { OPENAI_API_KEY: _, OPENAI_BASE_URL: __, ...env } = process.env; // the shell has no business with the model
  const shell = fs.existsSync("/bin/bash") ? "/bin/bash" : "/bin/sh";
  const seconds = Math.min(timeout > 0 ? timeout : TOOL_TIMEOUT_S.usual, TOOL_TIMEOUT_S.most);
  return new Promise((resolve) => {
    const child = spawn(shell, ["-c", command], { env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    let text = "";
    let late = false;
    const hear = (data) => (text = text.length > 50 * OUTPUT_LIMIT ? text : text + data);
    child.stdout.setEncoding("utf8").on("data", hear);
    child.stderr.setEncoding("utf8").on("data", hear);
    const timer = setTimeout(() => ((late = true), kill(child)), seconds * 1_000);
    const end = (status) => (clearTimeout(timer), resolve(`${cut(text)}\n[${status}]`));
    child.on("error", (error) => end(`could not start: ${error.code ?? error.message}`));
    child.on("exit", (code, signal) => {
      const status = late ? `killed after ${seconds} s` : `exit code ${code ?? signal}`;
      child.on("close", () => end(status));
      setTimeout(() => end(status), DRAIN_MS).unref(); // something in the background may hold the output open
    });
  });
}

async function use(call) {
  if (call.function.name !== "bash") return `error: there is no tool ${call.function.name}`;
  let given;
  try {
    given = JSON.parse(call.function.arguments);
  } catch {
    return "error: the arguments are not JSON";
  }
  if (typeof given?.command !== "string") return "error: `command` must be a string";
  return bash(given.command, given.timeout);
}

// ---- the loop --------------------------------------------------------------------------------------------------

async function loop(prompt, totals) {
  const messages = [];
  if (args.system) messages.push(say({ role: "system", content: fs.readFileSync(args.system, "utf8") }));
  messages.push(say({ role: "user", content: prompt }));
  while (totals.turns < Number(args["max-turns"])) {
    const answer = await ask(messages);
    const calls = answer.calls.filter(Boolean);
    totals.turns += 1;
    const message = { role: "assistant", content: answer.content };
    if (calls.length) message.tool_calls = calls;
    const facts = { stop_reason: answer.finish_reason, model: answer.model, usage: usage(answer.usage) };
    messages.push(say(message, facts));
    if (!calls.length) {
      process.stdout.write(answer.content + "\n");
      return answer.finish_reason;
    }
    for (const call of calls) {
      totals.tool_calls += 1;
      messages.push(say({ role: "tool", tool_call_id: call.id, content: await use(call) }));
    }
  }
  return "max_turns";
}

const totals = { turns: 0, tool_calls: 0 };
try {
  const stop_reason = await loop(fs.readFileSync(0, "utf8"), totals);
  record({ type: "end", stop_reason, ...totals });
  process.exit(0);
} catch (error) {
  record({ type: "end", stop_reason: "error", ...totals, error: error.message });
  process.stderr.write(`loop: ${error.message}\n`);
  process.exit(1);
}
