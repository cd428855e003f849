// The nouns of the API beside jobs in work: one small class each, one method per call.

import { seconds, sleep, type Duration } from "./duration.js";
import { WaitTimeout } from "./errors.js";
import { hasEnded, isOutage, Job, type JobView } from "./job.js";
import { List, type Page, type PageOptions } from "./list.js";
import { readMessages } from "./event-stream.js";
import { backoff } from "./retry.js";
import { anySignal, type Call, type Transport } from "./transport.js";
import type { components } from "./wire.js";

type Wire = components["schemas"];
export type QueueView = Wire["Queue"];
export type Operation = Wire["Operation"];
export type InboundEvent = Wire["InboundEvent"];
export type Key = Wire["Key"];

abstract class Resource {
  protected readonly transport: Transport;
  constructor(transport: Transport) {
    this.transport = transport;
  }

  protected async call<Result>(call: Call): Promise<Result> {
    return (await this.transport.send(call)).json as Result;
  }

  protected pages<Item>(path: string, options: PageOptions & Record<string, unknown>): List<Item> {
    return new List(({ signal, ...query }) => {
      return this.call<Page<Item>>({ method: "GET", path, query: query as NonNullable<Call["query"]>, signal });
    }, options);
  }
}

export interface JobListOptions extends PageOptions {
  queue?: string;
  status?: string;
  key?: string;
  tags?: Record<string, string>;
}

export class Jobs extends Resource {
  /** A job by its id. Nothing is sent. */
  job<Payload = unknown, Result = unknown>(id: string): Job<Payload, Result> {
    return new Job(this.transport, { id });
  }

  async get<Payload = unknown, Result = unknown>(id: string): Promise<Job<Payload, Result>> {
    const job = this.job<Payload, Result>(id);
    await job.get();
    return job;
  }

  /** Jobs, newest first, without payloads. */
  list({ tags, ...options }: JobListOptions = {}): List<Job> {
    const tagQuery = Object.fromEntries(Object.entries(tags ?? {}).map(([name, value]) => [`tag.${name}`, value]));
    return this.#jobs("/v1/jobs", { ...options, ...tagQuery });
  }

  /** Dead letters of a queue, the latest failure first. */
  dead(queue: string, options: PageOptions = {}): List<Job> {
    return this.#jobs(`/v1/queues/${encodeURIComponent(queue)}/dead`, { ...options });
  }

  #jobs(path: string, options: PageOptions & Record<string, unknown>): List<Job> {
    return new List(async (page) => {
      const { items, nextCursor } = await this.pages<JobView>(path, options).page(page);
      return { items: items.map((view) => new Job(this.transport, { id: view.id, view })), nextCursor };
    }, options);
  }

  /** Waits until all of these have ended, with one request at a time for up to 1,000 jobs. The last views, in order. */
  async wait(
    jobs: readonly (string | Job)[],
    options: { timeout?: Duration; signal?: AbortSignal } = {},
  ): Promise<JobView[]> {
    const ids = jobs.map((job) => (typeof job === "string" ? job : job.id));
    const deadline = new AbortController();
    const millis = options.timeout === undefined ? undefined : seconds(options.timeout, "timeout") * 1000;
    const timer =
      millis === undefined ? undefined : setTimeout(() => deadline.abort(new WaitTimeout(ids.join(", "))), millis);
    const signal = anySignal([options.signal, deadline.signal]);
    const views = new Map<string, JobView>();
    try {
      for (let at = 0; at < ids.length; at += 1000) await this.#waitForSome(ids.slice(at, at + 1000), views, signal);
      return ids.map((id) => views.get(id)!);
    } finally {
      clearTimeout(timer);
    }
  }

  async #waitForSome(ids: string[], views: Map<string, JobView>, signal: AbortSignal): Promise<void> {
    // Servers without this call are asked for each job on its own.
    if ((await this.transport.serverVersion()) === null) {
      await Promise.all(ids.map(async (id) => views.set(id, await this.#pollUntilEnd(id, signal))));
      return;
    }
    const waiting = new Map(ids.map((id) => [id, 0]));
    for (let failures = 0; waiting.size > 0;) {
      try {
        const body = { jobs: [...waiting].map(([id, version]) => ({ id, version })), wait: 30 };
        const call: Call = { method: "POST", path: "/v1/jobs/wait", body, wait: 30, isRepeatable: true, signal };
        const { jobs } = await this.call<{ jobs: (JobView & { error?: { detail?: string } })[] }>(call);
        failures = 0;
        for (const view of jobs) {
          if (view.error && !view.status) throw new Error(view.error.detail ?? `job ${view.id} cannot be read`);
          views.set(view.id, view);
          if (hasEnded(view.status)) waiting.delete(view.id);
          else waiting.set(view.id, view.version);
        }
      } catch (error) {
        if (!isOutage(error)) throw error;
        failures += 1;
        await sleep(backoff(failures), signal);
      }
    }
  }

  async #pollUntilEnd(id: string, signal: AbortSignal): Promise<JobView> {
    let query: Record<string, number> = {};
    for (;;) {
      const path = `/v1/jobs/${encodeURIComponent(id)}`;
      const view = await this.call<JobView>({
        method: "GET",
        path,
        query,
        wait: query["wait"],
        signal,
        accepts: [410],
      });
      if (hasEnded(view.status)) return view;
      query = { wait: 30, version: view.version };
    }
  }
}

