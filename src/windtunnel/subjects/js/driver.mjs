// The driver: runs one subject in a sandbox and reports through the box. Plain Node, no dependencies.
//
//   node driver.mjs <inputs>/spec.json
//
// Contract: driver_spec.py. It owns the subject's stdin and stdout, relays the gateway's socket to a loopback port,
// enforces the deadline alone and renames exit.json into place as its last act. The subject runs as the same user and
// may delete or replace anything in the box: no file of the box may stop the driver.

import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as http from "node:http";
import * as net from "node:net";
import * as path from "node:path";

const BASE_URL = "{{windtunnel.base_url}}";
const TOKEN = "{{windtunnel.token}}";
const SANDBOX_PATH = "{{windtunnel.path}}";
const TERM_GRACE_MS = 2_000;
const SETTLED_GRACE_MS = 10_000;
const DRAIN_MS = 1_000;
const CHECK_TIMEOUT_MS = 120_000;
const RPC_LINE_LIMIT = 1 << 20; // the two kinds of line that matter are short
const TIMER_LIMIT_MS = 1 << 30; // Node's timers overflow at 2^31

// ---- the box ---------------------------------------------------------------------------------------------------

class Box {
  constructor(root) {
    this.root = root;
  }

  /** Append all bytes to a plain file of the box; what stands in the way is replaced once, then given up. */
  append(name, data) {
    const file = path.join(this.root, name);
    if (!appendAll(file, data)) {
      clear(file, this.root);
      appendAll(file, data);
    }
  }

  event(kind, fields = {}) {
    const line = { ts: new Date().toISOString(), mono_ms: Math.round(performance.now()), event: kind, ...fields };
    this.append("driver-events.ndjson", Buffer.from(JSON.stringify(line) + "\n"));
  }

  finish(record) {
    if (!replace(this.root, "exit.json", record)) {
      clear(path.join(this.root, "exit.json"), this.root);
      replace(this.root, "exit.json", record);
    }
  }
}

function appendAll(file, data) {
  // O_NONBLOCK and O_NOFOLLOW: a pipe or link that the subject planted must neither hang nor lead elsewhere.
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = fs.constants;
  let fd;
  try {
    fd = fs.openSync(file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o644);
    if (!fs.fstatSync(fd).isFile()) return false;
    for (let done = 0; done < data.length; ) done += fs.writeSync(fd, data, done);
    return true;
  } catch {
    return false;
  } finally {
    if (fd !== undefined) fs.closeSync(fd);
  }
}

function replace(root, name, record) {
  const temporary = path.join(root, `.${name}.${process.pid}`);
  try {
    fs.rmSync(temporary, { recursive: true, force: true });
    const fd = fs.openSync(temporary, "wx", 0o644);
    try {
      fs.writeSync(fd, JSON.stringify(record) + "\n");
      fs.fchmodSync(fd, 0o644); // the umask is the image's, the reader is another user
      fs.fsyncSync(fd);
    } finally {
      fs.closeSync(fd);
    }
    fs.renameSync(temporary, path.join(root, name));
    return true;
  } catch {
    return false;
  }
}

function clear(file, root) {
  try {
    fs.mkdirSync(root, { recursive: true });
    if (!fs.lstatSync(file).isFile()) fs.rmSync(file, { recursive: true, force: true });
  } catch {
    // Nothing there, or not ours to remove: the retry decides.
  }
}

// ---- time ------------------------------------------------------------------------------------------------------

/** Resolves after `ms` on the monotonic clock; null or undefined: never. */
async function after(ms) {
  if (ms === null || ms === undefined) return new Promise(() => {});
  const end = performance.now() + ms;
  for (let left = ms; left > 0; left = end - performance.now()) {
    await new Promise((resolve) => setTimeout(resolve, Math.min(left, TIMER_LIMIT_MS)));
  }
}

