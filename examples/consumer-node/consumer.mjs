// A consumer of one queue: receive, handle, ack; on failure nack. Needs nothing but Node 18 or later.
// Usage: OUTLAST_KEY=ol_... node consumer.mjs QUEUE [--url URL] [--max N]

import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";

const WAIT = "10s";
const BATCH = 5;
// Longer than the wait, so that a quiet queue is not taken for a dead server.
const ANSWER_TIMEOUT_MILLIS = 20_000;
const PAUSE_AFTER_AN_ERROR_MILLIS = 1_000;

/** Your work goes here. A throw means that the message is tried again, up to the queue's maxAttempts. */
async function handle(payload) {
  if (payload?.fail) throw new Error("asked to fail");
}

async function consume(call, limit) {
  let done = 0;
  while (done < limit) {
    const batch = Math.min(BATCH, limit - done);
    let messages;
    try {
      ({ messages } = await call("GET", `messages?wait=${WAIT}&batch=${batch}`));
    } catch (error) {
      // Nothing is lost: what was handed out and not acked comes back when its lease runs out.
      console.error(`cannot receive: ${error.message}`);
      await pause(PAUSE_AFTER_AN_ERROR_MILLIS);
      continue;
    }
    for (const message of messages) {
      await workOn(call, message);
      done += 1;
    }
  }
}

async function workOn(call, message) {
  let verb = "ack";
  let remark = "done";
  try {
    await handle(message.payload);
  } catch (error) {
    verb = "nack";
    remark = `failed: ${error.message}`;
  }
  // The receipt and not the bare id: if the lease ran out meanwhile, this must not touch the next holder's.
  await call("POST", verb, { ids: [message.receipt] });
  console.log(`${message.id} attempt ${message.attempt} ${remark}`);
}

function caller(base, key) {
  return async (method, path, body) => {
    const answer = await fetch(`${base}/${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MILLIS),
    });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  };
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { url: { type: "string" }, max: { type: "string" } },
});
const [queue] = positionals;
const key = process.env.OUTLAST_KEY;
if (!queue || !key) {
  console.error("usage: OUTLAST_KEY=ol_... node consumer.mjs QUEUE [--url URL] [--max N]");
  process.exit(2);
}
const url = values.url ?? process.env.OUTLAST_URL ?? "http://127.0.0.1:8080";
await consume(caller(`${url}/api/queues/${queue}`, key), Number(values.max ?? Infinity));