export class Queues extends Resource {
  list(options: PageOptions = {}): List<QueueView> {
    return this.pages("/v1/queues", { ...options });
  }
  get(name: string): Promise<QueueView> {
    return this.call({ method: "GET", path: queuePath(name) });
  }
  create(settings: Wire["NewQueue"]): Promise<QueueView> {
    return this.call({ method: "POST", path: "/v1/queues", body: settings });
  }
  /** Creates or replaces: settings that are left out get their defaults. */
  put(
    name: string,
    settings: Wire["QueueSettings"] = {},
    options: { ifMatch?: number; onlyCreate?: boolean } = {},
  ): Promise<QueueView> {
    const headers = { ...versionHeader(options.ifMatch), ...(options.onlyCreate && { "if-none-match": "*" }) };
    return this.call({ method: "PUT", path: queuePath(name), body: settings, headers });
  }
  /** Changes these settings; the others stay. */
  patch(name: string, settings: Wire["QueuePatch"], options: { ifMatch?: number } = {}): Promise<QueueView> {
    const call: Call = {
      method: "PATCH",
      path: queuePath(name),
      body: settings,
      headers: versionHeader(options.ifMatch),
    };
    return this.call({ ...call, isRepeatable: options.ifMatch === undefined });
  }
  /** With `force` jobs are deleted too, by an operation that goes on after the answer. */
  async delete(name: string, options: { force?: boolean } = {}): Promise<Operation | undefined> {
    return this.call({
      method: "DELETE",
      path: queuePath(name),
      query: options.force ? { force: true } : {},
      isRepeatable: false,
    });
  }
  pause(name: string): Promise<QueueView> {
    return this.call({ method: "POST", path: `${queuePath(name)}/pause`, isRepeatable: true });
  }
  resume(name: string): Promise<QueueView> {
    return this.call({ method: "POST", path: `${queuePath(name)}/resume`, isRepeatable: true });
  }
  rotateSecret(name: string, options: Wire["RotateSecret"] = {}): Promise<Wire["RotatedSecret"]> {
    return this.call({ method: "POST", path: `${queuePath(name)}/rotate-secret`, body: options });
  }
  /** Cancels the waiting jobs. */
  purge(name: string): Promise<Operation> {
    return this.call({ method: "POST", path: `${queuePath(name)}/purge` });
  }
  replayDead(name: string, options: Wire["DeadReplay"] = {}): Promise<Operation | Wire["ReplayDryRun"]> {
    return this.call({ method: "POST", path: `${queuePath(name)}/dead/replay`, body: options });
  }
  discardDead(name: string): Promise<Operation> {
    return this.call({ method: "DELETE", path: `${queuePath(name)}/dead`, isRepeatable: false });
  }
  /** Changes of a queue, until the connection ends: `queue`, `job`, `counts`, `resync`. A reconnect starts again. */
  async *stream(
    name: string,
    options: { signal?: AbortSignal } = {},
  ): AsyncGenerator<{ type: string; [field: string]: unknown }> {
    const headers = { accept: "text/event-stream" };
    const response = await this.transport.open({
      method: "GET",
      path: `${queuePath(name)}/stream`,
      headers,
      signal: options.signal,
    });
    for await (const message of readMessages(response.body!)) {
      if (message.data) yield { type: message.event, ...(this.transport.json.parse(message.data) as object) };
    }
  }
}