function remaining(spec) {
  if (spec.deadline_after_ms !== null && spec.deadline_after_ms !== undefined) return spec.deadline_after_ms;
  return spec.deadline_epoch_ms ? Math.max(0, spec.deadline_epoch_ms - Date.now()) : null;
}

// ---- the way out -----------------------------------------------------------------------------------------------

/** Relay 127.0.0.1:<port> to the gateway's socket, byte for byte; either side may close its half first. */
function listen(spec) {
  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (near) => {
    const far = net.connect({ path: spec.socket, allowHalfOpen: true });
    near.pipe(far);
    far.pipe(near);
    const drop = () => (near.destroy(), far.destroy());
    near.on("error", drop);
    far.on("error", drop);
    near.on("close", () => far.destroy()); // never the other way round: near may still have bytes to hand on
  });
  return new Promise((resolve, reject) => {
    server.once("error", (error) => reject(new Error(`relay port ${spec.relay_port}: ${error.code}`)));
    server.listen(spec.relay_port, "127.0.0.1", () => resolve(server.address().port));
  });
}

/** GET one path through the relay; never rejects. */
function look(origin, where, token) {
  const options = { agent: false, timeout: CHECK_TIMEOUT_MS, headers: token ? { authorization: `Bearer ${token}` } : {} };
  return new Promise((resolve) => {
    const fail = (text) => resolve({ path: where, status: null, body: null, error: text });
    const request = http.get(origin + where, options, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (text) => (body += body.length < 4096 ? text : ""));
      response.on("error", (error) => fail(error.code ?? error.message));
      response.on("end", () => resolve({ path: where, status: response.statusCode, body: body.slice(0, 4096), error: null }));
    });
    request.on("timeout", () => request.destroy(new Error("timed out")));
    request.on("error", (error) => fail(error.code ?? error.message));
  });
}

// ---- files and environment of the subject ----------------------------------------------------------------------

function fill(text, values) {
  for (const [name, value] of Object.entries(values)) text = text.replaceAll(name, value);
  return text;
}

/** Copy files or whole directories below `writable`, under the same relative names, with the places filled in. */
function render(spec, values) {
  for (const entry of spec.render) copy(path.join(spec.inputs, entry), path.join(spec.writable, entry), values);
}

function copy(source, target, values) {
  const facts = fs.statSync(source);
  if (facts.isDirectory()) {
    fs.mkdirSync(target, { recursive: true });
    for (const name of fs.readdirSync(source)) copy(path.join(source, name), path.join(target, name), values);
    return;
  }
  const data = fs.readFileSync(source);
  const marked = Object.keys(values).some((name) => data.includes(name));
  fs.mkdirSync(path.dirname(target), { recursive: true });
  fs.writeFileSync(target, marked ? fill(data.toString("utf8"), values) : data);
  fs.chmodSync(target, facts.mode | 0o600);
}

/** What the sandbox gives every process (the image's own variables), then the spec's, then the deadline. */
function environment(spec, values, deadlineMs) {
  const env = { ...process.env };
  if (deadlineMs !== null) env.WINDTUNNEL_DEADLINE = new Date(Date.now() + deadlineMs).toISOString();
  for (const [name, value] of Object.entries(spec.env)) env[name] = fill(value, values);
  if (env.WINDTUNNEL_DEADLINE === "") delete env.WINDTUNNEL_DEADLINE; // the config does not want it told
  return env;
}

// ---- the subject -----------------------------------------------------------------------------------------------

function signalGroup(child, signal) {
  try {
    process.kill(-child.pid, signal);
  } catch {
    // Nobody left in the group.
  }
}

/** Write a stream to the box up to the limit; beyond it keep reading and counting, or the subject would block. */
function drain(stream, name, count, box, limit) {
  let written = 0;
  stream.on("error", () => {});
  stream.on("data", (chunk) => {
    count(chunk);
    if (written >= limit) return;
    const part = chunk.subarray(0, limit - written);
    written += part.length;
    box.append(name, part);
    if (written >= limit) box.event("output_limit", { file: name, bytes: limit });
  });
}

