// Faults between the client and the server: answers cut after each byte, a server that is killed, storms of 503, cut streams.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Outlast, worker } from "outlast";
import { startOutlast } from "outlast/testing";
import { pause, until } from "./support/poll.mjs";
import { startCuttingProxy, startProxy } from "./support/proxy.mjs";

const SOAK = process.env.OUTLAST_SOAK === "1";
let server;
let outlast;
before(async () => {
  server = await startOutlast();
  outlast = new Outlast(server);
});
after(() => server?.stop());

describe("answers that are cut", { concurrency: 3 }, () => {
  test("a publish whose answer is cut after any byte makes one job", { timeout: 240_000 }, async () => {
    await outlast.queues.put("cut");
    const proxy = await startCuttingProxy(server.url);
    const length = await answerLength();
    // Each place is a retry of a tenth of a second; they are made side by side over connections of their own.
    const places = Array.from({ length: length + 1 }, (_, at) => at).filter(
      (at) => SOAK || at % 10 === 0 || at > length - 4,
    );
    const queue = new Outlast({ url: proxy.url, key: server.key }).queue("cut");
    const ids = new Set();
    for (const at of places) {
      const struck = proxy.cutNext(at);
      const job = await queue.publish({ at });
      await struck;
      assert.equal(job.duplicate, false, `cut after ${at} bytes`);
      ids.add(job.id);
    }
    assert.equal(ids.size, places.length);
    const jobs = await outlast.jobs.list({ queue: "cut" }).all();
    assert.equal(jobs.length, places.length + 1, "one job per publish, and that of the measurement");
    await proxy.stop();
  });

  /** Bytes of a whole answer to a publish, head included. */
  async function answerLength() {
    const response = await fetch(`${server.url}/v1/queues/cut/jobs`, {
      method: "POST",
      headers: { authorization: `Bearer ${server.key}` },
      body: '{"payload":1}',
    });
    const head = [...response.headers].reduce((sum, [name, value]) => sum + name.length + value.length + 4, 0);
    return "HTTP/1.1 202 Accepted\r\n\r\n".length + head + (await response.arrayBuffer()).byteLength;
  }

  test("no outcome is lost when many answers are cut, at every place", { timeout: 240_000 }, async () => {
    await outlast.queues.put("cut-outcomes", { visibilityTimeout: 60 });
    const count = SOAK ? 1000 : 24;
    const jobs = await outlast.queue("cut-outcomes").publishMany(Array.from({ length: count }, (_, index) => index));
    const proxy = await startCuttingProxy(server.url);
    proxy.cutEvery(4, 37);
    const runs = new Map();
    const handler = async (job) => {
      runs.set(job.id, (runs.get(job.id) ?? 0) + 1);
      await job.section("part", () => job.payload);
      return job.payload;
    };
    const options = {
      outlast: new Outlast({ url: proxy.url, key: server.key }),
      signals: false,
      log: () => {},
      concurrency: 8,
    };
    const working = worker("cut-outcomes", handler, options);
    const running = working.run();
    // A receive whose answer is cut leaves its jobs to their lease, which is ended by hand here.
    const views = await until(
      async () => {
        const read = await Promise.all(jobs.map((job) => job.get()));
        const isHeld = (view) => view.status === "running" && !runs.has(view.id);
        for (const view of read.filter(isHeld))
          await outlast.request("POST", `/v1/jobs/${view.id}/release`, { body: {} }).catch(() => {});
        return read.every(({ status }) => status === "succeeded") && read;
      },
      "all jobs",
      120,
    );
    proxy.cutEvery(Infinity, 0);
    assert.ok(proxy.cuts > 5, `only ${proxy.cuts} answers were cut`);
    await working.stop();
    await running;
    await proxy.stop();

    for (const view of views) assert.equal(view.attempts.filter(({ outcome }) => outcome === "acked").length, 1);
    for (const [index, job] of jobs.entries()) assert.equal(await job.result(), index);
  });

  test("a storm of 503 is waited out", { timeout: 60_000 }, async () => {
    await outlast.queues.put("storm");
    const body = { code: "overloaded", status: 503, detail: "full" };
    const answer = { status: 503, headers: { "retry-after": "0" }, body };
    const faults = [
      "POST /v1/queues/*/receive",
      "POST /v1/outcomes",
      "PUT /v1/jobs/*/sections/*",
      "POST /v1/heartbeats",
    ].map((request) => ({
      request,
      nth: [1, 2, 3, 5, 7, 8],
      answer,
    }));
    const proxy = await startProxy(server.url, faults);
    const jobs = await outlast.queue("storm").publishMany([1, 2, 3, 4]);
    const options = { outlast: new Outlast({ url: proxy.url, key: server.key }), signals: false, log: () => {} };
    const working = worker("storm", (job) => job.section("one", () => job.payload * 2), options);
    const running = working.run();
    const results = await Promise.all(jobs.map((job) => job.result({ timeout: 50 })));
    await working.stop();
    await running;
    await proxy.stop();
    assert.deepEqual(results, [2, 4, 6, 8]);
    for (const job of jobs) assert.equal((await job.get()).attempt, 1);
  });

  test("events come once and in order over a stream that breaks all the time", { timeout: 60_000 }, async () => {
    await outlast.queues.put("stream");
    const job = await outlast.queue("stream").publish(1);
    const proxy = await startCuttingProxy(server.url);
    const watched = new Outlast({ url: proxy.url, key: server.key }).jobs.job(job.id);
    const events = [];
    const reading = (async () => {
      for await (const event of watched.events()) if (event.type !== "progress") events.push(event);
    })();
    const handler = async (running) => {
      for (let index = 0; index < 40; index += 1) {
        running.output(`${index} `);
        if (index % 5 === 0) proxy.breakAll();
        await pause(60);
      }
    };
    const working = worker("stream", handler, { outlast, signals: false, log: () => {} });
    const running = working.run();
    await reading;
    await working.stop();
    await running;
    await proxy.stop();

    const numbered = events.filter((event) => event.type !== "end");
    assert.deepEqual(
      numbered.map(({ seq }) => seq),
      numbered.map((_, index) => index + 1),
    );
    const text = numbered
      .filter(({ type }) => type === "output")
      .map((event) => event.text)
      .join("");
    assert.equal(text, Array.from({ length: 40 }, (_, index) => `${index} `).join(""));
    assert.deepEqual(events.at(-1), { type: "end", status: "succeeded", replays: 0 });
  });
});

