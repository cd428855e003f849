// The jobs that this process holds: makes them from hand-outs, keeps their leases by the keeper, runs their handlers and reports
// their outcomes. The worker and the webhook handler are two ways to get jobs; this is what they share.

import { LeaseLost, type Refused } from "../errors.js";
import { jsonText } from "../json-text.js";
import type { Transport } from "../transport.js";
import { startKeeper, type Keeper } from "./keeper.js";
import type { HeldJob, KeeperNotice } from "./keeper-loop.js";
import { OutcomeReporter } from "./outcomes.js";
import type { Outcome } from "./perform.js";
import { HttpReports } from "./reports.js";
import { RunningJob, type Handout } from "./running-job.js";

export interface HeldJobsOptions {
  maxBlockedMillis: number;
  log: (line: string) => void;
}

export interface ReceivedJob {
  handout: Handout;
  queue: string;
  /** The answer that the job came with, and the path to its payload in it. */
  text: string;
  path: (string | number)[];
  /** The server's clock when it answered, in milliseconds. */
  serverNow: number;
}

export interface Held<Payload> {
  readonly job: RunningJob<Payload>;
  lease: string;
  isReporting: boolean;
  isFinished: boolean;
  /** Aborted when nothing more can be reported. */
  readonly lost: AbortController;
  readonly timers: ReturnType<typeof setTimeout>[];
}

/** The server's clock in the header has whole seconds, so a lease is taken as a second shorter. */
const CLOCK_SLACK_MILLIS = 1000;
const LEASE_MIN_MILLIS = 900;

export class HeldJobs {
  readonly #transport: Transport;
  readonly #log: (line: string) => void;
  readonly #keeper: Keeper;
  readonly #hasParts: boolean;
  readonly #abandon = new AbortController();
  readonly #reporter: OutcomeReporter;
  readonly #held: Map<string, Held<unknown>>;

  static async open(transport: Transport, options: HeldJobsOptions): Promise<HeldJobs> {
    const held = new Map<string, Held<unknown>>();
    const keeper = await startKeeper(transport, options.maxBlockedMillis, (notice) =>
      onNotice(held, notice, options.log),
    );
    return new HeldJobs(transport, options.log, keeper, held, (await transport.serverVersion()) !== null);
  }

  private constructor(
    transport: Transport,
    log: (line: string) => void,
    keeper: Keeper,
    held: Map<string, Held<unknown>>,
    hasParts: boolean,
  ) {
    this.#transport = transport;
    this.#log = log;
    this.#keeper = keeper;
    this.#held = held;
    this.#hasParts = hasParts;
    this.#reporter = new OutcomeReporter(transport, this.#abandon.signal);
  }

  get size(): number {
    return this.#held.size;
  }