/** Pi's RPC: send the prompt, done at `agent_settled`; `done` resolves to null, or to why it cannot go on. */
class PiRpc {
  constructor(stdin, prompt) {
    this.parts = [];
    this.size = 0;
    this.done = new Promise((resolve) => (this.resolve = resolve));
    stdin.write(JSON.stringify({ id: "1", type: "prompt", message: prompt }) + "\n");
  }

  feed(chunk) {
    for (let start = 0; start < chunk.length; ) {
      const end = chunk.indexOf(10, start);
      this.keep(chunk.subarray(start, end < 0 ? chunk.length : end));
      if (end < 0) return;
      if (this.size <= RPC_LINE_LIMIT) this.line(Buffer.concat(this.parts).toString("utf8"));
      this.parts = [];
      this.size = 0;
      start = end + 1;
    }
  }

  keep(part) {
    this.size += part.length;
    if (this.size <= RPC_LINE_LIMIT) this.parts.push(part);
    else this.parts = [];
  }

  line(text) {
    if (!text.includes('"agent_settled"') && !text.includes('"response"')) return;
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return;
    }
    if (message?.type === "agent_settled") this.resolve(null);
    const refused = message?.type === "response" && message.success === false;
    if (refused && (message.id === "1" || message.command === "parse")) {
      this.resolve(`prompt refused: ${String(message.error).slice(0, 1000)}`);
    }
  }
}

