// The webhook handler: checks a delivery, runs the handler, and answers with its result or, when that takes longer, with 202
// and a report of the outcome later. Adapters for frameworks call `handle` with raw bytes.

import { Outlast } from "../client.js";
import { seconds, type Duration } from "../duration.js";
import { environment } from "../runtime.js";
import type { StandardSchema } from "../schema.js";
import { HeldJobs, type Held, type ReceivedJob } from "../worker/held-jobs.js";
import { perform, type Handler, type Outcome } from "../worker/perform.js";
import type { Handout } from "../worker/running-job.js";
import type { Defer } from "../worker/stops.js";
import { DeliveryLog } from "./delivery-log.js";
import { headerOf, NotSigned, secretsOf, verify, type HeaderSource, type Secret } from "./signature.js";

export interface WebhookOptions<Payload = unknown> {
  /** The queue's signing secret; several while it is rotated. */
  secret: Secret | undefined;
  /** Reports outcomes of work that takes longer than the answer may. Default: `new Outlast()`. */
  outlast?: Outlast;
  schema?: StandardSchema<Payload>;
  deferOn?: (error: unknown) => Defer | undefined;
  /** The longest time until the answer; 10 s, and never more than two thirds of the queue's `webhookTimeout`. */
  answerWithin?: Duration;
  log?: (line: string) => void;
}

export interface HookContext {
  /** Keeps a serverless function alive until the work has ended. */
  waitUntil?: ((work: Promise<unknown>) => void) | undefined;
}

export interface RawDelivery {
  headers: HeaderSource;
  /** The bytes as they came: a body that was parsed and written again has another signature. */
  body: Uint8Array;
}

export interface HookAnswer {
  status: number;
  headers: Record<string, string>;
  body: string;
}

export interface Hook {
  /** For frameworks with web requests: Hono, Bun, Deno, Workers. */
  (request: Request, context?: HookContext): Promise<Response>;
  handle(delivery: RawDelivery, context?: HookContext): Promise<HookAnswer>;
  /** Gives back the jobs in work. Call it when the process ends. */
  stop(): Promise<void>;
}

type Delivery = Handout & { queue: string; mode?: "standard" | "ack"; webhookTimeout?: number | null };

const ANSWER_SECONDS = 10;
const BODY_BYTES_MAX = 4 * 1024 * 1024;
const MAX_BLOCKED_MILLIS = 600_000;

export function webhook<Payload = unknown, Result = unknown>(
  options: WebhookOptions<Payload>,
  handler: Handler<Payload, Result>,
): Hook {
  const receiver = new DeliveryReceiver(options, handler);
  const hook = async (request: Request, context: HookContext = {}): Promise<Response> => {
    if (request.bodyUsed) throw new TypeError("the body was read before: pass the request to the hook first");
    refuseServerless(context);
    const body = new Uint8Array(await request.arrayBuffer());
    const answer = await receiver.handle({ headers: request.headers, body }, context);
    return new Response(answer.body === "" ? null : answer.body, { status: answer.status, headers: answer.headers });
  };
  const handle = (delivery: RawDelivery, context?: HookContext) => receiver.handle(delivery, context ?? {});
  return Object.assign(hook, { handle, stop: () => receiver.stop() });
}

/** Work that goes on after the answer is frozen with a serverless function, unless the platform is asked to wait. */
export function refuseServerless({ waitUntil }: HookContext): void {
  const sign = ["VERCEL", "AWS_LAMBDA_FUNCTION_NAME", "NETLIFY", "CF_PAGES", "K_SERVICE"].find((name) =>
    environment(name),
  );
  const isWorkers =
    (globalThis as { navigator?: { userAgent?: string } }).navigator?.userAgent === "Cloudflare-Workers";
  if (waitUntil || !(sign || isWorkers)) return;
  throw new TypeError(
    `this runs serverless (${sign ?? "Workers"}): pass { waitUntil }, or work that takes longer than the answer is lost`,
  );
}

class DeliveryReceiver<Payload> {
  readonly #options: WebhookOptions<Payload>;
  readonly #handler: Handler<Payload>;
  readonly #secret: Secret;
  readonly #outlast: Outlast;
  readonly #deliveries = new DeliveryLog();
  readonly #log: (line: string) => void;
  #opening: Promise<HeldJobs> | undefined;

  constructor(options: WebhookOptions<Payload>, handler: Handler<Payload>) {
    this.#options = options;
    this.#handler = handler;
    if (!options.secret) throw new TypeError("webhook() needs the queue's signing secret: pass { secret }");
    this.#secret = secretsOf(options.secret);
    this.#outlast = options.outlast ?? new Outlast();
    this.#log = options.log ?? ((line) => console.error(`outlast: ${line}`));
  }

