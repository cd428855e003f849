// Follows one job's stream of events: every event once and in order, over any number of connections.

import { sleep } from "./duration.js";
import { readMessages, silenceGuard } from "./event-stream.js";
import { backoff } from "./retry.js";
import { InDoubt, Unavailable, Busy } from "./errors.js";
import { anySignal, type Transport } from "./transport.js";
import type { components } from "./wire.js";

type Wire = components["schemas"];

export type Progress = Wire["Progress"];

interface Logged {
  seq: number;
  at: string;
}

/** An event as on the wire. Progress has no `seq`; the last one is `end`. Types that a newer server adds pass through. */
export type JobEvent =
  | ({ type: "state"; from: string | null; to: string; reason: string; replays: number } & Logged)
  | ({
      type: "attempt";
      number: number;
      phase: string;
      outcome: string;
      durationMs: number;
      error: string | null;
    } & Logged)
  | ({ type: "result"; length: number } & Logged)
  | ({ type: "checkpoint"; schemaVersion?: number; section?: string; length: number } & Logged)
  | ({ type: "output"; attempt: number; text: string } & Logged)
  | ({ type: "note"; text: string } & Logged)
  | ({ type: "progress" } & Progress)
  | { type: "end"; status: string; replays: number };

export interface EventsOptions {
  /** Only events after this `seq`. */
  after?: number;
  signal?: AbortSignal | undefined;
}

const RECONNECT_MAX_MILLIS = 5_000;

export async function* jobEvents(transport: Transport, id: string, options: EventsOptions): AsyncGenerator<JobEvent> {
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const { signal } = options;
  let after = options.after ?? 0;
  let failures = 0;
  let pause: number | undefined;
  for (;;) {
    const connection = new AbortController();
    const guard = silenceGuard(() => connection.abort(new InDoubt("the stream is silent")));
    try {
      const response = await transport.open({
        method: "GET",
        path: `${path}/stream`,
        headers: { accept: "text/event-stream", ...(after > 0 && { "last-event-id": String(after) }) },
        signal: anySignal([signal, connection.signal]),
      });
      if (response.status === 204) {
        // The job has ended, and all its events came over an earlier connection.
        const view = (await transport.send({ method: "GET", path, signal, accepts: [410] })).json as Wire["Job"];
        yield { type: "end", status: view.status, replays: view.replays };
        return;
      }
      for await (const message of readMessages(response.body!, guard.reset)) {
        pause = message.retry ?? pause;
        if (message.data === "") continue;
        failures = 0;
        const event = { type: message.event, ...(transport.json.parse(message.data) as object) } as JobEvent;
        const seq = message.id === undefined ? undefined : Number(message.id);
        if (seq !== undefined && seq <= after) continue;
        after = seq ?? after;
        yield event;
        if (event.type === "end") return;
      }
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (error instanceof Error && !isRepairable(error)) throw error;
    } finally {
      guard.stop();
      connection.abort();
    }
    failures += 1;
    await sleep(failures === 1 ? Math.min(pause ?? 0, RECONNECT_MAX_MILLIS) : backoff(failures), signal);
  }
}

/** Does a new connection help? Broken ones have no class of ours. */
function isRepairable(error: Error): boolean {
  return (
    error instanceof InDoubt ||
    error instanceof Unavailable ||
    error instanceof Busy ||
    !("code" in error && "status" in error)
  );
}
