// The port through which a running job stores its work, and its implementation over HTTP. Tests of handlers have another one.

import { jsonText } from "../json-text.js";
import type { Transport } from "../transport.js";
import type { components } from "../wire.js";
import { upload, type UploadOptions, type UploadSource, type Uploaded } from "./upload.js";

type Wire = components["schemas"];

export type ProgressReport = Omit<Wire["NewProgress"], "lease">;

export interface Reports {
  saveSection(name: string, text: string): Promise<void>;
  /** The texts of all stored sections, by name. */
  loadSections(): Promise<Map<string, string>>;
  saveCheckpoint(text: string, schemaVersion: number): Promise<void>;
  loadCheckpointBlob(): Promise<string>;
  output(text: string): Promise<void>;
  progress(report: ProgressReport): void;
  upload(source: UploadSource, options: UploadOptions): Promise<Uploaded>;
}

/** JSON above this goes to a blob or an upload. */
export const INLINE_BYTES_MAX = 256 * 1024;

export interface ReportContext {
  id: string;
  /** The current lease: a redelivery to a webhook brings a new one. */
  lease: () => string;
  /** Aborted when the job is lost: nothing can be reported any more. */
  signal: AbortSignal;
  /** Does the server number the parts of output? */
  hasParts: boolean;
  onProgress: (report: ProgressReport) => void;
}

export class HttpReports implements Reports {
  readonly #transport: Transport;
  readonly #context: ReportContext;
  #part = 0;
  #partLease = "";

  constructor(transport: Transport, context: ReportContext) {
    this.#transport = transport;
    this.#context = context;
  }

  async saveSection(name: string, text: string): Promise<void> {
    await this.#put(`/sections/${encodeURIComponent(name)}`, text);
  }

  async loadSections(): Promise<Map<string, string>> {
    const values = new Map<string, string>();
    let cursor: string | null | undefined;
    do {
      const query = { limit: 200, cursor: cursor ?? undefined };
      const answer = await this.#transport.send({
        method: "GET",
        path: `${this.#path}/sections`,
        query,
        ...this.#patience,
      });
      const { items, nextCursor } = answer.json as Wire["SectionPage"];
      items.forEach(({ name }, index) => values.set(name, jsonText(answer.text, ["items", index, "value"]) ?? "null"));
      cursor = nextCursor;
    } while (cursor);
    return values;
  }

  async saveCheckpoint(text: string, schemaVersion: number): Promise<void> {
    if (new TextEncoder().encode(text).length <= INLINE_BYTES_MAX) {
      await this.#put("/checkpoint", `{"schemaVersion":${schemaVersion},"data":${text}}`);
    } else await this.#put("/checkpoint/blob", text, { schemaVersion });
  }

  async loadCheckpointBlob(): Promise<string> {
    return (await this.#transport.send({ method: "GET", path: `${this.#path}/checkpoint/blob`, ...this.#patience }))
      .text;
  }

  async output(text: string): Promise<void> {
    const lease = this.#context.lease();
    // Parts are counted per attempt.
    if (lease !== this.#partLease) [this.#partLease, this.#part] = [lease, 0];
    this.#part += 1;
    const body = this.#context.hasParts ? { text, part: this.#part } : { text };
    const patience = this.#context.hasParts ? this.#patience : { signal: this.#context.signal };
    await this.#transport.send({
      method: "POST",
      path: `${this.#path}/output`,
      body,
      headers: this.#headers,
      ...patience,
    });
  }

  progress(report: ProgressReport): void {
    this.#context.onProgress(report);
  }

  upload(source: UploadSource, options: UploadOptions): Promise<Uploaded> {
    return upload(this.#transport, { path: this.#path, headers: this.#headers, ...this.#patience }, source, options);
  }

  async #put(path: string, text: string, query: Record<string, number> = {}): Promise<void> {
    const headers = { ...this.#headers, "content-type": "application/json" };
    await this.#transport.send({
      method: "PUT",
      path: this.#path + path,
      query,
      rawBody: () => text,
      headers,
      ...this.#patience,
    });
  }

  /** Reports are repeated for as long as the lease may be alive: work of hours is not given up for an outage. */
  get #patience(): { isRepeatable: true; retries: number; signal: AbortSignal } {
    return { isRepeatable: true, retries: Infinity, signal: this.#context.signal };
  }

  get #headers(): Record<string, string> {
    return { "x-outlast-lease": this.#context.lease() };
  }

  get #path(): string {
    return `/v1/jobs/${this.#context.id}`;
  }
}
