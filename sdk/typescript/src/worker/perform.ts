// Runs a handler on a job and turns its end into an outcome. The worker, the webhook handler and the tests share it.

import { LeaseLost } from "../errors.js";
import { check, SchemaMismatch, type StandardSchema } from "../schema.js";
import type { JsonCodec } from "../transport.js";
import { INLINE_BYTES_MAX } from "./reports.js";
import type { RunningJob } from "./running-job.js";
import { Defer, NotRetryable } from "./stops.js";
import type { UploadSource } from "./upload.js";

export type Handler<Payload = unknown, Result = unknown> = (job: RunningJob<Payload>) => Result | Promise<Result>;

export type Outcome =
  | { outcome: "ack"; /** JSON; undefined: none, or uploaded. */ resultText?: string; usage?: Record<string, number> }
  | { outcome: "nack"; reason: string; retryable?: false; usage?: Record<string, number> }
  | { outcome: "defer"; retryAfter: number; scope: "job" | "queue"; reason?: string }
  | { outcome: "release" }
  | { outcome: "cancelled" }
  /** The lease is lost: nothing is reported. */
  | { outcome: "none" };

export interface PerformOptions<Payload> {
  schema?: StandardSchema<Payload> | undefined;
  /** Turns errors of the services you call into a `Defer`. */
  deferOn?: ((error: unknown) => Defer | undefined) | undefined;
  json: JsonCodec;
}

const REASON_BYTES_MAX = 1024;

export async function perform<Payload>(
  job: RunningJob<Payload>,
  handler: Handler<Payload>,
  options: PerformOptions<Payload>,
): Promise<Outcome> {
  try {
    await check(options.schema, job.payload, "the payload");
    return await settleValue(job, await handler(job), options.json);
  } catch (error) {
    return settleError(job, error, options);
  }
}

/** The outcome of a handler that has returned. Uploads a result that is too large or not JSON. */
export async function settleValue(job: RunningJob, value: unknown, json: JsonCodec): Promise<Outcome> {
  await job.flush();
  if (isLost(job)) return { outcome: "none" };
  if (value === undefined) {
    if (job.stopReason === "cancel" && !job.hasUploaded) return { outcome: "cancelled" };
    return { outcome: "ack", ...usageOf(job) };
  }
  const source = asUpload(value);
  if (source) {
    await job.upload(source, value instanceof Blob && "name" in value ? { filename: String(value.name) } : {});
    return { outcome: "ack", ...usageOf(job) };
  }
  const resultText = json.stringify(value);
  // A character has at least one byte, so only long texts have to be measured.
  const isLarge =
    resultText.length > INLINE_BYTES_MAX / 3 && new TextEncoder().encode(resultText).length > INLINE_BYTES_MAX;
  if (!isLarge) return { outcome: "ack", resultText, ...usageOf(job) };
  await job.upload(new TextEncoder().encode(resultText), { contentType: "application/json" });
  return { outcome: "ack", ...usageOf(job) };
}

/** The outcome of a handler that has thrown. */
export async function settleError(
  job: RunningJob,
  error: unknown,
  options: Pick<PerformOptions<never>, "deferOn">,
): Promise<Outcome> {
  await job.flush().catch(() => {});
  if (error instanceof LeaseLost) job.stop("lost");
  if (isLost(job)) return { outcome: "none" };
  if (job.stopReason === "cancel") return { outcome: "cancelled" };
  const defer = error instanceof Defer ? error : options.deferOn?.(error);
  if (defer) {
    const { after, scope, reason } = defer;
    return { outcome: "defer", retryAfter: after, scope, ...(reason !== undefined && { reason: cut(reason) }) };
  }
  if (error instanceof NotRetryable || error instanceof SchemaMismatch) {
    return { outcome: "nack", reason: describe(error), retryable: false, ...usageOf(job) };
  }
  // Only after the errors that the handler has meant: one that was stopped by the shutdown is given back for free.
  if (job.stopReason === "shutdown") return { outcome: "release" };
  return { outcome: "nack", reason: describe(error), ...usageOf(job) };
}

function isLost(job: RunningJob): boolean {
  return job.stopReason === "lost" || job.stopReason === "hard limit";
}

function usageOf(job: RunningJob): { usage?: Record<string, number> } {
  return job.usedAmounts ? { usage: job.usedAmounts } : {};
}

function asUpload(value: unknown): UploadSource | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (value instanceof Uint8Array || value instanceof ArrayBuffer || value instanceof Blob) return value;
  return value instanceof ReadableStream || Symbol.asyncIterator in value
    ? (value as AsyncIterable<Uint8Array>)
    : undefined;
}

/** The message, and the first line of the stack: where it was thrown. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return cut(String(error) || "the handler has thrown nothing");
  const line = error.stack
    ?.split("\n")
    .find((one) => /^\s+at /.test(one))
    ?.trim();
  return cut(line ? `${error.message || error.name} (${line})` : error.message || error.name);
}

/** At most 1,024 bytes that the server takes: no NUL, no half of a surrogate pair. */
function cut(text: string): string {
  const bytes = new TextEncoder().encode(text.replaceAll("\0", ""));
  // A character that is cut becomes U+FFFD, which may be longer than the rest of it.
  return new TextDecoder().decode(bytes.length > REASON_BYTES_MAX ? bytes.slice(0, REASON_BYTES_MAX - 3) : bytes);
}