test("a server that is killed again and again loses nothing and doubles nothing", { timeout: 120_000 }, async () => {
  const own = await startOutlast();
  const client = new Outlast({ ...own, retries: 30 });
  await client.queues.put("killed", { visibilityTimeout: 60 });
  const runs = new Map();
  const handler = async (job) => {
    runs.set(job.payload, (runs.get(job.payload) ?? 0) + 1);
    await pause(5);
    return job.payload;
  };
  const working = worker("killed", handler, { outlast: client, signals: false, log: () => {}, concurrency: 4 });
  const running = working.run();
  let isPublishing = true;
  const killing = (async () => {
    for (let kills = 0; isPublishing || kills < 3; kills += 1) {
      await pause(400);
      await own.kill();
      await own.start();
      if (kills >= 6) break;
    }
  })();
  const jobs = [];
  for (let index = 0; index < 150; index += 1) jobs.push(await client.queue("killed").publish(index));
  isPublishing = false;
  await killing;
  const results = await Promise.all(jobs.map((job) => job.result({ timeout: 90 })));
  await working.stop();
  await running;

  assert.deepEqual(
    results,
    Array.from({ length: 150 }, (_, index) => index),
  );
  assert.equal(new Set(jobs.map(({ id }) => id)).size, 150);
  assert.equal((await client.jobs.list({ queue: "killed" }).all()).length, 150);
  await own.stop();
});
