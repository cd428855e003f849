// Rules of repeating a request. Pure: the transport sends and sleeps.

import { InDoubt, Refused } from "./errors.js";

const DELAY_MIN_MILLIS = 100;
const DELAY_MAX_MILLIS = 5_000;
/** A longer `Retry-After` is given to the caller instead of waited for. */
const RETRY_AFTER_MAX_SECONDS = 30;
const LATER = new Set([429, 503, 507]);

export interface RepeatRule {
  /** May the request be repeated although it may have been stored? */
  isRepeatable: boolean;
  /** How often it may be repeated; `Infinity` for reports of a worker, which end with the signal of the lease. */
  retries: number;
}

/** Milliseconds until the next try, or null: give up with this error. `tries` were made so far. */
export function nextTry(error: InDoubt | Refused, tries: number, rule: RepeatRule): number | null {
  if (tries > rule.retries) return null;
  if (error instanceof InDoubt) return rule.isRepeatable ? backoff(tries) : null;
  // A connection that was refused carries no status: no byte was sent.
  if (error.status !== 0 && !LATER.has(error.status)) return null;
  if (error.retryAfter === undefined) return backoff(tries);
  if (error.retryAfter > RETRY_AFTER_MAX_SECONDS && rule.retries !== Infinity) return null;
  const wait = Math.min(error.retryAfter, RETRY_AFTER_MAX_SECONDS) * 1000;
  // Spread, so that the clients of a server that was busy do not all come back at once.
  return wait + Math.random() * Math.max(DELAY_MIN_MILLIS, wait / 4);
}

/** 0.1 s, 0.4 s, 1.6 s, then 5 s, each shortened by up to a half. */
export function backoff(tries: number): number {
  const full = Math.min(DELAY_MAX_MILLIS, DELAY_MIN_MILLIS * 4 ** Math.min(tries - 1, 10));
  return Math.max(DELAY_MIN_MILLIS, full * (0.5 + Math.random() / 2));
}

/** `Retry-After` in seconds; a date counts from `now` (milliseconds). */
export function retryAfter(header: string | null, now: number): number | undefined {
  if (header === null) return undefined;
  if (/^\d+(\.\d+)?$/.test(header)) return Number(header);
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, (date - now) / 1000);
}
