// Reports outcomes. Those that come while a report is on its way go together in the next one: no timer, one commit for many.

import { sleep } from "../duration.js";
import { refusal, type Problem, type Refused } from "../errors.js";
import { backoff } from "../retry.js";
import type { JsonCodec, Transport } from "../transport.js";
import type { Outcome } from "./perform.js";

export type ReportedOutcome = Exclude<Outcome, { outcome: "none" }>;

interface Pending {
  text: string;
  resolve: (refused: Refused | undefined) => void;
}

const BATCH_MAX = 1000;
/** Half of what the server takes by default. */
const BATCH_TEXT_MAX = 4 * 1024 * 1024;

export class OutcomeReporter {
  readonly #transport: Transport;
  readonly #signal: AbortSignal;
  #pending: Pending[] = [];
  #isSending = false;

  /** The signal ends reports that get no answer: the process exits. */
  constructor(transport: Transport, signal: AbortSignal) {
    this.#transport = transport;
    this.#signal = signal;
  }

  /** Resolves when the server has answered: with nothing, or with its refusal. */
  report(id: string, lease: string, outcome: ReportedOutcome): Promise<Refused | undefined> {
    return new Promise((resolve) => {
      this.#pending.push({ text: entryText(this.#transport.json, id, lease, outcome), resolve });
      if (!this.#isSending) void this.#sendAll();
    });
  }

  async #sendAll(): Promise<void> {
    this.#isSending = true;
    // Jobs that end in the same turn of the loop go together.
    await new Promise<void>((resolve) =>
      typeof setImmediate === "function" ? setImmediate(resolve) : setTimeout(resolve, 0),
    );
    while (this.#pending.length > 0) await this.#send(this.#takeBatch());
    this.#isSending = false;
  }

  #takeBatch(): Pending[] {
    let length = 0;
    let count = 0;
    while (count < Math.min(this.#pending.length, BATCH_MAX) && (count === 0 || length < BATCH_TEXT_MAX)) {
      length += this.#pending[count]!.text.length;
      count += 1;
    }
    return this.#pending.splice(0, count);
  }

  async #send(batch: Pending[]): Promise<void> {
    const text = `{"outcomes":[${batch.map((pending) => pending.text).join(",")}]}`;
    let results: { accepted: boolean; error?: Problem & { status: number } }[];
    try {
      const answer = await this.#transport.send({
        method: "POST",
        path: "/v1/outcomes",
        rawBody: () => text,
        headers: { "content-type": "application/json" },
        isRepeatable: true,
        retries: Infinity,
        signal: this.#signal,
      });
      results = (answer.json as { results: typeof results }).results;
    } catch (error) {
      const refused = refusal({ code: "not_reported", status: 0, detail: String(error), cause: error });
      for (const pending of batch) pending.resolve(refused);
      return;
    }
    const later: Pending[] = [];
    results.forEach(({ accepted, error }, index) => {
      const pending = batch[index]!;
      if (accepted || !error) return pending.resolve(undefined);
      if ([429, 503, 507].includes(error.status)) return void later.push(pending);
      pending.resolve(
        refusal({
          code: error.code ?? "unknown",
          status: error.status,
          detail: error.detail ?? "",
          errors: error.errors,
        }),
      );
    });
    if (later.length === 0) return;
    this.#pending.unshift(...later);
    await sleep(backoff(2), this.#signal).catch(() => {});
  }
}

function entryText(json: JsonCodec, id: string, lease: string, outcome: ReportedOutcome): string {
  const { resultText, ...fields } = { resultText: undefined, ...outcome } as ReportedOutcome & { resultText?: string };
  const entry = json.stringify({ id, lease, ...fields });
  return resultText === undefined ? entry : `${entry.slice(0, -1)},"result":${resultText}}`;
}
