// The worker: receives jobs of one or several queues, runs handlers on them, and stops in order.

import { Outlast } from "../client.js";
import { seconds, sleep, type Duration } from "../duration.js";
import { Busy, InDoubt, OutlastError, Refused, Unavailable } from "../errors.js";
import { backoff } from "../retry.js";
import { nodeModule, processLike } from "../runtime.js";
import type { StandardSchema } from "../schema.js";
import { SDK_VERSION, type Answer, type Call, type Transport } from "../transport.js";
import { HeldJobs, type Held, type ReceivedJob } from "./held-jobs.js";
import { perform, settleError, settleValue, type Handler, type Outcome } from "./perform.js";
import type { Handout, RunningJob } from "./running-job.js";
import type { Defer } from "./stops.js";

export type BatchHandler<Payload = unknown, Result = unknown> = (
  jobs: RunningJob<Payload>[],
) => Result[] | Promise<Result[]>;

export interface WorkerOptions<Payload = unknown> {
  outlast?: Outlast;
  /** Jobs in work at once; 1. */
  concurrency?: number;
  /** Name of the worker, shown with its jobs; default: host and process id. */
  worker?: string;
  /** The lease to ask for, instead of the queue's. */
  visibilityTimeout?: Duration;
  /** Versions of checkpoints that the handler can go on from. */
  acceptsSchema?: number[];
  /** Checks payloads; one that does not match makes a dead letter. */
  schema?: StandardSchema<Payload>;
  deferOn?: (error: unknown) => Defer | undefined;
  /** How long jobs may take to end after a SIGTERM; 25 s. */
  grace?: Duration;
  /** How long the main loop may be blocked before the keeper lets the jobs go; 10 min. */
  maxBlocked?: Duration;
  /** Stop on SIGTERM and SIGINT; true. */
  signals?: boolean;
  log?: (line: string) => void;
  onStart?: (job: RunningJob<Payload>) => void;
  onEnd?: (job: RunningJob<Payload>, outcome: Outcome) => void;
  onError?: (error: unknown, job: RunningJob<Payload> | undefined) => void;
}

export interface QueueHandler {
  handler: Handler<never>;
  /** How often this queue is taken, in relation to the others; 1. */
  weight?: number;
}

export type Queues = Record<string, Handler<never> | QueueHandler>;

const RECEIVE_WAIT_SECONDS = 20;
const RECEIVE_BATCH_MAX = 100;
const GRACE_SECONDS = 25;
/** A receive that is under way at a stop may bring jobs, which are given back; one that waits for jobs is ended after this. */
const RECEIVE_LINGER_MILLIS = 300;
/** A busy server has this long to take the last outcomes. */
const REPORT_MILLIS = 10_000;
/** After the signal was aborted, handlers have this long to end. */
const ABORT_MILLIS = 3000;
const MAX_BLOCKED_SECONDS = 600;
/** Jobs whose outcome has no answer yet: beyond so many no new ones are received. */
const UNREPORTED_MAX = 1000;

interface WorkUnit {
  weights: Map<string, number>;
  /** Jobs of one call of a handler. */
  groupSize: number;
  run: (group: Held<unknown>[]) => Promise<Outcome[]>;
}

export class Worker {
  readonly #outlast: Outlast;
  readonly #options: WorkerOptions<never>;
  readonly #unit: WorkUnit;
  readonly #log: (line: string) => void;
  readonly #stopReceiving = new AbortController();
  readonly #wake: { resolve: () => void } = { resolve: () => {} };
  #held: HeldJobs | undefined;
  #running = 0;
  #unreported = 0;
  #run: Promise<void> | undefined;
  #isHurried = false;
  #ended = () => {};

  constructor(unit: WorkUnit, options: WorkerOptions<never>) {
    this.#outlast = options.outlast ?? new Outlast();
    this.#options = options;
    this.#unit = unit;
    this.#log = options.log ?? ((line) => console.error(`outlast: ${line}`));
  }

  /** Works until `stop()`, SIGTERM or SIGINT. Rejects where the server refuses the key or the queue. */
  run(): Promise<void> {
    this.#run ??= this.#work();
    return this.#run;
  }

