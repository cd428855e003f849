// Sends requests with `fetch`: one try has a time limit, tries are repeated by the rules of retry.ts, and each failure becomes
// an error of errors.ts. Knows nothing of jobs.

import { sleep } from "./duration.js";
import { InDoubt, OutlastError, refusal, Unavailable, type Problem, type Refused } from "./errors.js";
import { nextTry, retryAfter } from "./retry.js";

export const SDK_VERSION = "0.1.0";
const TRY_TIMEOUT_SECONDS = 30;
const RETRIES = 3;

export interface JsonCodec {
  parse(text: string): unknown;
  stringify(value: unknown): string;
}

export interface TransportOptions {
  url: string;
  key: string;
  /** Seconds for one try, beside the time that the server was asked to wait. */
  timeout?: number | undefined;
  /** Repeats after the first try. */
  retries?: number | undefined;
  fetch?: typeof globalThis.fetch | undefined;
  json?: JsonCodec | undefined;
}

export interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: Record<string, string | number | boolean | undefined> | undefined;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is, instead of `body`. A function is called for each try. */
  rawBody?: (() => RawBody) | undefined;
  headers?: Record<string, string> | undefined;
  /** May it be repeated although it may have been stored? GET, PUT and DELETE may if this is left out. */
  isRepeatable?: boolean;
  retries?: number | undefined;
  /** Seconds that the server may wait before it answers. */
  wait?: number | undefined;
  /** Seconds for one try, instead of the client's. */
  timeout?: number | undefined;
  signal?: AbortSignal | undefined;
  /** Statuses outside 2xx that are answers and no errors. */
  accepts?: readonly number[];
}

export type RawBody = string | Uint8Array | Blob | ReadableStream<Uint8Array>;

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  /** The parsed body; undefined where it is empty. */
  json: unknown;
  /** Is it the answer to a repeat of a request that may have been stored before? */
  followsDoubt: boolean;
}

export class Transport {
  readonly url: string;
  readonly json: JsonCodec;
  readonly hasOwnFetch: boolean;
  readonly #key: string;
  readonly #fetch: typeof globalThis.fetch;
  readonly #timeout: number;
  readonly #retries: number;
  #serverVersion: string | null | undefined;

  constructor(options: TransportOptions) {
    this.url = options.url.replace(/\/+$/, "");
    this.#key = options.key;
    this.#timeout = options.timeout ?? TRY_TIMEOUT_SECONDS;
    this.#retries = options.retries ?? RETRIES;
    this.hasOwnFetch = options.fetch !== undefined;
    // Called without `this`: a browser's fetch refuses another receiver.
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
    this.json = options.json ?? JSON;
  }

  get rawFetch(): typeof globalThis.fetch {
    return this.#fetch;
  }

  /** For the keeper's thread, which has a connection of its own. */
  get credentials(): { url: string; authorization: string } {
    return { url: this.url, authorization: `Bearer ${this.#key}` };
  }

  /** The server's version; null if it does not send one, and therefore refuses the fields that came with versions. */
  async serverVersion(): Promise<string | null> {
    if (this.#serverVersion === undefined) await this.send({ method: "GET", path: "/livez" });
    return this.#serverVersion ?? null;
  }

  async send(call: Call): Promise<Answer> {
    const isRepeatable = call.isRepeatable ?? (call.method !== "POST" && call.method !== "PATCH");
    const rule = { isRepeatable, retries: call.retries ?? this.#retries };
    let followsDoubt = false;
    for (let tries = 1; ; tries += 1) {
      const outcome = await this.#try(call);
      if (!(outcome instanceof OutlastError)) return { ...outcome, followsDoubt };
      const delay = nextTry(outcome, tries, rule);
      followsDoubt ||= outcome instanceof InDoubt;
      if (delay === null) throw followsDoubt ? inDoubtSince(outcome) : outcome;
      await sleep(delay, call.signal);
    }
  }

  /** Opens a stream: one try, no limit for its length. The caller reads the body and aborts by the signal. */
  async open(call: Call): Promise<Response> {
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), this.#timeout * 1000);
    try {
      const response = await this.#request(call, anySignal([call.signal, limit.signal]));
      if (response.ok || call.accepts?.includes(response.status)) return response;
      throw failureOf(response, await response.text());
    } catch (error) {
      throw error instanceof OutlastError ? error : this.#noAnswer(call, error);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Opens a link that the server has given out. It carries its own permission, so the key is not sent along. */
  async openLink(link: string, headers: Record<string, string>, signal: AbortSignal | undefined): Promise<Response> {
    try {
      return await this.#fetch(new URL(link, this.url), { headers, signal: signal ?? null });
    } catch (error) {
      throw this.#noAnswer({ method: "GET", path: "the link", signal }, error);
    }
  }

  async readLink(link: string, signal: AbortSignal | undefined): Promise<string> {
    const response = await this.openLink(link, {}, signal);
    const text = await response.text();
    if (!response.ok) throw failureOf(response, text);
    return text;
  }

  async #try(call: Call): Promise<Omit<Answer, "followsDoubt"> | InDoubt | Refused> {
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), ((call.timeout ?? this.#timeout) + (call.wait ?? 0)) * 1000);
    try {
      const response = await this.#request(call, anySignal([call.signal, limit.signal]));
      const text = await response.text();
      const isAnswer = response.ok || call.accepts?.includes(response.status);
      if (!isAnswer) return failureOf(response, text);
      const isJson = /\bjson\b/.test(response.headers.get("content-type") ?? "");
      const json = text === "" || !isJson ? undefined : this.json.parse(text);
      return { status: response.status, headers: response.headers, text, json };
    } catch (error) {
      return this.#noAnswer(call, error);
    } finally {
      clearTimeout(timer);
    }
  }

  async #request(call: Call, signal: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = { accept: "application/json", ...call.headers };
    headers["authorization"] ??= `Bearer ${this.#key}`;
    headers["user-agent"] ??= `outlast-js/${SDK_VERSION}`;
    const init: RequestInit & { duplex?: "half" } = { method: call.method, headers, signal, redirect: "manual" };
    if (call.rawBody) {
      init.body = call.rawBody() as NonNullable<RequestInit["body"]>;
      if (init.body instanceof ReadableStream) init.duplex = "half";
    } else if (call.body !== undefined) {
      init.body = this.json.stringify(call.body);
      headers["content-type"] ??= "application/json";
    }
    const response = await this.#fetch(this.url + call.path + queryOf(call.query), init);
    this.#serverVersion = response.headers.get("x-outlast-version") ?? this.#serverVersion ?? null;
    return response;
  }

  /** The error for a request without an answer. Throws the signal's reason where the caller has given up. */
  #noAnswer(call: Call, cause: unknown): InDoubt | Refused {
    if (call.signal?.aborted) throw call.signal.reason;
    const request = `${call.method} ${call.path}`;
    if (wasNeverSent(cause)) {
      const detail = `${this.url} cannot be reached: ${messageOf(cause)}`;
      return new Unavailable({ code: "unreachable", status: 0, detail, cause });
    }
    return new InDoubt(`no complete answer to ${request}: ${messageOf(cause)}`, { cause });
  }
}

function queryOf(query: Call["query"]): string {
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== undefined);
  if (pairs.length === 0) return "";
  return `?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}`;
}

