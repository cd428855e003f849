// Measures the SDK as ratios to bare loops of the same run, on a server of its own, and prints them with their goals.
// Usage: OUTLAST_BIN=target/release/outlast node bench/run.mjs [--seconds 3]

import { Outlast, worker } from "outlast";
import { startOutlast } from "outlast/testing";

const at = process.argv.indexOf("--seconds");
const SECONDS = at > 0 ? Number(process.argv[at + 1]) : 3;
/** Each measurement is made this often in turn with its counterpart; the median counts. */
const ROUNDS = 3;

const server = await startOutlast();
const outlast = new Outlast(server);
const headers = { authorization: `Bearer ${server.key}`, "content-type": "application/json" };
const post = async (path, body) => {
  const answer = await fetch(server.url + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
};

let queues = 0;
async function filledQueue(count) {
  queues += 1;
  const name = `bench-${queues}`;
  await outlast.queues.put(name, { visibilityTimeout: 600, retention: 60 });
  const queue = outlast.queue(name);
  for (let sent = 0; sent < count; sent += 1000)
    await queue.publishMany(
      Array.from({ length: 1000 }, (_, n) => ({ n })),
      { size: 1000 },
    );
  return name;
}

/** Calls `step` for the given time; calls per second. */
async function rate(step, perStep = 1) {
  const start = performance.now();
  let steps = 0;
  while (performance.now() - start < SECONDS * 1000) {
    await step();
    steps += perStep;
  }
  return (steps * 1000) / (performance.now() - start);
}

/** Receive and ack on one connection, as a program without an SDK does it. */
async function bareLoop(queue) {
  return rate(async () => {
    const { jobs } = await post(`/v1/queues/${queue}/receive`, { wait: 20 });
    for (const { id, lease } of jobs) await post(`/v1/jobs/${id}/ack`, { lease });
  });
}

async function workerRate(queue, concurrency) {
  let ended = 0;
  const options = { outlast, concurrency, signals: false, log: () => {}, onEnd: () => (ended += 1) };
  const working = worker(queue, () => {}, options);
  const running = working.run();
  await until(() => ended > 0);
  const start = performance.now();
  const before = ended;
  await new Promise((resolve) => setTimeout(resolve, SECONDS * 1000));
  const perSecond = ((ended - before) * 1000) / (performance.now() - start);
  await working.stop();
  await running;
  return perSecond;
}

async function until(condition) {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

const median = (values) => [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)];

/** Runs both in turn and prints the ratio of their medians. */
async function compare(name, goal, measured, bare) {
  const [ours, theirs] = [[], []];
  for (let round = 0; round < ROUNDS; round += 1) {
    theirs.push(await bare());
    ours.push(await measured());
  }
  const ratio = median(ours) / median(theirs);
  const verdict = goal === undefined ? "" : ratio >= goal ? `goal ${goal}: met` : `goal ${goal}: MISSED`;
  const rates = `${Math.round(median(ours))}/s to ${Math.round(median(theirs))}/s`;
  console.log(`${name.padEnd(34)} ${ratio.toFixed(2).padStart(6)}   ${rates.padEnd(24)} ${verdict}`);
}

/** A worker in this process with jobs that wait: processor time of the keeper, and memory of streams. */
async function keeperCost(held) {
  const queue = await filledQueue(1000);
  await outlast.queues.patch(queue, { visibilityTimeout: 9 });
  const waits = (job) =>
    new Promise((resolve) => job.signal.addEventListener("abort", () => resolve(undefined), { once: true }));
  const working = worker(queue, waits, { outlast, concurrency: held, signals: false, log: () => {}, grace: 0 });
  const running = working.run();
  await new Promise((resolve) => setTimeout(resolve, 2000));
  const before = process.cpuUsage();
  await new Promise((resolve) => setTimeout(resolve, SECONDS * 1000));
  const { user, system } = process.cpuUsage(before);
  await working.stop();
  await running;
  const share = (user + system) / (SECONDS * 1e6);
  console.log(`${`keeper with ${held} jobs held`.padEnd(34)} ${share.toFixed(3).padStart(6)}   of one processor`);
}

async function streamMemory(count) {
  const key = await outlast.keys.create({ name: "bench", scopes: ["admin"] });
  const job = await outlast.queue(await filledQueue(1000)).publish(1);
  const reader = new Outlast({ url: server.url, key: key.key });
  const stop = new AbortController();
  globalThis.gc?.();
  const before = process.memoryUsage().rss;
  const reads = Array.from({ length: count }, async () => {
    for await (const event of reader.jobs.job(job.id).events({ signal: stop.signal })) void event;
  });
  for (const read of reads) read.catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 2000));
  const mebibytes = ((process.memoryUsage().rss - before) / count) * (1000 / 2 ** 20);
  stop.abort();
  await Promise.allSettled(reads);
  console.log(`${"memory per 1,000 streams".padEnd(34)} ${mebibytes.toFixed(0).padStart(6)}   MiB`);
}

try {
  const bare = async () => bareLoop(await filledQueue(20_000));
  await compare("worker, concurrency 1", 0.8, async () => workerRate(await filledQueue(20_000), 1), bare);
  await compare("worker, concurrency 16", undefined, async () => workerRate(await filledQueue(60_000), 16), bare);
  await compare("worker, concurrency 64", 3, async () => workerRate(await filledQueue(60_000), 64), bare);
  const [mine, theirs] = [await filledQueue(0), await filledQueue(0)];
  const publish = () => rate(() => outlast.queue(mine).publish({ n: 1 }));
  await compare("publish to bare POST", 0.85, publish, () =>
    rate(() => post(`/v1/queues/${theirs}/jobs`, { payload: { n: 1 } })),
  );
  const payloads = Array.from({ length: 500 }, (_, n) => ({ n }));
  const batch = { jobs: payloads.map((payload, n) => ({ payload, idempotencyKey: `k${n}` })) };
  const many = () => rate(() => outlast.queue(mine).publishMany(payloads), 500);
  let round = 0;
  const bareBatch = () =>
    rate(() => {
      round += 1;
      // The same work for the server: a fresh key for each job.
      batch.jobs.forEach((job, n) => (job.idempotencyKey = `${round}-${n}-0123456789abcdef`));
      return post(`/v1/queues/${theirs}/jobs/batch`, batch);
    }, 500);
  await compare("publishMany to batch POST", 0.95, many, bareBatch);
  await keeperCost(100);
  await streamMemory(90);
} finally {
  await server.stop();
}
