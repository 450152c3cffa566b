// Perfetto's trace_processor (its WebAssembly build) under node, outside of a browser.
//
//   node trace_processor.mjs FOLDER <requests
//
// FOLDER holds trace_processor.wasm, engine_bundle.node.js and engine.mjs; a line of stdin is a JSON
// object with the path of a trace and SQL queries. Prints a line for each: a JSON list with the rows of each query.
import { readFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const [folder] = process.argv.slice(2);
const CHUNK = 1 << 20;

// The bundle is made for a web worker, which loads its module by a synchronous request. It has the 32-bit module alone: the
// probe for 64-bit memory (a module that begins with its memory section) has to fail.
const Module = WebAssembly.Module;
WebAssembly.Module = function (bytes) {
  if (bytes[8] === 5) throw new Error("32-bit memory only");
  return new Module(bytes);
};
class LocalRequest {
  open() {}
  send() {
    this.response = readFileSync(path.join(folder, "trace_processor.wasm"));
  }
}
Object.assign(globalThis, { self: globalThis, WorkerGlobalScope: class {}, XMLHttpRequest: LocalRequest });
globalThis.location = { href: pathToFileURL(folder).href + "/" };
console.log = console.info = console.warn = (...words) => console.error(...words);

const { EngineBase } = await import(pathToFileURL(path.resolve(folder, "engine.mjs")).href);

class Engine extends EngineBase {
  mode = "WASM";
  id = "test";
  constructor(port) {
    super();
    this.port = port;
    port.onmessage = (message) => this.onRpcResponseBytes(message.data);
  }
  rpcSendRequestBytes(bytes) {
    this.port.postMessage(bytes);
  }
}

vm.runInThisContext(readFileSync(path.join(folder, "engine_bundle.node.js"), "utf8"));
await new Promise(setImmediate); // its initialisation ends in a microtask
const { port1, port2 } = new MessageChannel();
globalThis.onmessage({ data: port1 });
const engine = new Engine(port2);

// A trace is opened by a new TraceProcessor in the same module.
const RESET = {
  cropTrackEvents: false,
  ingestFtraceInRawTable: false,
  analyzeTraceProtoContent: false,
  ftraceDropUntilAllCpusValid: false,
};

async function ask({ trace, queries }) {
  await engine.resetTraceProcessor(RESET);
  const bytes = new Uint8Array(readFileSync(trace));
  for (let at = 0; at < bytes.length; at += CHUNK) await engine.parse(bytes.subarray(at, at + CHUNK));
  await engine.notifyEof();
  const answers = [];
  for (const sql of queries) {
    const result = await engine.query(sql);
    const rows = [];
    for (const it = result.iter({}); it.valid(); it.next())
      rows.push(Object.fromEntries(result.columns().map((name) => [name, it.get(name)])));
    answers.push(rows);
  }
  return JSON.stringify(answers, (_, value) => (typeof value === "bigint" ? Number(value) : value));
}

for await (const line of createInterface({ input: process.stdin })) process.stdout.write((await ask(JSON.parse(line))) + "\n");
process.exit(0);