  /** Jobs in work, without those whose outcome is on its way. */
  all(): Held<unknown>[] {
    return [...this.#held.values()];
  }

  /** Takes jobs over. The keeper has them before a handler can block the loop. */
  take<Payload>(received: ReceivedJob[]): Held<Payload>[] {
    const entries = received.map((one) => this.#enter<Payload>(one));
    this.#keeper.hold(entries.map(({ job, lease }, index) => leaseOf(job.id, lease, received[index]!)));
    return entries;
  }

  #enter<Payload>({ handout, queue, text, path }: ReceivedJob): Held<Payload> {
    const lost = new AbortController();
    const reports = new HttpReports(this.#transport, {
      id: handout.id,
      lease: () => held.lease,
      signal: lost.signal,
      hasParts: this.#hasParts,
      onProgress: (report) => this.#keeper.progress(handout.id, report),
    });
    const payloadText = () => jsonText(text, path);
    const job = new RunningJob<Payload>(handout, { queue, reports, json: this.#transport.json, payloadText });
    const held: Held<Payload> = { job, lease: handout.lease, isReporting: false, isFinished: false, lost, timers: [] };
    this.#held.set(handout.id, held as Held<unknown>);
    if (handout.softTimeLimit) held.timers.push(later(handout.softTimeLimit, () => job.reachSoftLimit()));
    if (handout.hardTimeLimit)
      held.timers.push(later(handout.hardTimeLimit, () => lose(held as Held<unknown>, "hard limit")));
    return held;
  }

  /** A redelivery while the work runs: its lease replaces the old one. */
  handOver(received: ReceivedJob): boolean {
    const held = this.#held.get(received.handout.id);
    if (!held || held.job.stopReason === "lost") return false;
    held.lease = received.handout.lease;
    this.#keeper.hold([leaseOf(held.job.id, held.lease, received)]);
    return true;
  }

  /** A delivery was answered with 202: the time for its outcome begins, and only a beat says how long it is. */
  beatSoon({ job, lease }: Held<unknown>): void {
    this.#keeper.hold([{ id: job.id, lease, leaseMillis: LEASE_MIN_MILLIS, heartbeatMillis: null }]);
  }

  /** Reports the outcome and lets the job go; only the first outcome counts. Resolves with the server's refusal, if any. */
  async finish(held: Held<unknown>, outcome: Outcome): Promise<Refused | undefined> {
    const { job } = held;
    if (held.isFinished) return undefined;
    held.isFinished = true;
    let refused: Refused | undefined;
    if (outcome.outcome === "none")
      this.#log(`job ${job.id}: the lease is lost (${job.stopReason}); nothing is reported`);
    else refused = await this.#reportWithCurrentLease(held, outcome);
    if (refused) this.#log(`job ${job.id}: ${outcome.outcome} was refused (${refused.code}): ${refused.detail}`);
    this.drop(held);
    return refused;
  }

  async #reportWithCurrentLease(
    held: Held<unknown>,
    outcome: Exclude<Outcome, { outcome: "none" }>,
  ): Promise<Refused | undefined> {
    held.isReporting = true;
    for (;;) {
      const { lease } = held;
      const refused = await this.#reporter.report(held.job.id, lease, outcome);
      // A redelivery has brought a newer lease meanwhile: that one counts.
      if (!(refused instanceof LeaseLost) || held.lease === lease) return refused;
    }
  }

  /** Lets the job go without a report. */
  drop(held: Held<unknown>): void {
    held.timers.forEach(clearTimeout);
    if (this.#held.get(held.job.id) !== held) return;
    this.#held.delete(held.job.id);
    this.#keeper.release([held.job.id]);
  }

  /** Stops the keeper; reports that have no answer yet are given up. */
  async close(): Promise<void> {
    this.#abandon.abort(new Error("the worker has stopped"));
    for (const held of this.#held.values()) {
      lose(held, "lost");
      held.timers.forEach(clearTimeout);
    }
    await this.#keeper.stop();
  }
}

function leaseOf(id: string, lease: string, { handout, serverNow }: ReceivedJob): HeldJob {
  const remaining = Date.parse(handout.leaseExpiresAt) - serverNow - CLOCK_SLACK_MILLIS;
  return { id, lease, leaseMillis: Math.max(remaining, LEASE_MIN_MILLIS), heartbeatMillis: heartbeatMillisOf(handout) };
}

function heartbeatMillisOf({ heartbeatTimeout }: Handout): number | null {
  return heartbeatTimeout ? heartbeatTimeout * 1000 : null;
}

function later(afterSeconds: number, run: () => void): ReturnType<typeof setTimeout> {
  // Longer times do not fit into a timer; the keeper learns of them from the server.
  return setTimeout(run, Math.min(afterSeconds * 1000, 2 ** 31 - 1));
}

function lose(held: Held<unknown>, reason: "lost" | "hard limit"): void {
  held.job.stop(reason);
  const detail = `job ${held.job.id} is not held any more`;
  held.lost.abort(new LeaseLost({ code: "lease_lost", status: 409, detail }));
}

function onNotice(all: Map<string, Held<unknown>>, notice: KeeperNotice, log: (line: string) => void): void {
  if (notice.type === "trouble") return log(notice.message);
  if (notice.type === "let go") {
    log(`the main loop was blocked for too long: ${notice.ids.length} jobs are not kept any more`);
    return;
  }
  const held = all.get(notice.id);
  // An outcome on its way ends the lease; its own answer says how.
  if (!held || held.isReporting) return;
  if (notice.type === "lost") return lose(held, "lost");
  if (notice.deadline) held.job.deadline = new Date(notice.deadline);
  if (notice.softLimitReached) held.job.reachSoftLimit();
  held.job.direct(notice.directives);
}