  /** No new jobs; those in work have `grace` to end; then they are given back. A second call does not wait for them. */
  async stop(): Promise<void> {
    if (this.#stopReceiving.signal.aborted) this.#isHurried = true;
    this.#stopReceiving.abort(new Error("the worker stops"));
    for (const { job } of this.#held?.all() ?? []) job.shuttingDown = true;
    this.#ended();
    this.#wake.resolve();
    await this.#run;
  }

  async #work(): Promise<void> {
    const maxBlockedMillis = seconds(this.#options.maxBlocked ?? MAX_BLOCKED_SECONDS, "maxBlocked") * 1000;
    const { transport } = this.#outlast;
    const onSignal = () => void this.stop().catch(() => {});
    const process = this.#options.signals === false ? undefined : (processLike as NodeJS.Process | undefined);
    process?.on?.("SIGTERM", onSignal).on("SIGINT", onSignal);
    let isClean = true;
    try {
      this.#held = await this.#patiently(() => HeldJobs.open(transport, { maxBlockedMillis, log: this.#log }));
      if (this.#held) await this.#receiveUntilStopped();
    } finally {
      this.#stopReceiving.abort(new Error("the worker stops"));
      if (this.#held) isClean = await this.#drain();
      await this.#held?.close();
      process?.off?.("SIGTERM", onSignal).off("SIGINT", onSignal);
    }
    // A handler that does not end would keep the process alive.
    if (!isClean && process) setTimeout(() => process.exit(0), 100).unref();
  }

  async #receiveUntilStopped(): Promise<void> {
    const { signal } = this.#stopReceiving;
    const source = await JobSource.open(this.#outlast.transport, this.#unit.weights, this.#options);
    const capacity = (this.#options.concurrency ?? 1) * this.#unit.groupSize;
    const receiving = new AbortController();
    let linger: ReturnType<typeof setTimeout> | undefined;
    signal.addEventListener("abort", () => {
      linger = setTimeout(() => receiving.abort(signal.reason), RECEIVE_LINGER_MILLIS);
    });
    while (!signal.aborted) {
      const free = capacity - this.#running;
      if (free <= 0 || this.#unreported >= UNREPORTED_MAX) {
        await new Promise<void>((resolve) => (this.#wake.resolve = resolve));
        continue;
      }
      const received = await this.#patiently(() => source.receive(Math.min(free, RECEIVE_BATCH_MAX), receiving.signal));
      if (!received?.length) continue;
      if (signal.aborted) await this.#giveBack(received);
      else this.#start(received);
    }
    clearTimeout(linger);
  }

  /** Jobs that came after the stop: another worker takes them, and nothing is charged. */
  async #giveBack(received: ReceivedJob[]): Promise<void> {
    const held = this.#held!;
    await Promise.all(held.take<unknown>(received).map((one) => held.finish(one, { outcome: "release" })));
  }

  /** Repeats a call for as long as its failures may pass; undefined when the worker stops before. */
  async #patiently<Result>(call: () => Promise<Result>): Promise<Result | undefined> {
    const { signal } = this.#stopReceiving;
    for (let failures = 1; !signal.aborted; failures += 1) {
      try {
        return await call();
      } catch (error) {
        if (signal.aborted) break;
        if (!isTemporary(error)) throw error;
        if (failures === 1) this.#log(`jobs cannot be received; trying again: ${(error as Error).message}`);
        this.#options.onError?.(error, undefined);
        await sleep(backoff(failures), signal).catch(() => {});
      }
    }
    return undefined;
  }

  #start(received: ReceivedJob[]): void {
    const entries = this.#held!.take<unknown>(received);
    for (let at = 0; at < entries.length; at += this.#unit.groupSize) {
      const group = entries.slice(at, at + this.#unit.groupSize);
      this.#running += group.length;
      void this.#runGroup(group);
    }
  }

  async #runGroup(group: Held<unknown>[]): Promise<void> {
    for (const { job } of group) this.#options.onStart?.(job as RunningJob<never>);
    const outcomes = await this.#unit.run(group);
    // The slots are free: the next jobs may be received while the outcomes are on their way.
    this.#running -= group.length;
    this.#unreported += group.length;
    this.#wake.resolve();
    await Promise.all(group.map((held, index) => this.#finish(held, outcomes[index]!)));
    this.#unreported -= group.length;
    this.#wake.resolve();
    this.#ended();
  }

  async #finish(held: Held<unknown>, outcome: Outcome): Promise<void> {
    const refused = await this.#held!.finish(held, outcome);
    if (refused) this.#options.onError?.(refused, held.job as RunningJob<never>);
    this.#options.onEnd?.(held.job as RunningJob<never>, outcome);
  }

  /** Lets jobs end, then aborts, then gives back. Did every handler end? */
  async #drain(): Promise<boolean> {
    const held = this.#held!;
    const graceMillis = seconds(this.#options.grace ?? GRACE_SECONDS, "grace") * 1000;
    for (const { job } of held.all()) job.shuttingDown = true;
    await this.#waitForEnds(graceMillis, () => this.#isHurried);
    for (const { job } of held.all()) job.stop("shutdown");
    await this.#waitForEnds(this.#isHurried ? 0 : ABORT_MILLIS, () => false);
    const left = held.all().filter((one) => !one.isReporting);
    // Their handlers have not ended: another worker takes the jobs, and nothing is charged.
    const released = Promise.all(left.map((one) => held.finish(one, { outcome: "release" })));
    // The timer must not outlive the race, or it keeps the process alive.
    const answered = new AbortController();
    const limit = sleep(REPORT_MILLIS, answered.signal).catch(() => {});
    await Promise.race([released, limit]);
    answered.abort();
    await this.#waitForEnds(REPORT_MILLIS, () => false);
    return left.length === 0;
  }

  /** Until no job is held, or the time has passed, or there is another reason. */
  async #waitForEnds(millis: number, isOver: () => boolean): Promise<void> {
    const deadline = Date.now() + millis;
    while (this.#held!.size > 0 && Date.now() < deadline && !isOver()) {
      const remaining = deadline - Date.now();
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, remaining);
        this.#ended = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }
}

/** Errors after which the same request may succeed. */
function isTemporary(error: unknown): boolean {
  if (!(error instanceof OutlastError)) return false;
  if (error instanceof InDoubt || error instanceof Unavailable || error instanceof Busy) return true;
  return error instanceof Refused && error.status >= 500;
}

/** Where jobs come from: one queue, or several in one request where the server can do that. */
class JobSource {
  readonly #transport: Transport;
  readonly #queues: { name: string; weight: number }[];
  readonly #body: Record<string, unknown>;
  readonly #canJoin: boolean;
  #turn = 0;

  static async open(
    transport: Transport,
    weights: Map<string, number>,
    options: WorkerOptions<never>,
  ): Promise<JobSource> {
    const hasVersion = (await transport.serverVersion()) !== null;
    const host = await hostName();
    const pid = (processLike as { pid?: number } | undefined)?.pid ?? 0;
    const body: Record<string, unknown> = { worker: options.worker ?? `${host}:${pid}` };
    if (options.visibilityTimeout !== undefined) body["visibilityTimeout"] = options.visibilityTimeout;
    if (options.acceptsSchema) body["acceptsSchema"] = options.acceptsSchema;
    if (hasVersion) body["agent"] = { host, pid, sdk: `typescript ${SDK_VERSION}` };
    return new JobSource(
      transport,
      [...weights].map(([name, weight]) => ({ name, weight })),
      body,
      hasVersion,
    );
  }

  private constructor(
    transport: Transport,
    queues: { name: string; weight: number }[],
    body: Record<string, unknown>,
    canJoin: boolean,
  ) {
    this.#transport = transport;
    this.#queues = queues;
    this.#body = body;
    this.#canJoin = canJoin;
  }

  async receive(batch: number, signal: AbortSignal): Promise<ReceivedJob[]> {
    const isJoined = this.#queues.length > 1 && this.#canJoin;
    // Without the joint call each queue is asked in turn, as often as it weighs, and waits only briefly.
    const wait = isJoined || this.#queues.length === 1 ? RECEIVE_WAIT_SECONDS : 1;
    const queue = isJoined ? undefined : this.#nextQueue();
    const path = queue === undefined ? "/v1/receive" : `/v1/queues/${encodeURIComponent(queue)}/receive`;
    const body = { ...this.#body, batch, wait, ...(isJoined && { queues: this.#queues }) };
    // Not repeated here: the loop does that, and a lost answer's jobs come back on their own.
    const call: Call = { method: "POST", path, body, wait, retries: 0, signal };
    const answer = await this.#transport.send(call);
    return receivedJobs(answer, queue);
  }

  #nextQueue(): string {
    if (this.#queues.length === 1) return this.#queues[0]!.name;
    const total = this.#queues.reduce((sum, { weight }) => sum + weight, 0);
    let at = this.#turn % total;
    this.#turn += 1;
    for (const { name, weight } of this.#queues) {
      if (at < weight) return name;
      at -= weight;
    }
    return this.#queues[0]!.name;
  }
}

function receivedJobs(answer: Answer, queue: string | undefined): ReceivedJob[] {
  const { jobs } = answer.json as { jobs: Handout[] };
  const serverNow = Date.parse(answer.headers.get("date") ?? "") || Date.now();
  return jobs.map((handout, index) => {
    const path = ["jobs", index, "payload"];
    return { handout, queue: handout.queue ?? queue ?? "", text: answer.text, path, serverNow };
  });
}

async function hostName(): Promise<string> {
  try {
    return (await nodeModule<typeof import("node:os")>("os")).hostname();
  } catch {
    return "edge";
  }
}

/** A worker whose handler gets up to `batch` jobs at once and returns one result for each; an `Error` in its place is a nack. */
export function worker<Payload = unknown, Result = unknown>(
  queue: string,
  handler: BatchHandler<Payload, Result>,
  options: WorkerOptions<Payload> & { batch: number },
): Worker;
/** A worker for one queue. `run()` starts it. */
export function worker<Payload = unknown, Result = unknown>(
  queue: string,
  handler: Handler<Payload, Result>,
  options?: WorkerOptions<Payload>,
): Worker;
/** A worker for several queues, taken by weight. */
export function worker(queues: Queues, options?: WorkerOptions): Worker;
export function worker(first: string | Queues, second?: unknown, third?: unknown): Worker {
  if (typeof first !== "string")
    return new Worker(queuesUnit(first, second as WorkerOptions<never>), (second ?? {}) as WorkerOptions<never>);
  const options = (third ?? {}) as WorkerOptions<never> & { batch?: number };
  if (typeof second !== "function") throw new TypeError("worker(queue, handler) needs a function as its handler");
  const weights = new Map([[first, 1]]);
  if (options.batch === undefined)
    return new Worker({ weights, groupSize: 1, run: eachAlone(() => second as Handler<never>, options) }, options);
  const run = allTogether(second as BatchHandler<never>, options);
  return new Worker({ weights, groupSize: options.batch, run }, options);
}

function queuesUnit(queues: Queues, options: WorkerOptions<never> = {}): WorkUnit {
  const entries = Object.entries(queues).map(([name, given]) => {
    return { name, weight: 1, ...(typeof given === "function" ? { handler: given } : given) };
  });
  const handlers = new Map(entries.map(({ name, handler }) => [name, handler]));
  const run = eachAlone((queue) => handlers.get(queue)!, options);
  return { weights: new Map(entries.map(({ name, weight }) => [name, weight])), groupSize: 1, run };
}

const jsonOf = (options: WorkerOptions<never>) => options.outlast?.transport.json ?? JSON;

function eachAlone(handlerOf: (queue: string) => Handler<never>, options: WorkerOptions<never>): WorkUnit["run"] {
  return async ([held]) => {
    const job = held!.job as RunningJob<never>;
    const handler = handlerOf(job.queue);
    const observed: Handler<never> = async (one) => {
      try {
        return await handler(one);
      } catch (error) {
        options.onError?.(error, job);
        throw error;
      }
    };
    return [await perform(job, observed, { schema: options.schema, deferOn: options.deferOn, json: jsonOf(options) })];
  };
}

function allTogether(handler: BatchHandler<never>, options: WorkerOptions<never>): WorkUnit["run"] {
  return async (group) => {
    const jobs = group.map(({ job }) => job as RunningJob<never>);
    try {
      const results: unknown[] = await handler(jobs);
      if (!Array.isArray(results) || results.length !== jobs.length) {
        throw new TypeError(`a batch handler returns one result per job: ${jobs.length}`);
      }
      return await Promise.all(
        jobs.map((job, index) => {
          const result: unknown = results[index];
          const failed = (error: unknown) => settleError(job, error, options);
          return result instanceof Error ? failed(result) : settleValue(job, result, jsonOf(options)).catch(failed);
        }),
      );
    } catch (error) {
      options.onError?.(error, undefined);
      return Promise.all(jobs.map((job) => settleError(job, error, options)));
    }
  };
}