  async handle({ headers, body }: RawDelivery, { waitUntil }: HookContext): Promise<HookAnswer> {
    if (body.length > BODY_BYTES_MAX) return problem(413, "the delivery is larger than 4 MiB");
    let webhookId: string;
    try {
      webhookId = await verify(this.#secret, headers, body);
    } catch (error) {
      if (error instanceof NotSigned) return problem(401, error.message);
      throw error;
    }
    const text = new TextDecoder().decode(body);
    const handout = this.#outlast.transport.json.parse(text) as Delivery;
    // The time at which it was signed is the server's.
    const serverNow = Number(headerOf(headers, "webhook-timestamp")) * 1000;
    const traceparent = headerOf(headers, "traceparent") ?? null;
    const received = { handout: { ...handout, traceparent }, queue: handout.queue, text, path: ["payload"], serverNow };
    let held: HeldJobs;
    try {
      held = await this.#held();
    } catch (error) {
      return {
        ...problem(503, `the server cannot be reached: ${(error as Error).message}`),
        headers: { "retry-after": "5" },
      };
    }
    return (
      (await this.#repeat(held, webhookId, received, handout)) ??
      this.#begin(held, webhookId, received, handout, waitUntil)
    );
  }

  async stop(): Promise<void> {
    const held = await this.#opening?.catch(() => undefined);
    if (!held) return;
    for (const one of held.all()) one.job.stop("shutdown");
    await Promise.all(held.all().map((one) => held.finish(one, { outcome: "release" })));
    await held.close();
  }

  #held(): Promise<HeldJobs> {
    this.#opening ??= HeldJobs.open(this.#outlast.transport, { maxBlockedMillis: MAX_BLOCKED_MILLIS, log: this.#log });
    // A server that was away may be back for the next delivery.
    this.#opening.catch(() => (this.#opening = undefined));
    return this.#opening;
  }

  /** The answer to a repeated delivery: the work runs or is done, and is not done twice. */
  async #repeat(
    held: HeldJobs,
    webhookId: string,
    received: ReceivedJob,
    delivery: Delivery,
  ): Promise<HookAnswer | undefined> {
    if (this.#deliveries.isRunning(webhookId) && held.handOver(received)) return accepted();
    const done = this.#deliveries.doneWith(webhookId);
    if (!done) return undefined;
    if (delivery.mode === "standard") return answerOf(done) ?? accepted();
    const [again] = held.take<unknown>([received]);
    void held.finish(again!, done);
    return accepted();
  }

  async #begin(
    held: HeldJobs,
    webhookId: string,
    received: ReceivedJob,
    delivery: Delivery,
    waitUntil: HookContext["waitUntil"],
  ): Promise<HookAnswer> {
    const [entry] = held.take<Payload>([received]);
    const { schema, deferOn } = this.#options;
    const work = perform(entry!.job, this.#handler, { schema, deferOn, json: this.#outlast.transport.json });
    this.#deliveries.begin(webhookId);
    // Where the mode is not known, 202 and a report are right in both.
    const limitMillis = delivery.mode === "standard" ? this.#answerMillis(delivery) : 0;
    const early = limitMillis > 0 ? await within(work, limitMillis) : undefined;
    // An uploaded result becomes the job's by an ack.
    const answer = early && !entry!.job.hasUploaded ? answerOf(early) : undefined;
    if (answer) {
      held.drop(entry as Held<unknown>);
      this.#deliveries.end(webhookId, early!);
      return answer;
    }
    const report = work.then(async (outcome) => {
      await held.finish(entry as Held<unknown>, outcome);
      this.#deliveries.end(webhookId, outcome);
    });
    waitUntil?.(report);
    held.beatSoon(entry as Held<unknown>);
    return accepted();
  }

  #answerMillis({ webhookTimeout }: Delivery): number {
    const own = seconds(this.#options.answerWithin ?? ANSWER_SECONDS, "answerWithin");
    return Math.min(own, webhookTimeout ? (webhookTimeout * 2) / 3 : ANSWER_SECONDS) * 1000;
  }
}

function within<Value>(work: Promise<Value>, millis: number): Promise<Value | undefined> {
  let timer: ReturnType<typeof setTimeout>;
  const limit = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), millis);
  });
  return Promise.race([work, limit]).finally(() => clearTimeout(timer));
}

/** The answer that says the outcome; undefined where only a report can. */
function answerOf(outcome: Outcome): HookAnswer | undefined {
  const json = { "content-type": "application/json" };
  switch (outcome.outcome) {
    case "ack":
      if (outcome.usage) return undefined;
      if (outcome.resultText === undefined) return { status: 204, headers: {}, body: "" };
      return { status: 200, headers: json, body: outcome.resultText };
    case "nack": {
      const last = outcome.retryable === false ? { "x-outlast-retry": "false" } : {};
      return { status: 500, headers: { ...json, ...last }, body: JSON.stringify({ error: outcome.reason }) };
    }
    case "defer": {
      const headers = { ...json, "retry-after": String(Math.ceil(outcome.retryAfter)) };
      return { status: 429, headers, body: JSON.stringify({ error: outcome.reason ?? "deferred" }) };
    }
    default:
      return undefined;
  }
}

function accepted(): HookAnswer {
  return { status: 202, headers: {}, body: "" };
}

function problem(status: number, error: string): HookAnswer {
  return { status, headers: { "content-type": "application/json" }, body: JSON.stringify({ error }) };
}

/** For adapters that read a stream of Node: the bytes, up to what a delivery can have. */
export async function readBytes(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of stream) {
    length += chunk.length;
    // One byte more than allowed is enough for the refusal.
    if (length > BODY_BYTES_MAX) return new Uint8Array(BODY_BYTES_MAX + 1);
    chunks.push(chunk);
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}
