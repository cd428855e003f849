// The client: `new Outlast()`, from which queues, jobs and the other nouns of the API are reached.

import { Events, Jobs, Keys, Operations, Queues, Stats, Workers } from "./resources.js";
import { environment, processLike } from "./runtime.js";
import { Queue, type QueueSchemas } from "./queue.js";
import { seconds, type Duration } from "./duration.js";
import { Transport, type Call, type JsonCodec } from "./transport.js";

export interface OutlastOptions {
  /** Default: the environment's OUTLAST_URL, else http://127.0.0.1:8080. */
  url?: string;
  /** Default: the environment's OUTLAST_KEY. */
  key?: string;
  /** Time for one try, beside the time that the server is asked to wait; 30 s. */
  timeout?: Duration;
  /** Repeats after the first try; 3. */
  retries?: number;
  fetch?: typeof globalThis.fetch;
  /** Instead of `JSON`, for numbers that a double cannot hold. */
  json?: JsonCodec;
}

export class Outlast {
  readonly transport: Transport;
  readonly jobs: Jobs;
  readonly queues: Queues;
  readonly keys: Keys;
  readonly operations: Operations;
  readonly events: Events;
  readonly workers: Workers;
  readonly stats: Stats;

  constructor(options: OutlastOptions = {}) {
    const key = options.key ?? environment("OUTLAST_KEY");
    if (!key) throw new TypeError("there is no key: set OUTLAST_KEY, or pass { key }");
    // Tests of pages have a document in Node.
    if ("document" in globalThis && !processLike?.versions?.["node"]) {
      throw new TypeError("a key must not be used in a browser: make a token, and use outlast/browser");
    }
    this.transport = new Transport({
      url: options.url ?? environment("OUTLAST_URL") ?? "http://127.0.0.1:8080",
      key,
      timeout: options.timeout === undefined ? undefined : seconds(options.timeout, "timeout"),
      retries: options.retries,
      fetch: options.fetch,
      json: options.json,
    });
    this.jobs = new Jobs(this.transport);
    this.queues = new Queues(this.transport);
    this.keys = new Keys(this.transport);
    this.operations = new Operations(this.transport);
    this.events = new Events(this.transport);
    this.workers = new Workers(this.transport);
    this.stats = new Stats(this.transport);
  }

  /** A queue to publish to. Give types, or schemas that check payloads and results. */
  queue<Payload = unknown, Result = unknown>(
    name: string,
    schemas?: QueueSchemas<Payload, Result>,
  ): Queue<Payload, Result> {
    return new Queue(this.transport, name, schemas);
  }

  /** The server reads its configuration file again. */
  async reload(): Promise<unknown> {
    return (await this.transport.send({ method: "POST", path: "/v1/reload", isRepeatable: true })).json;
  }

  /** Any call of the API: authenticated, repeated by its method's rules, with errors of this SDK. The answer's JSON. */
  async request(method: Call["method"], path: string, options: Omit<Call, "method" | "path"> = {}): Promise<unknown> {
    return (await this.transport.send({ method, path, ...options })).json;
  }
}
