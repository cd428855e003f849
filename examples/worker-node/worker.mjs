// A worker for a queue in ack mode: check the signature, answer 202 at once, work in the background, report the outcome.
// Safe under redelivery: a job that is being worked on, or is done, is not done twice. Needs nothing but Node 18 or later.
// Usage: OUTLAST_KEY=ol_... OUTLAST_SIGNING_SECRET=whsec_... node worker.mjs [--listen HOST:PORT] [--url URL]

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";

const BODY_BYTES_MAX = 2 * 1024 * 1024;
const TOLERANCE_SECONDS = 300;
const ANSWER_TIMEOUT_MILLIS = 10_000;
const REPORT_TRIES = 5;
// So many finished jobs are remembered. A redelivery comes within minutes; keep more than you finish in that time.
const DONE_MAX = 10_000;

/** Throw it when the service you call asks you to wait: the job comes back later and no attempt is charged. */
class Busy extends Error {
  constructor(retryAfterSeconds) {
    super(`busy for ${retryAfterSeconds} s`);
    this.retryAfter = retryAfterSeconds;
  }
}

/** Your work goes here. What it returns is the job's result; a throw means that the job is tried again. */
async function handle(payload, delivery) {
  if (payload?.busy && delivery.deferCount === 0) throw new Busy(payload.busy);
  console.log(`did ${delivery.id}`);
  if (payload?.seconds) await pause(payload.seconds * 1000);
  if (payload?.fail) throw new Error("asked to fail");
  return { length: JSON.stringify(payload).length };
}

// Every job that was received, by its webhook-id, which is the same for all redeliveries. The lease is that of the latest.
const jobs = new Map();

function take(webhookId, delivery) {
  const known = jobs.get(webhookId);
  if (!known) {
    const job = { id: delivery.id, lease: delivery.lease, done: false, result: null };
    jobs.set(webhookId, job);
    void work(webhookId, job, delivery);
    return;
  }
  // Our answer or our report was lost, or the work takes longer than ackTimeout. The old lease is dead: report with this one.
  console.log(`again ${delivery.id} attempt ${delivery.attempt}`);
  known.lease = delivery.lease;
  if (known.done) void report(known, "ack", { result: known.result });
}

async function work(webhookId, job, delivery) {
  try {
    job.result = await handle(delivery.payload, delivery);
    job.done = true;
  } catch (error) {
    // The next delivery is a new try.
    jobs.delete(webhookId);
    if (error instanceof Busy) return report(job, "defer", { retryAfter: error.retryAfter, reason: error.message });
    return report(job, "nack", { reason: error.message });
  }
  forgetOldest();
  return report(job, "ack", { result: job.result });
}

function forgetOldest() {
  for (const [webhookId, job] of jobs) {
    if (jobs.size <= DONE_MAX) return;
    if (job.done) jobs.delete(webhookId);
  }
}

/** Tells Outlast the outcome. If nobody can be told now, the job is delivered again and told about then. */
async function report(job, verb, outcome) {
  for (let attempt = 1; attempt <= REPORT_TRIES; attempt += 1) {
    const lease = job.lease;
    try {
      const answer = await fetch(`${url}/v1/jobs/${job.id}/${verb}`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify({ ...outcome, lease }),
        signal: AbortSignal.timeout(ANSWER_TIMEOUT_MILLIS),
      });
      const text = await answer.text();
      if (answer.ok) return console.log(`${verb} ${job.id}`);
      console.log(`${verb} ${job.id} refused: ${answer.status} ${text}`);
      // A newer lease may have come meanwhile; without one the next delivery brings it.
      if (answer.status < 500 && answer.status !== 429 && job.lease === lease) return;
    } catch (error) {
      console.log(`${verb} ${job.id} not sent: ${error.message}`);
    }
    await pause(attempt * 200);
  }
}

/** Standard Webhooks: an HMAC over id, time and the raw body, one signature for each live secret. */
function isGenuine(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": time, "webhook-signature": signatures } = headers;
  if (!id || !time || !signatures) return false;
  if (!(Math.abs(Date.now() / 1000 - Number(time)) <= TOLERANCE_SECONDS)) return false;
  const expected = createHmac("sha256", signingKey).update(`${id}.${time}.`).update(body).digest();
  return signatures.split(" ").some((signature) => {
    const [version, encoded] = signature.split(",");
    const given = Buffer.from(encoded ?? "", "base64");
    return version === "v1" && given.length === expected.length && timingSafeEqual(given, expected);
  });
}

async function readBody(request) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > BODY_BYTES_MAX) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function serve(request, response) {
  const body = await readBody(request);
  let status = 202;
  if (body === null) status = 413;
  else if (request.method !== "POST") status = 405;
  else if (!isGenuine(request.headers, body)) status = 401;
  else take(request.headers["webhook-id"], JSON.parse(body));
  response.writeHead(status).end();
}

const { values } = parseArgs({ options: { url: { type: "string" }, listen: { type: "string" } } });
const key = process.env.OUTLAST_KEY;
const secret = process.env.OUTLAST_SIGNING_SECRET;
if (!key || !secret) {
  console.error("set OUTLAST_KEY to a key with the scope consume, and OUTLAST_SIGNING_SECRET to the queue's secret");
  process.exit(2);
}
const signingKey = secret.startsWith("whsec_") ? Buffer.from(secret.slice(6), "base64") : Buffer.from(secret);
const url = values.url ?? process.env.OUTLAST_URL ?? "http://127.0.0.1:8080";
const [host, port] = (values.listen ?? "127.0.0.1:9001").split(":");
const server = createServer((request, response) => {
  serve(request, response).catch((error) => {
    console.log(`not taken: ${error.message}`);
    if (!response.headersSent) response.writeHead(400).end();
  });
});
server.listen(Number(port), host, () => {
  console.log(`listening on http://${server.address().address}:${server.address().port}`);
});
