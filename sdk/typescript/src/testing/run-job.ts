// Runs a handler once without a server and shows what it did.

import { fork } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";

import { perform, type Handler, type Outcome } from "../worker/perform.js";
import { RunningJob, type Handout } from "../worker/running-job.js";
import type { ProgressReport } from "../worker/reports.js";
import { MemoryReports, type StoredUpload } from "./memory-reports.js";

export interface RunOptions {
  payload?: unknown;
  attempt?: number;
  maxAttempts?: number;
  replays?: number;
  queue?: string;
  key?: string | null;
  tags?: Record<string, string>;
  /** Sections that earlier attempts have stored. */
  sections?: Record<string, unknown>;
  /** The checkpoint of an earlier attempt. */
  checkpoint?: { data: unknown; schemaVersion: number };
  /** Cancel after so many sections, or after this: "section 3", "progress 2", "checkpoint 1", "output 1". */
  cancelAfter?: number | string;
  /** Run the handler in a child process and kill it after this. The handler is then a module: its path or URL. */
  killAfter?: string;
}

export type RunOutcome =
  | { ack: unknown }
  | { nack: string; retryable?: false }
  | { defer: { after: number; scope: string; reason?: string } }
  | { cancelled: true }
  | { released: true }
  | { killed: string };

export interface Run {
  outcome: RunOutcome;
  progress: ProgressReport[];
  /** All stored sections, those of `options.sections` included. */
  sections: Record<string, unknown>;
  output: string;
  checkpoint: { data: unknown; schemaVersion: number } | undefined;
  uploaded: StoredUpload | undefined;
  usage: Record<string, number> | undefined;
  /** The reports in order: "section 1", "progress 1", … */
  log: string[];
}

/** Runs a handler, or the default export of a module, on one job. */
export async function runJob<Payload>(
  handler: Handler<Payload> | string | URL,
  options: RunOptions = {},
): Promise<Run> {
  if (options.killAfter !== undefined) return runInChild(handler, options);
  if (typeof handler === "function") return runHere(handler as Handler, options, () => {});
  return runHere(await loadHandler(handler), options, () => {});
}

async function runHere(
  handler: Handler,
  options: RunOptions,
  onReport: (name: string, run: Partial<Run>) => void,
): Promise<Run> {
  const cancelAfter = typeof options.cancelAfter === "number" ? `section ${options.cancelAfter}` : options.cancelAfter;
  const log: string[] = [];
  const stored = new Map(Object.entries(options.sections ?? {}).map(([name, value]) => [name, JSON.stringify(value)]));
  const reports = new MemoryReports(stored, (name) => {
    log.push(name);
    if (name === cancelAfter) job.direct(["cancel", "checkpoint_now"]);
    onReport(name, partsOf(reports));
  });
  const handout = handoutOf(options);
  const payloadText = () => JSON.stringify(handout.payload);
  const job = new RunningJob(handout, { queue: options.queue ?? "test", reports, json: JSON, payloadText });
  const outcome = await perform(job, handler, { json: JSON });
  return { ...partsOf(reports), outcome: shown(outcome, reports.uploaded), usage: job.usedAmounts, log };
}

function partsOf(reports: MemoryReports): Omit<Run, "outcome" | "usage" | "log"> {
  return {
    progress: reports.progressReports,
    sections: Object.fromEntries([...reports.sections].map(([name, text]) => [name, JSON.parse(text) as unknown])),
    output: reports.outputText,
    checkpoint:
      reports.checkpointText === undefined ? undefined : (JSON.parse(reports.checkpointText) as Run["checkpoint"]),
    uploaded: reports.uploaded,
  };
}