function failureOf(response: Response, text: string): InDoubt | Refused {
  const { status } = response;
  let problem: Problem = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === "object" && parsed !== null) problem = parsed;
  } catch {
    // A proxy's page, or nothing.
  }
  const detail = problem.detail ?? problem.title ?? `the answer was ${status}`;
  const after = retryAfter(response.headers.get("retry-after"), Date.now());
  if (problem.code) return refusal({ code: problem.code, status, detail, errors: problem.errors, retryAfter: after });
  // A gateway does not know whether the server got the request. Its 503 says that it was not passed on.
  if (status >= 500 && status !== 503 && status !== 507) return new InDoubt(`the answer was ${status} without a code`);
  return refusal({ code: `http_${status}`, status, detail, retryAfter: after });
}

/** An earlier try may have been stored, so a later "not now" does not make the whole call definite. */
function inDoubtSince(last: InDoubt | Refused): OutlastError {
  const isDefinite = !(last instanceof InDoubt) && last.status !== 0 && ![429, 503, 507].includes(last.status);
  if (last instanceof InDoubt || isDefinite) return last;
  return new InDoubt(`an earlier try had no answer, and the last one was refused: ${last.message}`, { cause: last });
}

const UNSENT = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);
// Bun and Deno have codes and messages of their own.
const UNSENT_ELSEWHERE =
  /bad port|ConnectionRefused|FailedToOpenSocket|Connection refused|dns error|client error \(Connect\)/;

function wasNeverSent(error: unknown, depth = 0): boolean {
  if (typeof error !== "object" || error === null || depth > 4) return false;
  const { code, message, cause, errors } = error as {
    code?: string;
    message?: string;
    cause?: unknown;
    errors?: unknown[];
  };
  if (code !== undefined && (UNSENT.has(code) || UNSENT_ELSEWHERE.test(code))) return true;
  if (message !== undefined && UNSENT_ELSEWHERE.test(message)) return true;
  // Every address of the host was tried.
  if (errors?.length) return errors.every((one) => wasNeverSent(one, depth + 1));
  return wasNeverSent(cause, depth + 1);
}

function messageOf(error: unknown): string {
  const { message, cause } = (error ?? {}) as { message?: string; cause?: { message?: string; code?: string } };
  const why = cause?.message || cause?.code;
  return why ? `${message} (${why})` : (message ?? String(error));
}

/** A signal that is aborted with the first of these. `AbortSignal.any` is missing in old runtimes. */
export function anySignal(signals: (AbortSignal | undefined)[]): AbortSignal {
  const given = signals.filter((signal) => signal !== undefined);
  if (given.length === 1) return given[0]!;
  if (typeof AbortSignal.any === "function") return AbortSignal.any(given);
  const joined = new AbortController();
  for (const signal of given) {
    if (signal.aborted) joined.abort(signal.reason);
    signal.addEventListener("abort", () => joined.abort(signal.reason), { once: true, signal: joined.signal });
  }
  return joined.signal;
}
