// The checkpoint of a running job: the state from which the next attempt goes on.

import type { JsonCodec } from "../transport.js";
import type { components } from "../wire.js";
import type { Reports } from "./reports.js";
import { CheckpointIncompatible } from "./stops.js";

export interface SavedCheckpoint<Data = unknown> {
  data: Data;
  schemaVersion: number;
}

const TICK_CALLS = 1000;
const TICK_MILLIS = 60_000;

export class CheckpointOf {
  readonly #reports: Reports;
  readonly #json: JsonCodec;
  readonly #handed: components["schemas"]["Checkpoint"] | null;
  readonly #isIncompatible: boolean;
  #calls = 0;
  #savedAt = Date.now();
  #isAsked = false;

  constructor(
    reports: Reports,
    json: JsonCodec,
    handed: { checkpoint: components["schemas"]["Checkpoint"] | null; checkpointIncompatible: boolean },
  ) {
    this.#reports = reports;
    this.#json = json;
    this.#handed = handed.checkpoint;
    this.#isIncompatible = handed.checkpointIncompatible;
  }

  /** The checkpoint of the last attempt, or null. Throws `CheckpointIncompatible` for a version outside `acceptsSchema`. */
  async load<Data = unknown>(): Promise<SavedCheckpoint<Data> | null> {
    if (this.#isIncompatible)
      throw new CheckpointIncompatible("the saved checkpoint has a version outside acceptsSchema");
    if (!this.#handed) return null;
    const { schemaVersion, blobUrl } = this.#handed;
    const data = blobUrl ? this.#json.parse(await this.#reports.loadCheckpointBlob()) : this.#handed.data;
    return { data: data as Data, schemaVersion };
  }

  /** Stores it; durable when this resolves. `schemaVersion` is your own number for the form of the data. */
  async save(data: unknown, schemaVersion = 1): Promise<void> {
    this.#calls = 0;
    this.#isAsked = false;
    await this.#reports.saveCheckpoint(this.#json.stringify(data), schemaVersion);
    this.#savedAt = Date.now();
  }

  /** Call it after each small step: it saves every 1,000 calls, after 60 s, and when the server asks for it. */
  async tick(data: () => unknown, schemaVersion = 1): Promise<void> {
    this.#calls += 1;
    const isDue = this.#isAsked || this.#calls >= TICK_CALLS || Date.now() - this.#savedAt >= TICK_MILLIS;
    if (isDue) await this.save(data(), schemaVersion);
  }

  /** The server has sent `checkpoint_now`. */
  ask(): void {
    this.#isAsked = true;
  }
}
