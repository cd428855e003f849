// Publishes jobs to one queue, one at a time or many.

import { refusal, type Problem, type Refused } from "./errors.js";
import { Job } from "./job.js";
import { randomKey, warnOnce } from "./runtime.js";
import { check, type StandardSchema } from "./schema.js";
import type { Answer, Transport } from "./transport.js";
import type { components } from "./wire.js";

type Wire = components["schemas"];

export interface QueueSchemas<Payload, Result> {
  payload?: StandardSchema<Payload>;
  result?: StandardSchema<Result>;
}

export type PublishOptions = Omit<Wire["NewJob"], "payload" | "idempotencyKey" | "runAt" | "startBy"> & {
  /** Yours; a random one if left out; `false`: none, so that a lost answer cannot be repeated. */
  idempotencyKey?: string | false;
  runAt?: string | Date;
  startBy?: string | Date;
};

export interface PublishCallOptions extends PublishOptions {
  /** W3C trace context of the publisher, handed out with the job. */
  traceparent?: string;
  signal?: AbortSignal;
}

const isItem: unique symbol = Symbol("outlast.item");

/** A payload with options, for `publishMany`. */
export interface Item<Payload> {
  [isItem]: true;
  payload: Payload;
  options: PublishOptions;
}

/** Gives one entry of `publishMany` options of its own. */
export function item<Payload>({ payload, ...options }: { payload: Payload } & PublishOptions): Item<Payload> {
  return { [isItem]: true, payload, options };
}

export interface PublishManyOptions {
  /** Jobs in one request: 1 to 1,000. */
  size?: number;
  signal?: AbortSignal;
}

const BATCH_SIZE = 500;
const BATCH_SIZE_MAX = 1000;
/** Half of what the server takes by default, so that one more job always fits. */
const BATCH_TEXT_MAX = 4 * 1024 * 1024;

export class Queue<Payload = unknown, Result = unknown> {
  readonly name: string;
  readonly #transport: Transport;
  readonly #schemas: QueueSchemas<Payload, Result>;

  constructor(transport: Transport, name: string, schemas: QueueSchemas<Payload, Result> = {}) {
    this.#transport = transport;
    this.name = name;
    this.#schemas = schemas;
  }

  async publish(payload: Payload, options: PublishCallOptions = {}): Promise<Job<Payload, Result>> {
    const { traceparent, signal, ...rest } = options;
    const body = await this.#newJob(payload, rest);
    const startedAt = Date.now();
    const answer = await this.#transport.send({
      method: "POST",
      path: this.#path,
      body,
      headers: traceparent ? { traceparent } : {},
      isRepeatable: body.idempotencyKey !== undefined,
      signal,
    });
    const published = answer.json as Published;
    if (!options.idempotencyKey && body.idempotencyKey !== undefined) this.#warnOfPayloadDedupe(published);
    const isOwnRepeat = isOwn(published, answer, typeof rest.idempotencyKey === "string", startedAt);
    return this.#job(published, isOwnRepeat);
  }

  /** Publishes any number of payloads or `item()`s in batches. One answer per entry, in order: a job, or why it was refused. */
  async publishMany(
    items: Iterable<Payload | Item<Payload>> | AsyncIterable<Payload | Item<Payload>>,
    { size = BATCH_SIZE, signal }: PublishManyOptions = {},
  ): Promise<(Job<Payload, Result> | Refused)[]> {
    if (!Number.isInteger(size) || size < 1 || size > BATCH_SIZE_MAX) {
      throw new RangeError(`size is a whole number from 1 to ${BATCH_SIZE_MAX}, not ${size}`);
    }
    const answers: (Job<Payload, Result> | Refused)[] = [];
    let batch = new Batch();
    const flush = async () => {
      if (batch.texts.length > 0) answers.push(...(await this.#publishBatch(batch, signal)));
      batch = new Batch();
    };
    for await (const entry of items) {
      const { payload, options } =
        typeof entry === "object" && entry !== null && isItem in entry ? entry : { payload: entry, options: {} };
      const newJob = await this.#newJob(payload as Payload, options);
      const text = this.#transport.json.stringify(newJob);
      if (batch.length + text.length > BATCH_TEXT_MAX) await flush();
      batch.add(text, newJob.idempotencyKey, typeof options.idempotencyKey === "string");
      if (batch.texts.length === size) await flush();
    }
    await flush();
    return answers;
  }

  async #publishBatch(batch: Batch, signal: AbortSignal | undefined): Promise<(Job<Payload, Result> | Refused)[]> {
    const text = `{"jobs":[${batch.texts.join(",")}]}`;
    const startedAt = Date.now();
    const answer = await this.#transport.send({
      method: "POST",
      path: `${this.#path}/batch`,
      rawBody: () => text,
      headers: { "content-type": "application/json" },
      isRepeatable: batch.isRepeatable,
      signal,
    });
    const { jobs } = answer.json as { jobs: (Published | { error: Problem & { status: number } })[] };
    return jobs.map((entry, index) => {
      if ("error" in entry) {
        const { code = "unknown", status, detail = code, errors } = entry.error;
        return refusal({ code, status, detail, errors });
      }
      return this.#job(entry, isOwn(entry, answer, batch.hasOwnKey[index] ?? false, startedAt));
    });
  }

  async #newJob(payload: Payload, { idempotencyKey, ...options }: PublishOptions): Promise<Wire["NewJob"]> {
    const checked = this.#schemas.payload ? await check(this.#schemas.payload, payload, "the payload") : payload;
    // Dates become RFC 3339 texts with the rest of the JSON.
    const body = { ...options, payload: checked } as Wire["NewJob"];
    if (idempotencyKey !== false) body.idempotencyKey = idempotencyKey ?? (await randomKey());
    return body;
  }

  #job(published: Published, isOwnRepeat: boolean): Job<Payload, Result> {
    const { id, status, duplicate, payloadMismatch } = published;
    const known = {
      id,
      queue: this.name,
      status,
      duplicate: duplicate && !isOwnRepeat,
      payloadMismatch: payloadMismatch ?? false,
    };
    return new Job<Payload, Result>(this.#transport, known, this.#schemas.result);
  }

  #warnOfPayloadDedupe(published: Published): void {
    if (published.dedupeBy !== "payload") return;
    warnOnce(
      `queue "${this.name}" deduplicates by payload, which a random idempotency key prevents; publish with idempotencyKey: false`,
    );
  }

  get #path(): string {
    return `/v1/queues/${encodeURIComponent(this.name)}/jobs`;
  }
}

interface Published {
  id: string;
  status: string;
  createdAt: string;
  duplicate: boolean;
  payloadMismatch?: boolean;
  dedupeBy?: string;
}

class Batch {
  readonly texts: string[] = [];
  readonly hasOwnKey: boolean[] = [];
  length = 0;
  isRepeatable = true;

  add(text: string, key: string | undefined, hasOwnKey: boolean): void {
    this.texts.push(text);
    this.hasOwnKey.push(hasOwnKey);
    this.length += text.length + 1;
    if (key === undefined) this.isRepeatable = false;
  }
}

/** Is a duplicate the job of our own first try? A random key is only ours; the job of a given key must be as young as this. */
function isOwn(published: Published, answer: Answer, hasGivenKey: boolean, startedAt: number): boolean {
  if (!published.duplicate || !answer.followsDoubt) return false;
  if (!hasGivenKey) return true;
  const serverNow = Date.parse(answer.headers.get("date") ?? "") || Date.now();
  // The header has whole seconds.
  return serverNow - Date.parse(published.createdAt) <= Date.now() - startedAt + 1000;
}
