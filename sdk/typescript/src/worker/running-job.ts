// A job in the hands of a handler: its payload, its signals, and the calls that store its work.

import type { JsonCodec } from "../transport.js";
import type { components } from "../wire.js";
import { CheckpointOf } from "./checkpoint.js";
import { OutputBuffer } from "./output.js";
import type { ProgressReport, Reports } from "./reports.js";
import { Stopped, type StopReason } from "./stops.js";
import type { UploadOptions, UploadSource, Uploaded } from "./upload.js";

/** A job as it was handed out; the fields that older servers do not send are optional. */
export type Handout = components["schemas"]["ReceivedJob"] & {
  queue?: string;
  key?: string | null;
  tags?: Record<string, string>;
  deadline?: string | null;
  heartbeatTimeout?: number | null;
  drainTimeout?: number | null;
};

export interface SectionOptions {
  /** Sections in work at once; 1. */
  concurrency?: number;
}

export interface RunningJobParts {
  queue: string;
  reports: Reports;
  json: JsonCodec;
  payloadText: () => string | undefined;
}

export class RunningJob<Payload = unknown> {
  readonly id: string;
  readonly queue: string;
  readonly payload: Payload;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly replays: number;
  readonly deferCount: number;
  readonly key: string | null;
  readonly tags: Record<string, string>;
  readonly traceparent: string | null;
  readonly createdAt: Date;
  /** When `hardTimeLimit` or `jobTimeout` ends the work, where the server has said so. */
  deadline: Date | null;
  readonly softLimitAt: Date | null;
  readonly checkpoint: CheckpointOf;
  /** The directives of the last heartbeat. */
  directives: readonly string[] = [];
  /** Has the worker been asked to stop? No new jobs are received; this one may end in its grace. */
  shuttingDown = false;
  /** Was a result uploaded in this attempt? */
  hasUploaded = false;

  readonly #reports: Reports;
  readonly #json: JsonCodec;
  readonly #payloadText: () => string | undefined;
  readonly #stop = new AbortController();
  readonly #soft = new AbortController();
  readonly #output: OutputBuffer;
  readonly #storedNames: Set<string>;
  #storedValues: Promise<Map<string, string>> | undefined;
  #progress: ProgressReport = {};
  #usage: Record<string, number> | undefined;
  #stopReason: StopReason | undefined;

  constructor(handout: Handout, parts: RunningJobParts) {
    this.id = handout.id;
    this.queue = parts.queue;
    this.payload = handout.payload as Payload;
    this.attempt = handout.attempt;
    this.maxAttempts = handout.maxAttempts;
    this.replays = handout.replays;
    this.deferCount = handout.deferCount;
    this.key = handout.key ?? null;
    this.tags = handout.tags ?? {};
    this.traceparent = handout.traceparent ?? null;
    this.createdAt = new Date(handout.createdAt);
    const now = Date.now();
    const limit = handout.hardTimeLimit ? new Date(now + handout.hardTimeLimit * 1000) : null;
    this.deadline = handout.deadline ? new Date(handout.deadline) : limit;
    this.softLimitAt = handout.softTimeLimit ? new Date(now + handout.softTimeLimit * 1000) : null;
    this.#reports = parts.reports;
    this.#json = parts.json;
    this.#payloadText = parts.payloadText;
    this.checkpoint = new CheckpointOf(parts.reports, parts.json, {
      checkpoint: handout.checkpoint ?? null,
      checkpointIncompatible: handout.checkpointIncompatible ?? false,
    });
    this.#output = new OutputBuffer((text) => parts.reports.output(text));
    this.#storedNames = new Set(handout.sections ?? []);
  }

  /** Aborted when the work should stop; its reason is a `Stopped`. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Aborted when the soft time limit has passed. */
  get softLimit(): AbortSignal {
    return this.#soft.signal;
  }

  get stopReason(): StopReason | undefined {
    return this.#stopReason;
  }

  /** The payload byte for byte, for numbers that a double cannot hold. */
  get payloadText(): string | undefined {
    return this.#payloadText();
  }

