// The deliveries that this process knows, by `webhook-id`: those in work, and the last ones that ended well.

import type { Outcome } from "../worker/perform.js";

type Done = Extract<Outcome, { outcome: "ack" }>;

/** A redelivery comes within minutes; older ones are forgotten first. */
const DONE_MAX = 1000;
/** A longer result is not kept: its redelivery is worked on again. */
const RESULT_CHARS_MAX = 64 * 1024;

export class DeliveryLog {
  readonly #running = new Set<string>();
  readonly #done = new Map<string, Done>();

  isRunning(webhookId: string): boolean {
    return this.#running.has(webhookId);
  }

  doneWith(webhookId: string): Done | undefined {
    return this.#done.get(webhookId);
  }

  begin(webhookId: string): void {
    this.#running.add(webhookId);
  }

  /** Only success is remembered: the next delivery after a failure is a new attempt. */
  end(webhookId: string, outcome: Outcome): void {
    this.#running.delete(webhookId);
    if (outcome.outcome !== "ack" || (outcome.resultText?.length ?? 0) > RESULT_CHARS_MAX) return;
    this.#done.set(webhookId, outcome);
    const [oldest] = this.#done.keys();
    if (this.#done.size > DONE_MAX && oldest !== undefined) this.#done.delete(oldest);
  }
}
