// Follows one job in a browser with a token: by a stream, where that fails by long polls, where those fail by polls. Watchers of
// one job share one connection; a hidden tab has none.

import { readMessages, silenceGuard } from "../event-stream.js";

export interface WatchOptions {
  /** The server's URL. */
  url: string;
  id: string;
  /** A token for this job. Never a key. */
  token: string;
  /** Called when the token has expired; gives a new one. */
  onExpired?: (() => string | Promise<string>) | undefined;
  /** The state to begin with, from the server's rendering. */
  initial?: Partial<JobState> | undefined;
  signal?: AbortSignal | undefined;
}

export interface WatchedProgress {
  pct: number | null;
  stage: string | null;
  itemsDone: number | null;
  itemsTotal: number | null;
  message: string | null;
  eta: string | null;
  [field: string]: unknown;
}

export type Channel = "stream" | "long poll" | "poll" | "none";

export interface JobState {
  status: string;
  progress: WatchedProgress | null;
  /** All text that the job has written, so far as the token may see it. */
  output: string;
  version: number;
  channel: Channel;
  isEnded: boolean;
  error: Error | undefined;
  /** The job as the server has shown it last. */
  job: { id: string; [field: string]: unknown } | undefined;
}

const ENDED = ["succeeded", "failed", "cancelled", "expired"];
const CHANNELS = ["stream", "long poll", "poll"] as const;
/** A stream begins at once; a proxy that buffers it does not pass on a byte. */
const FIRST_BYTE_MILLIS = 10_000;
const POLL_MILLIS = 3000;
/** A component that is mounted again at once finds the connection open. */
const LINGER_MILLIS = 500;

/** The token was refused, or may not do this. */
export class WatchRefused extends Error {
  override readonly name = "WatchRefused";
  constructor(readonly status: number) {
    super(`the server has refused the token: ${status}`);
  }
}

export class Watch implements AsyncIterable<JobState> {
  readonly #options: WatchOptions;
  readonly #base: string;
  readonly #listeners = new Set<() => void>();
  readonly #onClose: () => void;
  #token: string;
  #state: JobState;
  #connection: AbortController | undefined;
  #closing: ReturnType<typeof setTimeout> | undefined;
  #after = 0;
  #level = 0;
  #isRunning = false;

  constructor(options: WatchOptions, onClose: () => void) {
    this.#options = options;
    this.#onClose = onClose;
    this.#token = options.token;
    this.#base = `${options.url.replace(/\/+$/, "")}/v1/jobs/${encodeURIComponent(options.id)}`;
    const empty = { status: "pending", progress: null, output: "", version: 0, error: undefined, job: undefined };
    this.#state = { ...empty, isEnded: false, ...options.initial, channel: "none" };
    this.#state.isEnded = ENDED.includes(this.#state.status);
  }

  /** The latest state; a new object for each change. */
  readonly current = (): JobState => this.#state;