function handoutOf(options: RunOptions): Handout {
  const now = new Date().toISOString();
  const { checkpoint } = options;
  return {
    id: "01a1e137-fc46-79b6-944e-b3122196293a",
    lease: "0".repeat(32),
    leaseExpiresAt: now,
    createdAt: now,
    attempt: options.attempt ?? 1,
    maxAttempts: options.maxAttempts ?? 5,
    replays: options.replays ?? 0,
    deferCount: 0,
    // A handler gets what JSON leaves of the payload.
    payload: options.payload === undefined ? null : (JSON.parse(JSON.stringify(options.payload)) as unknown),
    key: options.key ?? null,
    tags: options.tags ?? {},
    sections: Object.keys(options.sections ?? {}),
    checkpoint: checkpoint
      ? { ...checkpoint, length: 0, at: now, replays: 0, attempt: 1, blobUrl: null, sha256: null }
      : null,
    checkpointIncompatible: false,
    softTimeLimit: null,
    hardTimeLimit: null,
    traceparent: null,
  } as Handout;
}

function shown(outcome: Outcome, uploaded: StoredUpload | undefined): RunOutcome {
  switch (outcome.outcome) {
    case "ack": {
      const isValue = outcome.resultText !== undefined;
      return { ack: isValue ? (JSON.parse(outcome.resultText!) as unknown) : uploaded?.bytes };
    }
    case "nack":
      return outcome.retryable === false ? { nack: outcome.reason, retryable: false } : { nack: outcome.reason };
    case "defer": {
      const { retryAfter, scope, reason } = outcome;
      return { defer: { after: retryAfter, scope, ...(reason !== undefined && { reason }) } };
    }
    case "cancelled":
      return { cancelled: true };
    default:
      return { released: true };
  }
}

// The CommonJS build would turn a plain `import()` into `require`, which takes no URL.
const importModule = new Function("url", "return import(url)") as (url: string) => Promise<unknown>;

async function loadHandler(module: string | URL): Promise<Handler> {
  const url = module instanceof URL ? module.href : module.startsWith("file:") ? module : pathToFileURL(module).href;
  const loaded = (await importModule(url)) as { default?: Handler | { default?: Handler } };
  const found = typeof loaded.default === "object" ? loaded.default.default : loaded.default;
  if (typeof found !== "function") throw new TypeError(`${url} has no handler as its default export`);
  return found;
}

interface ChildReport {
  name?: string;
  run: Run;
}

async function runInChild(handler: unknown, options: RunOptions): Promise<Run> {
  if (typeof handler !== "string" && !(handler instanceof URL)) {
    throw new TypeError("killAfter runs the handler in a child process: pass the path or URL of its module");
  }
  const path = handler instanceof URL || handler.startsWith("file:") ? fileURLToPath(handler) : handler;
  // The handler's project has this package, so the child finds it from there.
  const entry = createRequire(path).resolve("outlast/testing");
  const child = fork(entry, [], { env: { ...process.env, OUTLAST_TEST_CHILD: "1" }, serialization: "advanced" });
  const { killAfter, ...rest } = options;
  const log: string[] = [];
  return new Promise<Run>((resolve, reject) => {
    let isSettled = false;
    child.on("error", reject);
    child.on("exit", (code) => isSettled || reject(new Error(`the child has ended with ${code} before ${killAfter}`)));
    child.on("message", ({ name, run }: ChildReport) => {
      if (name !== undefined) log.push(name);
      const isKill = name === killAfter;
      if (isSettled || (name !== undefined && !isKill)) return;
      isSettled = true;
      child.once("exit", () =>
        resolve(isKill ? { ...run, outcome: { killed: killAfter! }, usage: undefined, log } : run),
      );
      child.kill("SIGKILL");
    });
    child.send({ module: pathToFileURL(path).href, options: rest });
  });
}

/** The child's side of `killAfter`: runs the handler, and reports each step before the handler goes on. */
export function serveChild(): void {
  process.once("message", ({ module, options }: { module: string; options: RunOptions }) => {
    const send = (report: ChildReport) => process.send!(report);
    void loadHandler(module)
      .then((handler) => runHere(handler, options, (name, run) => send({ name, run: run as Run })))
      .then((run) => send({ run }));
  });
}