function start(spec, env) {
  if (spec.cwd && !fs.existsSync(spec.cwd)) throw new Error(`working directory ${spec.cwd} does not exist`);
  const options = { cwd: spec.cwd ?? undefined, env, detached: true, stdio: ["pipe", "pipe", "pipe"] };
  const child = spawn(spec.argv[0], spec.argv.slice(1), options);
  child.exited = new Promise((resolve, reject) => {
    child.once("error", (error) => reject(new Error(`${spec.argv[0]}: ${error.code ?? error.message}`)));
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
  child.closed = new Promise((resolve) => child.once("close", resolve));
  child.stdin.on("error", () => {}); // it may end without reading
  return child;
}

/** Run the subject to its end and fill in the record. `stopped` resolves when the driver itself is told to end. */
async function run(spec, env, record, box, stopped, deadline) {
  const prompt = spec.prompt_file ? fs.readFileSync(spec.prompt_file, "utf8") : null;
  const child = start(spec, env);
  if (child.pid === undefined) return child.exited;
  record.started = true;
  box.event("subject_started", { pid: child.pid });
  const rpc = spec.protocol === "pi-rpc" ? new PiRpc(child.stdin, prompt ?? "") : null;
  const output = (chunk) => ((record.stdout_bytes += chunk.length), rpc?.feed(chunk));
  drain(child.stdout, "subject.stdout", output, box, spec.output_limit_bytes);
  drain(child.stderr, "subject.stderr", (chunk) => (record.stderr_bytes += chunk.length), box, spec.output_limit_bytes);
  if (!rpc) child.stdin.end(prompt ?? "");
  if (prompt !== null) box.event("prompt_sent", { bytes: Buffer.byteLength(prompt) });
  await follow(child, rpc, record, box, stopped, deadline);
  const { code, signal } = await child.exited;
  Object.assign(record, { exit: code, signal });
  box.event("subject_exited", { exit: code, signal });
  await Promise.race([child.closed, after(DRAIN_MS)]); // a grandchild may hold the pipe open for ever
  signalGroup(child, "SIGKILL");
}

/** Wait for the first of: its own end, "done" by protocol, deadline, being stopped; then see that it ends. */
async function follow(child, rpc, record, box, stopped, deadline) {
  const exited = child.exited.then(() => ["exited"]);
  const halted = Promise.race([deadline.then(() => ["deadline"]), stopped.then((signal) => ["stopped", signal])]);
  const done = rpc ? rpc.done.then((error) => ["done", error]) : new Promise(() => {});
  const [what, detail] = await Promise.race([exited, halted, done]);
  if (what === "deadline") {
    record.timed_out = true;
    box.event("deadline");
  } else if (what === "stopped") {
    record.error = `the driver was ended by ${detail}`;
    box.event("driver_stopped", { signal: detail });
  } else if (what === "done") {
    record.settled = detail === null;
    record.error = detail;
    box.event(record.settled ? "settled" : "prompt_refused", { error: detail });
    child.stdin.end();
    await Promise.race([exited, halted, after(SETTLED_GRACE_MS)]);
  } else if (rpc) {
    record.error = "ended before agent_settled";
  } else {
    record.settled = (await child.exited).code !== null;
    if (record.settled) box.event("settled");
  }
  await terminate(child, exited);
}

async function terminate(child, exited) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  signalGroup(child, "SIGTERM");
  await Promise.race([exited, after(TERM_GRACE_MS)]);
  signalGroup(child, "SIGKILL");
}

// ---- one attempt -----------------------------------------------------------------------------------------------

function read(file) {
  try {
    return fs.readFileSync(file, "utf8").trim();
  } catch {
    return null;
  }
}

const DEFAULTS = {
  mode: "run", protocol: "exit", argv: [], env: {}, render: [], check_paths: [], base_path: "", relay_port: 8177,
  output_limit_bytes: 64 * 1024 * 1024,
};

function blank(spec) {
  return {
    schemaVersion: 1, attempt: spec.attempt, started: false, exit: null, signal: null, settled: false,
    timed_out: false, error: null, wall_ms: 0, stdout_bytes: 0, stderr_bytes: 0,
    boot_id: read("/proc/sys/kernel/random/boot_id"), checks: [],
  };
}

async function work(spec, record, box, stopped) {
  const left = remaining(spec);
  const deadline = after(left);
  const token = spec.token_file ? read(spec.token_file) : null;
  let origin = "";
  if (spec.socket) {
    const port = await listen(spec);
    box.event("relay_listening", { port });
    origin = `http://127.0.0.1:${port}`;
  }
  if (spec.mode === "check") return check(spec, origin, token, record, stopped, deadline);
  const base = origin && origin + spec.base_path;
  const values = { [BASE_URL]: base, [TOKEN]: token ?? "", [SANDBOX_PATH]: process.env.PATH ?? "" };
  render(spec, values);
  await run(spec, environment(spec, values, left), record, box, stopped, deadline);
}

async function check(spec, origin, token, record, stopped, deadline) {
  if (!origin) throw new Error("mode check needs a socket");
  const ended = Promise.race([deadline.then(() => (record.timed_out = true)), stopped.then(() => true)]);
  for (const where of spec.check_paths) {
    const answer = await Promise.race([look(origin, where, token), ended]);
    if (answer === true) return;
    record.checks.push(answer);
  }
  record.settled = record.checks.every((answer) => answer.status !== null);
}

async function main() {
  const spec = { ...DEFAULTS, ...JSON.parse(fs.readFileSync(process.argv[2], "utf8")) };
  const box = new Box(spec.box);
  const record = blank(spec);
  const began = performance.now();
  const stopped = new Promise((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => resolve(signal));
  });
  process.on("SIGHUP", () => {}); // a supervisor that goes away is no reason to end
  process.on("uncaughtException", (error) => box.event("driver_error", { error: String(error).slice(0, 1000) }));
  box.event("driver_started", { attempt: spec.attempt, pid: process.pid, boot_id: record.boot_id, node: process.version });
  try {
    await work(spec, record, box, stopped);
  } catch (error) {
    record.error = String(error.message ?? error).slice(0, 1000);
    box.event("driver_error", { error: record.error });
  }
  record.wall_ms = Math.round(performance.now() - began);
  box.finish(record);
  process.exit(0);
}

await main();
