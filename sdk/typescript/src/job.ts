// A published job, seen from the outside: wait for it, follow it, cancel it, replay it, fetch its result.

import { backoff } from "./retry.js";
import { seconds, sleep, type Duration } from "./duration.js";
import { download, type DownloadOptions, type DownloadTarget } from "./download.js";
import {
  Busy,
  InDoubt,
  JobCancelled,
  JobExpired,
  JobFailed,
  ResultIsFile,
  Unavailable,
  WaitTimeout,
} from "./errors.js";
import { jobEvents, type EventsOptions, type JobEvent, type Progress } from "./job-events.js";
import { jsonText } from "./json-text.js";
import { List, type PageOptions } from "./list.js";
import { check, type StandardSchema } from "./schema.js";
import { anySignal, type Transport } from "./transport.js";
import type { components } from "./wire.js";

type Wire = components["schemas"];

/** A job as the API shows it; lists leave out `payload`, `events` and `transitions`. */
export type JobView = Omit<Wire["JobSummary"], "status"> &
  Partial<Omit<Wire["Job"], keyof Wire["JobSummary"]>> & { status: JobStatus };
// Words that a newer server may add pass through.
export type JobStatus = Wire["Status"] | (string & {});

const ENDED: ReadonlySet<string> = new Set(["succeeded", "failed", "cancelled", "expired"]);
/** Seconds of one long poll: the most that the server allows. */
const POLL_SECONDS = 30;
/** An uploaded result up to this length is read as a value. */
const VALUE_BYTES_MAX = 256 * 1024;

export const hasEnded = (status: string): boolean => ENDED.has(status);

export interface ResultOptions {
  /** How long to wait; for ever if left out. */
  timeout?: Duration;
  signal?: AbortSignal;
  onProgress?: (progress: Progress) => void;
}

export interface TokenOptions {
  can: ((string & {}) | "read" | "watch" | "output" | "cancel" | "download")[];
  expiresIn?: Duration;
  title?: string;
}
export type JobToken = Wire["Token"] & { pageUrl?: string };

export interface ReplayOptions<Payload> {
  payload?: Payload;
  /** Forget the checkpoint and the sections. */
  fresh?: boolean;
}

export interface KnownJob {
  id: string;
  queue?: string;
  status?: JobStatus;
  duplicate?: boolean;
  payloadMismatch?: boolean;
  view?: JobView;
}

export class Job<Payload = unknown, Result = unknown> {
  readonly id: string;
  readonly queue: string | undefined;
  /** Had another publish made this job before, by the same idempotency key? */
  readonly duplicate: boolean;
  /** Is it a duplicate with another payload? */
  readonly payloadMismatch: boolean;
  readonly #transport: Transport;
  readonly #resultSchema: StandardSchema<Result> | undefined;
  #status: JobStatus | undefined;
  #view: JobView | undefined;
  #text: string | undefined;

  constructor(transport: Transport, known: KnownJob, resultSchema?: StandardSchema<Result>) {
    this.#transport = transport;
    this.#resultSchema = resultSchema;
    this.id = known.id;
    this.queue = known.queue ?? known.view?.queue;
    this.duplicate = known.duplicate ?? false;
    this.payloadMismatch = known.payloadMismatch ?? false;
    this.#status = known.status ?? known.view?.status;
    this.#view = known.view;
  }

  /** The status when it was read last. */
  get status(): JobStatus | undefined {
    return this.#status;
  }

  /** The job when it was read last, as on the wire. */
  get view(): JobView | undefined {
    return this.#view;
  }

  /** The payload as it was published, byte for byte; undefined before `get()`. */
  get payloadText(): string | undefined {
    return this.#text === undefined ? undefined : jsonText(this.#text, ["payload"]);
  }

  async get(options: { signal?: AbortSignal | undefined } = {}): Promise<JobView> {
    return this.#read({}, options.signal);
  }