  /** Reports progress: `progress({ itemsDone: 3, itemsTotal: 10 })` or `progress(40, "stage")`. Returns at once. */
  progress(report: ProgressReport | number, stage?: string): void {
    const given: ProgressReport =
      typeof report === "number" ? { pct: report, ...(stage !== undefined && { stage }) } : report;
    this.#progress = { ...this.#progress, ...given };
    if (!this.#stopReason) this.#reports.progress(this.#progress);
  }

  /** Appends text for viewers. Returns at once; the text is stored before the outcome is reported. */
  output(text: string): void {
    if (this.#stopReason !== "lost") this.#output.add(text);
  }

  /** Adds to the amounts that go with the outcome: `usage({ tokens: 1234 })`. */
  usage(amounts: Record<string, number>): void {
    this.#usage ??= {};
    for (const [unit, amount] of Object.entries(amounts)) this.#usage[unit] = (this.#usage[unit] ?? 0) + amount;
  }

  get usedAmounts(): Record<string, number> | undefined {
    return this.#usage;
  }

  /** Does one part of the work and stores its value. A part that is stored never runs again: its value is returned. */
  async section<Value>(name: string, work: (name: string) => Value | Promise<Value>): Promise<Value> {
    if (this.#storedNames.has(name)) {
      const text = (await this.#values()).get(name);
      if (text !== undefined) return this.#json.parse(text) as Value;
    }
    this.signal.throwIfAborted();
    const value = await work(name);
    const text = this.#json.stringify(value === undefined ? null : value);
    await this.#reports.saveSection(name, text);
    this.#storedNames.add(name);
    (await this.#storedValues)?.set(name, text);
    return value;
  }

  /** Does each of these sections, skips those that are stored, reports progress, and returns all values in order. */
  async eachSection<Value>(
    names: readonly string[],
    work: (name: string) => Value | Promise<Value>,
    { concurrency = 1 }: SectionOptions = {},
  ): Promise<Value[]> {
    const values = new Array<Value>(names.length);
    let done = 0;
    let next = 0;
    let failure: { error: unknown } | undefined;
    const report = () => this.progress({ itemsDone: done, itemsTotal: names.length });
    report();
    const lane = async () => {
      // The other lanes end their section, which is stored, and start no new one.
      while (next < names.length && !failure) {
        const at = next;
        next += 1;
        try {
          values[at] = await this.section(names[at]!, work);
          done += 1;
          report();
        } catch (error) {
          failure ??= { error };
        }
      }
    };
    await Promise.all(Array.from({ length: Math.max(1, Math.min(concurrency, names.length)) }, lane));
    if (failure) throw failure.error;
    return values;
  }

  /** The names of the stored sections. */
  sections(): string[] {
    return [...this.#storedNames];
  }

  /** Uploads the result; return nothing afterwards. The job has it when it is acked. */
  async upload(source: UploadSource, options: UploadOptions = {}): Promise<Uploaded> {
    const uploaded = await this.#reports.upload(source, options);
    this.hasUploaded = true;
    return uploaded;
  }

  /** For the worker: resolves when all output is stored. */
  flush(): Promise<void> {
    return this.#output.flush();
  }

  /** For the worker: the work should stop. The first reason counts, but a lost lease overrides the others. */
  stop(reason: StopReason): void {
    if (this.#stopReason && reason !== "lost") return;
    this.#stopReason = reason;
    this.#stop.abort(new Stopped(reason));
  }

  /** For the worker: the soft limit has passed. */
  reachSoftLimit(): void {
    this.#soft.abort(new Error("the soft time limit has passed"));
  }

  /** For the worker: what a heartbeat has brought. */
  direct(directives: readonly string[]): void {
    this.directives = directives;
    if (directives.includes("checkpoint_now")) this.checkpoint.ask();
    if (directives.includes("cancel")) this.stop("cancel");
    // Another worker goes on: the job is given back as at a shutdown.
    if (directives.includes("hand_over")) this.stop("shutdown");
  }

  #values(): Promise<Map<string, string>> {
    this.#storedValues ??= this.#reports.loadSections();
    return this.#storedValues;
  }
}
