// Takes messages of one queue, handles each, and acks it; on failure nacks it. Needs nothing but Node 20 and its types.
// Usage: OUTLAST_KEY=... npx tsx consumer.mts QUEUE

import { setTimeout as pause } from "node:timers/promises";

interface Invoice {
  customer: string | null;
  amount_due: number;
}

interface Message {
  event_id: string;
  event_type: string | null;
  attempt: number;
  receipt: string;
  payload: { data: { object: Invoice } };
}

type Call = <Answer>(method: string, path: string, body?: object) => Promise<Answer>;

// Longer than the wait, so that a quiet queue is not taken for a dead server.
const ANSWER_TIMEOUT_MILLIS = 20_000;
const PAUSE_AFTER_AN_ERROR_MILLIS = 1_000;

// Your work goes here. A throw means that the message comes again, up to the queue's max_attempts times.
async function handle(message: Message): Promise<void> {
  const invoice = message.payload.data.object;
  if (!invoice.customer) throw new Error("the invoice has no customer");
}

async function workOn(call: Call, message: Message): Promise<void> {
  try {
    await handle(message);
  } catch (error) {
    await call("POST", "nack", { ids: [message.receipt] });
    console.log(`failed ${message.event_id}: ${error}`);
    return;
  }
  // The receipt and not the id: if this took longer than the visibility timeout, somebody else has the message now.
  const { acked } = await call<{ acked: number }>("POST", "ack", { ids: [message.receipt] });
  console.log(`${acked ? "done" : "too late"} ${message.event_id} ${message.event_type}`);
}

function caller(base: string, key: string): Call {
  return async <Answer,>(method: string, path: string, body?: object): Promise<Answer> => {
    const answer = await fetch(`${base}/${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MILLIS),
    });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as Answer;
  };
}

const [queue] = process.argv.slice(2);
const key = process.env.OUTLAST_KEY;
if (!queue || !key) {
  console.error("usage: OUTLAST_KEY=... npx tsx consumer.mts QUEUE");
  process.exit(2);
}
const url = process.env.OUTLAST_URL ?? "http://127.0.0.1:8080";
const call = caller(`${url}/api/queues/${queue}`, key);
for (;;) {
  try {
    const { messages } = await call<{ messages: Message[] }>("GET", "messages?wait=10s&batch=5");
    for (const message of messages) await workOn(call, message);
  } catch (error) {
    // Nothing is lost: unacked messages come back when their visibility timeout ends.
    console.error(`trying again: ${error}`);
    await pause(PAUSE_AFTER_AN_ERROR_MILLIS);
  }
}
