// Ways in which work ends that is not a result: thrown by handlers, or the reason of a job's signal.

import { seconds, type Duration } from "../duration.js";
import { OutlastError } from "../errors.js";

export type StopReason = "cancel" | "lost" | "shutdown" | "hard limit";

/** The reason of `job.signal`: why the work should stop. */
export class Stopped extends OutlastError {
  override readonly name = "Stopped";
  constructor(readonly reason: StopReason) {
    super(`the job was stopped: ${reason}`);
  }
}

/** Throw it when a retry cannot help: the job becomes a dead letter at once. */
export class NotRetryable extends OutlastError {
  override readonly name = "NotRetryable";
}

export interface DeferOptions {
  /** `queue` holds all jobs of the queue, not only this one. */
  scope?: "job" | "queue";
  reason?: string;
}

/** Throw it when the work cannot be done yet: the job comes back later, and no attempt is charged. */
export class Defer extends OutlastError {
  override readonly name = "Defer";
  readonly after: number;
  readonly scope: "job" | "queue";
  readonly reason: string | undefined;

  constructor(after: Duration, { scope = "job", reason }: DeferOptions = {}) {
    super(reason ?? "deferred");
    this.after = seconds(after, "after");
    this.scope = scope;
    this.reason = reason;
  }
}

/** The saved checkpoint has a version that this worker does not accept. */
export class CheckpointIncompatible extends OutlastError {
  override readonly name = "CheckpointIncompatible";
}

const PROVIDER_DELAY_SECONDS = 30;

/** For `deferOn`: the errors of LLM clients with 429, 503 or 529 hold the queue for their `retry-after`. */
export function provider(error: unknown): Defer | undefined {
  const { status, headers, message } = (error ?? {}) as { status?: unknown; headers?: unknown; message?: string };
  if (typeof status !== "number" || ![429, 503, 529].includes(status)) return undefined;
  const given =
    headers instanceof Headers
      ? headers.get("retry-after")
      : (headers as Record<string, string> | undefined)?.["retry-after"];
  const after = Number(given ?? PROVIDER_DELAY_SECONDS);
  const reason = (message ?? `the provider answered ${status}`).slice(0, 500);
  return new Defer(Number.isFinite(after) && after >= 0 ? after : PROVIDER_DELAY_SECONDS, { scope: "queue", reason });
}