  /** The result. Throws `JobFailed`, `JobCancelled`, `JobExpired` or, when the time has passed, `WaitTimeout`. */
  async result(options: ResultOptions = {}): Promise<Result> {
    const deadline = new AbortController();
    const millis = options.timeout === undefined ? undefined : seconds(options.timeout, "timeout") * 1000;
    const timer = millis === undefined ? undefined : setTimeout(() => deadline.abort(new WaitTimeout(this.id)), millis);
    const signal = anySignal([options.signal, deadline.signal]);
    try {
      if (options.onProgress) await this.#follow(options.onProgress, signal);
      const view = await this.#waitForEnd(signal);
      return await check(this.#resultSchema, await this.#resultOf(view, signal), `the result of job ${this.id}`);
    } finally {
      clearTimeout(timer);
    }
  }

  /** The job's log and its progress. Resumes after a broken connection; ends with the job. */
  events(options: EventsOptions = {}): AsyncGenerator<JobEvent> {
    return jobEvents(this.#transport, this.id, options);
  }

  async cancel(): Promise<JobView> {
    const answer = await this.#transport.send({ method: "POST", path: `${this.#path}/cancel`, isRepeatable: true });
    return this.#remember(answer.json as JobView);
  }

  /** Starts a failed or cancelled job again. One whose answer is lost is looked up instead of sent twice. */
  async replay(options: ReplayOptions<Payload> = {}): Promise<JobView> {
    const before = (this.#view ?? (await this.get())).replays;
    for (let tries = 1; ; tries += 1) {
      try {
        const answer = await this.#transport.send({ method: "POST", path: `${this.#path}/replay`, body: options });
        return this.#remember(answer.json as JobView);
      } catch (error) {
        if (!(error instanceof InDoubt)) throw error;
        const view = await this.get();
        if (view.replays > before) return view;
        if (tries > 3) throw error;
      }
    }
  }

  /** A token to this one job, for a browser. */
  async token(options: TokenOptions): Promise<JobToken> {
    const answer = await this.#transport.send({
      method: "POST",
      path: `${this.#path}/token`,
      body: options,
      isRepeatable: true,
    });
    return answer.json as JobToken;
  }

  /** Asks the worker that has the job: `checkpoint_now`, `hand_over`, `slow_down`. The list replaces the one before. */
  async direct(directives: string[]): Promise<void> {
    await this.#transport.send({
      method: "POST",
      path: `${this.#path}/directives`,
      body: { directives },
      isRepeatable: true,
    });
  }

  async checkpoint(): Promise<Wire["Checkpoint"]> {
    return (await this.#transport.send({ method: "GET", path: `${this.#path}/checkpoint` })).json as Wire["Checkpoint"];
  }

  /** The stored sections, by name. */
  sections(options: PageOptions = {}): List<Wire["SectionPage"]["items"][number]> {
    return new List(async ({ signal, ...query }) => {
      const answer = await this.#transport.send({ method: "GET", path: `${this.#path}/sections`, query, signal });
      return answer.json as Wire["SectionPage"];
    }, options);
  }

  async section<Value = unknown>(name: string): Promise<Value> {
    const path = `${this.#path}/sections/${encodeURIComponent(name)}`;
    return (await this.#transport.send({ method: "GET", path })).json as Value;
  }

  /** Writes the result to a path or a writable. Goes on after a broken connection; checks length and SHA-256. */
  async download(target: DownloadTarget, options: DownloadOptions = {}): Promise<{ length: number; sha256: string }> {
    const view = await this.get({ signal: options.signal });
    return download(this.#transport, { id: this.id, meta: view.resultMeta ?? null }, target, options);
  }

  get #path(): string {
    return `/v1/jobs/${encodeURIComponent(this.id)}`;
  }

  #remember(view: JobView): JobView {
    this.#view = view;
    this.#status = view.status;
    return view;
  }

  async #read(query: Record<string, number>, signal: AbortSignal | undefined): Promise<JobView> {
    const wait = query["wait"];
    // An expired job is answered with 410 and all that is left of it.
    const answer = await this.#transport.send({ method: "GET", path: this.#path, query, wait, signal, accepts: [410] });
    this.#text = answer.text;
    return this.#remember(answer.json as JobView);
  }

  /** Long polls by version until the job has ended; outages are waited out. */
  async #waitForEnd(signal: AbortSignal): Promise<JobView> {
    let view: JobView | undefined;
    for (let failures = 0; ;) {
      try {
        view = await this.#read(view ? { wait: POLL_SECONDS, version: view.version } : {}, signal);
        failures = 0;
        if (hasEnded(view.status)) return view;
      } catch (error) {
        if (!isOutage(error)) throw error;
        failures += 1;
        await sleep(backoff(failures), signal);
      }
    }
  }

  async #follow(onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<void> {
    for await (const event of this.events({ signal })) {
      if (event.type === "progress") onProgress(event as unknown as Progress);
    }
  }

  async #resultOf(view: JobView, signal: AbortSignal): Promise<unknown> {
    if (view.status === "failed")
      throw new JobFailed(this.id, view.error?.reason ?? "unknown", view.error?.message ?? null);
    if (view.status === "cancelled") throw new JobCancelled(this.id, view.cancelReason ?? "unknown");
    if (view.status === "expired") throw new JobExpired(this.id);
    if (!view.resultUrl) return undefined;
    const { length = 0, contentType } = view.resultMeta ?? {};
    // A length above the limit is never read as a value, wherever it is stored.
    const type = contentType ?? "application/json";
    if (length > VALUE_BYTES_MAX || !isJson(type)) throw new ResultIsFile(this.id, length, type);
    const answer = await this.#transport.send({ method: "GET", path: `${this.#path}/result`, signal, accepts: [307] });
    if (answer.status !== 307) return answer.json;
    return this.#transport.json.parse(await this.#transport.readLink(answer.headers.get("location") ?? "", signal));
  }
}

function isJson(contentType: string): boolean {
  return /^application\/([\w.+-]+\+)?json\b/.test(contentType);
}

export function isOutage(error: unknown): boolean {
  return error instanceof InDoubt || error instanceof Unavailable || error instanceof Busy;
}