  /** Calls the listener after each change. Returns the function that ends it. */
  readonly subscribe = (listener: () => void): (() => void) => {
    clearTimeout(this.#closing);
    this.#listeners.add(listener);
    if (!this.#isRunning && !this.#state.isEnded) void this.#run();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size > 0) return;
      this.#closing = setTimeout(() => {
        this.#connection?.abort();
        this.#onClose();
      }, LINGER_MILLIS);
    };
  };

  /** Asks the server to cancel the job; the token must allow it. */
  readonly cancel = async (): Promise<void> => {
    await (await this.#request("/cancel", "POST")).text();
  };

  /** A newer token, for the next request. */
  renew(token: string): void {
    this.#token = token;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<JobState> {
    const { signal } = this.#options;
    let wake = () => {};
    const unsubscribe = this.subscribe(() => wake());
    const onAbort = () => wake();
    signal?.addEventListener("abort", onAbort);
    try {
      for (let shown: JobState | undefined; ;) {
        if (signal?.aborted) throw signal.reason;
        const state = this.#state;
        if (state !== shown) {
          shown = state;
          if (state.error) throw state.error;
          yield state;
          if (state.isEnded) return;
        } else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      signal?.removeEventListener("abort", onAbort);
      unsubscribe();
    }
  }

  #set(change: Partial<JobState>): void {
    this.#state = { ...this.#state, ...change };
    for (const listener of this.#listeners) listener();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    for (let failures = 0; this.#listeners.size > 0 && !this.#state.isEnded;) {
      await untilVisible();
      this.#connection = new AbortController();
      const unwatch = whenHidden(() => this.#connection!.abort());
      try {
        await this.#follow(CHANNELS[this.#level]!);
        failures = 0;
      } catch (error) {
        if (error instanceof WatchRefused) this.#set({ error });
        if (this.#state.error) break;
        if (!this.#connection.signal.aborted) {
          failures += 1;
          // Two failures in a row: the next channel. After the last one the first is tried again.
          if (failures % 2 === 0) this.#level = (this.#level + 1) % CHANNELS.length;
          await pause(Math.min(5000, 200 * 2 ** failures) * (0.5 + Math.random() / 2));
        }
      } finally {
        unwatch();
        this.#connection.abort();
      }
    }
    this.#isRunning = false;
    this.#set({ channel: "none" });
    if (this.#state.isEnded) this.#onClose();
  }

  async #follow(channel: Exclude<Channel, "none">): Promise<void> {
    await this.#read("");
    if (this.#state.isEnded) return;
    if (channel === "stream") return this.#stream();
    this.#set({ channel });
    // A poll after the wait, or the wait itself, is one round; a failure in it counts for the channel.
    while (!this.#state.isEnded && !this.#connection!.signal.aborted && this.#listeners.size > 0) {
      if (channel === "poll") await pause(POLL_MILLIS);
      await this.#read(channel === "poll" ? "" : `?wait=30s&version=${this.#state.version}`);
    }
  }

  /** Reads the job, and the output that no stream brings. */
  async #read(query: string): Promise<void> {
    const job = (await (await this.#request(query)).json()) as { id: string; status: string } & Record<string, unknown>;
    const isEnded = ENDED.includes(job.status);
    if (this.#level > 0 || isEnded) await this.#readOutput();
    const progress = (job["progress"] ?? (isEnded ? this.#state.progress : null)) as WatchedProgress | null;
    this.#set({ status: job.status, progress, version: Number(job["version"] ?? 0), job, isEnded });
  }

  async #readOutput(): Promise<void> {
    for (;;) {
      const response = await this.#request(`/events?after=${this.#after}&limit=200`).catch((error: Error) => error);
      // A token that may only watch has no log.
      if (response instanceof WatchRefused) return;
      if (response instanceof Error) throw response;
      const { items } = (await response.json()) as { items: { seq: number; type: string; text?: string }[] };
      if (items.length === 0) return;
      for (const item of items) this.#apply(item.type, item, item.seq);
    }
  }

  async #stream(): Promise<void> {
    const connection = this.#connection!;
    const first = setTimeout(() => connection.abort(), FIRST_BYTE_MILLIS);
    const guard = silenceGuard(() => connection.abort());
    let isOpen = false;
    try {
      const response = await this.#request(`/stream?after=${this.#after}`);
      if (response.status === 204) return await this.#read("");
      for await (const { event, data, id } of readMessages(
        response.body!,
        () => (clearTimeout(first), guard.reset()),
      )) {
        if (!isOpen) this.#set({ channel: "stream" });
        isOpen = true;
        if (data === "") continue;
        // The last read brings the version and the final progress.
        if (event === "end") return await this.#read("");
        this.#apply(event, JSON.parse(data) as { text?: string }, id === undefined ? undefined : Number(id));
      }
    } finally {
      clearTimeout(first);
      guard.stop();
    }
    // A stream that has worked may end: it is opened again. One that never did is a failure.
    if (!isOpen) throw new Error("the stream has ended before it began");
  }

  #apply(type: string, data: object, seq: number | undefined): void {
    if (seq !== undefined) {
      if (seq <= this.#after) return;
      this.#after = seq;
    }
    if (type === "state" && "to" in data) this.#set({ status: String(data.to) });
    else if (type === "progress") this.#set({ progress: data as WatchedProgress });
    else if (type === "output" && "text" in data) this.#set({ output: this.#state.output + String(data.text) });
  }

  async #request(path: string, method = "GET"): Promise<Response> {
    for (let isRenewed = false; ; isRenewed = true) {
      const headers = { authorization: `Bearer ${this.#token}` };
      const signal = method === "GET" ? this.#connection?.signal : undefined;
      const response = await fetch(this.#base + path, { method, headers, signal: signal ?? null, cache: "no-store" });
      if (response.ok || response.status === 410) return response;
      if (response.status === 401 && this.#options.onExpired && !isRenewed) {
        this.#token = await this.#options.onExpired();
        continue;
      }
      if ([401, 403, 404].includes(response.status)) throw new WatchRefused(response.status);
      throw new Error(`the answer was ${response.status}`);
    }
  }
}

const pause = (millis: number) => new Promise<void>((resolve) => setTimeout(resolve, millis));

function isHidden(): boolean {
  return typeof document !== "undefined" && document.visibilityState === "hidden";
}

function untilVisible(): Promise<void> {
  if (!isHidden()) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (isHidden()) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
  });
}

function whenHidden(run: () => void): () => void {
  if (typeof document === "undefined") return () => {};
  const look = () => isHidden() && run();
  document.addEventListener("visibilitychange", look);
  return () => document.removeEventListener("visibilitychange", look);
}

const watches = new Map<string, Watch>();

/** Watches a job: iterate over its states, or subscribe to changes. */
export function watchJob(options: WatchOptions): Watch {
  if (!options.token || options.token.startsWith("ol_")) {
    throw new TypeError("a browser needs a token (olt_…) of POST /v1/jobs/{id}/token; a key must never be here");
  }
  const name = `${options.url} ${options.id}`;
  const shared = watches.get(name);
  if (shared && !shared.current().error) {
    shared.renew(options.token);
    return shared;
  }
  const watch = new Watch(options, () => {
    if (watches.get(name) === watch) watches.delete(name);
  });
  watches.set(name, watch);
  return watch;
}