export class Keys extends Resource {
  /** The key itself is in `key` of the answer, and is shown only once. */
  create(options: Wire["NewKey"]): Promise<Wire["IssuedKey"]> {
    return this.call({ method: "POST", path: "/v1/keys", body: options });
  }
  list(options: PageOptions = {}): List<Key> {
    return this.pages("/v1/keys", { ...options });
  }
  revoke(id: string, options: { force?: boolean } = {}): Promise<Key> {
    return this.call({
      method: "DELETE",
      path: `/v1/keys/${encodeURIComponent(id)}`,
      query: options.force ? { force: true } : {},
    });
  }
}

export class Operations extends Resource {
  get(id: string): Promise<Operation> {
    return this.call({ method: "GET", path: `/v1/operations/${encodeURIComponent(id)}` });
  }
  /** The newest; there is no next page. */
  async list(options: { limit?: number } = {}): Promise<Operation[]> {
    return (await this.call<{ items: Operation[] }>({ method: "GET", path: "/v1/operations", query: { ...options } }))
      .items;
  }
  stop(id: string): Promise<Operation> {
    return this.call({ method: "POST", path: `/v1/operations/${encodeURIComponent(id)}/stop`, isRepeatable: true });
  }
  /** Polls until the operation does not run any more. */
  async wait(id: string, options: { signal?: AbortSignal } = {}): Promise<Operation> {
    for (let tries = 1; ; tries += 1) {
      const operation = await this.get(id);
      if (operation.status !== "running") return operation;
      await sleep(Math.min(2000, 50 * 2 ** tries), options.signal);
    }
  }
}

/** Events of sources: webhooks that came in. */
export class Events extends Resource {
  list(options: PageOptions & { source?: string; type?: string } = {}): List<InboundEvent> {
    return this.pages("/v1/events", { ...options });
  }
  get(id: string): Promise<InboundEvent> {
    return this.call({ method: "GET", path: `/v1/events/${encodeURIComponent(id)}` });
  }
  replay(id: string, options: { queue?: string } = {}): Promise<Wire["InboundEventReplay"]> {
    return this.call({ method: "POST", path: `/v1/events/${encodeURIComponent(id)}/replay`, body: options });
  }
  /** Sends an event of your own. With an `idempotencyKey` a lost answer is repeated. */
  publish(
    source: string,
    type: string,
    body: unknown,
    options: { idempotencyKey?: string } = {},
  ): Promise<Wire["InboundEventReceipt"]> {
    const headers: Record<string, string> = options.idempotencyKey ? { "idempotency-key": options.idempotencyKey } : {};
    const path = `/events/${encodeURIComponent(source)}/${encodeURIComponent(type)}`;
    return this.call({ method: "POST", path, body, headers, isRepeatable: options.idempotencyKey !== undefined });
  }
}

export class Workers extends Resource {
  /** The workers that asked for jobs lately, and what they hold. */
  list(options: PageOptions = {}): List<{ worker: string; [field: string]: unknown }> {
    return this.pages("/v1/workers", { ...options });
  }
}

export class Stats extends Resource {
  /** OpenMetrics text. */
  async metrics(): Promise<string> {
    return (await this.transport.send({ method: "GET", path: "/metrics", headers: { accept: "*/*" } })).text;
  }
  /** Does the process answer? */
  alive(): Promise<Wire["Health"]> {
    return this.call({ method: "GET", path: "/livez" });
  }
  /** Does the store take writes? Throws `Unavailable` where not. */
  ready(): Promise<Wire["Health"]> {
    return this.call({ method: "GET", path: "/readyz", retries: 0 });
  }
  openapi(): Promise<unknown> {
    return this.call({ method: "GET", path: "/openapi.json" });
  }
}

function queuePath(name: string): string {
  return `/v1/queues/${encodeURIComponent(name)}`;
}

function versionHeader(version: number | undefined): Record<string, string> {
  return version === undefined ? {} : { "if-match": `"${version}"` };
}
