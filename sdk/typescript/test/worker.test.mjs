// The worker against the real server: kills, blocks, stops, cancels, and all calls of a job.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { CheckpointIncompatible, Outlast, provider, worker } from "outlast";
import { startOutlast } from "outlast/testing";
import { pause, until } from "./support/poll.mjs";
import { startCuttingProxy } from "./support/proxy.mjs";

const SOAK = process.env.OUTLAST_SOAK === "1";
let server;
let outlast;
let folder;
let hasVersion;
before(async () => {
  server = await startOutlast();
  outlast = new Outlast(server);
  folder = await mkdtemp(join(tmpdir(), "outlast-worker-test-"));
  hasVersion = (await outlast.transport.serverVersion()) !== null;
});
const children = [];
after(async () => {
  // A test that has failed may have left its processes.
  for (const child of children) child.kill("SIGKILL");
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
});

let number = 0;
async function newQueue(settings = {}) {
  number += 1;
  const name = `work-${number}`;
  await outlast.queues.put(name, { backoff: { type: "fixed", delay: 0 }, ...settings });
  return outlast.queue(name);
}

/** A worker in a process of its own. */
function spawnWorker(queue, role, environment = {}) {
  const log = join(folder, `${queue.name}.log`);
  const env = {
    ...process.env,
    OUTLAST_URL: server.url,
    OUTLAST_KEY: server.key,
    QUEUE: queue.name,
    ROLE: role,
    LOG: log,
  };
  const script = new URL("./handlers/worker-child.mjs", import.meta.url).pathname;
  const child = spawn(process.execPath, [script], {
    env: { ...env, ...environment },
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(child);
  const exited = new Promise((resolve) => child.once("exit", (code, signal) => resolve(signal ?? code)));
  const lines = async () => (await readFile(log, "utf8").catch(() => "")).split("\n").filter(Boolean);
  const waitForLine = (text) =>
    until(async () => (await lines()).find((line) => line.startsWith(text)), `the line ${text}`);
  return { child, exited, lines, waitForLine };
}

/** Runs a worker here until the check is true, then stops it. */
async function work(queue, handler, options, run) {
  const working = worker(queue.name, handler, { outlast, signals: false, log: () => {}, ...options });
  const running = working.run();
  try {
    return await run(working);
  } finally {
    await working.stop();
    await running;
  }
}

const attemptsOf = async (job) => (await job.get()).attempts.map(({ outcome }) => outcome);

describe("faults of processes", { concurrency: 6 }, () => {
  const places = Array.from({ length: SOAK ? 40 : 20 }, () =>
    String(1 + Math.floor(Math.random() * 160)).padStart(3, "0"),
  );
  const lots = Array.from({ length: SOAK ? 8 : 4 }, (_, lot) => places.slice(lot * 5, lot * 5 + 5).sort());

  for (const [lot, kills] of lots.entries()) {
    test(`kill -9 at ${kills.join(", ")} of 161 sections`, { timeout: 180_000 }, async () => {
      const queue = await newQueue({ visibilityTimeout: 3, maxAttempts: 20 });
      const job = await queue.publish({ lot });
      const inFlight = new Map();
      for (const [index, place] of kills.entries()) {
        const moment = index % 2 === 0 ? "in-work" : "stored";
        const dying = spawnWorker(queue, "report", { KILL_AT: `${place} ${moment}` });
        // A place that an earlier attempt has passed is not reached again: that worker ends the job.
        const ended = await Promise.race([dying.exited, job.result({ timeout: 60 }).then(() => "done")]);
        if (ended === "done") {
          dying.child.kill("SIGTERM");
          await dying.exited;
          break;
        }
        assert.equal(ended, "SIGKILL");
        if (moment === "in-work") inFlight.set(`section-${place}`, (inFlight.get(`section-${place}`) ?? 0) + 1);
      }
      const last = spawnWorker(queue, "report");
      assert.deepEqual(await job.result({ timeout: 60 }), { sections: 161 });
      last.child.kill("SIGTERM");
      assert.equal(await last.exited, 0);

      const worked = (await last.lines()).filter((line) => line.startsWith("section-"));
      const counts = new Map();
      for (const name of worked) counts.set(name, (counts.get(name) ?? 0) + 1);
      assert.equal(counts.size, 161);
      const outcomes = await attemptsOf(job);
      assert.equal(outcomes.filter((outcome) => outcome === "acked").length, 1);
      for (const [name, times] of inFlight) assert.equal(counts.get(name), 1 + times, `${name} was in work at a kill`);
      // A machine that is too busy for a lease ends an attempt as a kill does: with at most one section in work.
      const lost = outcomes.filter((outcome) => outcome === "lease_expired").length;
      assert.ok(worked.length - 161 <= lost, `${worked.length - 161} sections were repeated by ${lost} lost leases`);
    });
  }

  test("a loop that is blocked for three leases keeps its job", { timeout: 120_000 }, async () => {
    const queue = await newQueue({ visibilityTimeout: 4 });
    const job = await queue.publish({ millis: 13_000 });
    const blocked = spawnWorker(queue, "block");
    await blocked.waitForLine("start 1");

    const result = await work(
      queue,
      () => "second hand-out",
      {},
      () => job.result({ timeout: 60 }),
    );
    assert.deepEqual(result, { attempt: 1 });
    assert.deepEqual(await attemptsOf(job), ["acked"]);
    blocked.child.kill("SIGTERM");
    assert.equal(await blocked.exited, 0);
  });

  test("a process that was stopped past its lease leaves no trace", { timeout: 90_000 }, async () => {
    const queue = await newQueue({ visibilityTimeout: 2 });
    const job = await queue.publish(1);
    const zombie = spawnWorker(queue, "late");
    await zombie.waitForLine("start 1");
    zombie.child.kill("SIGSTOP");
    await work(
      queue,
      (running) => `attempt ${running.attempt}`,
      {},
      () => job.result({ timeout: 40 }),
    );
    const before = await job.get();
    zombie.child.kill("SIGCONT");
    await zombie.waitForLine("refused");
    await zombie.waitForLine("log: job");

    const lines = await zombie.lines();
    assert.ok(lines.includes("stopped: lost"), lines.join("\n"));
    assert.ok(
      lines.some((line) => /nothing is reported/.test(line)),
      lines.join("\n"),
    );
    const after = await job.get();
    assert.equal(after.version, before.version);
    assert.equal(await job.result(), "attempt 2");
    zombie.child.kill("SIGTERM");
    assert.equal(await zombie.exited, 0);
  });

  test("SIGTERM under load charges nothing", { timeout: 90_000 }, async () => {
    const queue = await newQueue({ visibilityTimeout: 30 });
    const jobs = await queue.publishMany(
      Array.from({ length: 300 }, (_, index) => ({ millis: index % 10 === 0 ? 3000 : 20 })),
    );
    const loaded = spawnWorker(queue, "load", { CONCURRENCY: "16", GRACE: "500ms" });
    await until(async () => (await loaded.lines()).filter((line) => line.startsWith("end")).length > 40, "some ends");
    loaded.child.kill("SIGTERM");
    assert.equal(await loaded.exited, 0);

    await work(
      queue,
      () => 2,
      { concurrency: 32 },
      () => outlast.jobs.wait(jobs, { timeout: 60 }),
    );
    for (const job of jobs) {
      const { status, attempt } = await job.get();
      assert.deepEqual({ status, attempt }, { status: "succeeded", attempt: 1 });
    }
  });

  test(
    "a second SIGTERM gives jobs back at once, also of a handler that does not end",
    { timeout: 60_000 },
    async () => {
      const queue = await newQueue({ visibilityTimeout: 300 });
      const job = await queue.publish(1);
      const stubborn = spawnWorker(queue, "stubborn");
      await stubborn.waitForLine("start");
      stubborn.child.kill("SIGTERM");
      await pause(200);
      stubborn.child.kill("SIGTERM");

      assert.equal(await stubborn.exited, 0);
      const view = await job.get();
      assert.deepEqual([view.status, view.attempt], ["queued", 1]);
    },
  );
});

describe("a job in work", { concurrency: 6 }, () => {
  test("a cancel arrives long before the next third of the lease", { timeout: 60_000 }, async (context) => {
    if (!hasVersion) return context.skip("the server's heartbeats do not wait");
    const queue = await newQueue({ visibilityTimeout: 90 });
    const job = await queue.publish(1);
    let started = false;
    const handler = async (running) => {
      started = true;
      await new Promise((resolve) => running.signal.addEventListener("abort", resolve, { once: true }));
      return undefined;
    };
    await work(queue, handler, {}, async () => {
      await until(() => started, "the start");
      // The keeper covers a job within a second of its start.
      await pause(1500);
      const cancelledAt = Date.now();
      await job.cancel();
      await until(async () => (await job.get()).status === "cancelled", "the cancel");
      const millis = Date.now() - cancelledAt;
      context.diagnostic(`a cancel took ${millis} ms`);
      assert.ok(millis < 10_000, `a cancel took ${millis} ms`);
    });
    assert.deepEqual(await attemptsOf(job), ["cancel_confirmed"]);
  });

  test("ten thousand jobs, each acked once", { timeout: 300_000 }, async () => {
    const count = SOAK ? 100_000 : 10_000;
    const queue = await newQueue({ visibilityTimeout: 120 });
    const seen = new Map();
    const payloads = (function* () {
      for (let index = 0; index < count; index += 1) yield index;
    })();
    const jobs = await queue.publishMany(payloads, { size: 1000 });
    let acked = 0;
    const options = { concurrency: 100, onEnd: (_, { outcome }) => (acked += outcome === "ack" ? 1 : 0) };
    const handler = (job) => {
      seen.set(job.payload, (seen.get(job.payload) ?? 0) + 1);
    };
    await work(queue, handler, options, () => until(() => acked >= count, "all acks", 240));

    assert.equal(jobs.length, count);
    assert.equal(acked, count);
    assert.equal(seen.size, count);
    assert.ok([...seen.values()].every((times) => times === 1));
    assert.equal((await outlast.queues.get(queue.name)).counts.succeeded, count);
  });

  test("a checkpoint above 256 KiB comes back", async () => {
    const queue = await newQueue();
    const job = await queue.publish(1);
    const big = { rows: Array.from({ length: 60_000 }, (_, index) => index) };
    const handler = async (running) => {
      if (running.attempt === 1) {
        await running.checkpoint.save(big, 3);
        throw new Error("it broke");
      }
      const saved = await running.checkpoint.load();
      return { schemaVersion: saved.schemaVersion, rows: saved.data.rows.length };
    };
    const result = await work(queue, handler, {}, () => job.result({ timeout: 30 }));
    assert.deepEqual(result, { schemaVersion: 3, rows: 60_000 });
  });

  test("a checkpoint of another version is refused", async () => {
    const queue = await newQueue();
    const job = await queue.publish(1);
    const handler = async (running) => {
      if (running.attempt === 1) {
        await running.checkpoint.save({ page: 1 }, 1);
        throw new Error("it broke");
      }
      return running.checkpoint.load().then(
        () => "loaded",
        (error) => error instanceof CheckpointIncompatible,
      );
    };
    assert.equal(await work(queue, handler, { acceptsSchema: [2] }, () => job.result({ timeout: 30 })), true);
  });

  test("tick saves every thousand calls, and when the server asks", async () => {
    const queue = await newQueue({ visibilityTimeout: 3 });
    const job = await queue.publish(1);
    let ticks = 0;
    const handler = async (running) => {
      for (; ticks < 1500; ticks += 1) await running.checkpoint.tick(() => ({ ticks }));
      const first = (await job.checkpoint()).data.ticks;
      await job.direct(["checkpoint_now"]);
      await until(() => running.directives.includes("checkpoint_now"), "the directive");
      await running.checkpoint.tick(() => ({ ticks: "asked" }));
      return { first, second: (await job.checkpoint()).data.ticks };
    };
    const result = await work(queue, handler, {}, () => job.result({ timeout: 30 }));
    assert.deepEqual(result, { first: 999, second: "asked" });
  });

  test("output comes once and in order", async () => {
    const queue = await newQueue();
    const job = await queue.publish(1);
    const words = Array.from({ length: 3000 }, (_, index) => `wort${index} ü😀 `);
    const handler = async (running) => {
      for (const [index, word] of words.entries()) {
        // A token may end in the middle of a character.
        const at = Math.floor(word.length / 2) + (index % 2);
        running.output(word.slice(0, at));
        running.output(word.slice(at));
        if (index % 500 === 0) await pause(1);
      }
    };
    await work(queue, handler, {}, () => job.result({ timeout: 30 }));
    let text = "";
    for await (const event of job.events()) if (event.type === "output") text += event.text;
    assert.equal(text, words.join(""));
  });

  test("progress reaches viewers, and result() reports it", async () => {
    const queue = await newQueue();
    const job = await queue.publish(1);
    const handler = async (running) => {
      for (let done = 1; done <= 4; done += 1) {
        running.progress({ itemsDone: done, itemsTotal: 4 });
        await pause(700);
      }
      return "done";
    };
    const seen = [];
    const onProgress = ({ itemsDone }) => seen.push(itemsDone);
    assert.equal(await work(queue, handler, {}, () => job.result({ timeout: 30, onProgress })), "done");
    assert.ok(seen.length >= 1, "no progress came");
    assert.deepEqual(seen, [...seen].sort());
  });

  test("hand_over gives the job back for free, and the next worker goes on", async () => {
    const queue = await newQueue({ visibilityTimeout: 3 });
    const job = await queue.publish(1);
    let starts = 0;
    const handler = async (running) => {
      starts += 1;
      await running.section("first", () => starts);
      if (starts > 1) return running.section("first", () => "again");
      await new Promise((_, reject) => running.signal.addEventListener("abort", () => reject(running.signal.reason)));
      return undefined;
    };
    const result = await work(queue, handler, {}, async () => {
      await until(() => starts === 1, "the start");
      await job.direct(["hand_over"]);
      return job.result({ timeout: 30 });
    });
    assert.equal(result, 1);
    assert.deepEqual(await attemptsOf(job), ["released", "acked"]);
  });

  test("the soft limit is a signal, the hard limit ends the work", async () => {
    const queue = await newQueue({ softTimeLimit: 1, hardTimeLimit: 2, visibilityTimeout: 30, maxAttempts: 2 });
    const job = await queue.publish(1);
    const seen = [];
    const handler = async (running) => {
      if (running.attempt === 2) return "second";
      running.softLimit.addEventListener("abort", () => seen.push("soft"), { once: true });
      await new Promise((resolve) => running.signal.addEventListener("abort", resolve, { once: true }));
      seen.push(running.stopReason);
      return "too late";
    };
    assert.equal(await work(queue, handler, {}, () => job.result({ timeout: 30 })), "second");
    assert.deepEqual(seen, ["soft", "hard limit"]);
    assert.deepEqual(await attemptsOf(job), ["hard_time_limit", "acked"]);
  });

  test("a payload that does not match its schema is a dead letter", async () => {
    const queue = await newQueue();
    const job = await queue.publish({ title: 7 });
    const issues = [{ message: "is no text", path: ["title"] }];
    const schema = { "~standard": { validate: (value) => (typeof value.title === "string" ? { value } : { issues }) } };
    await work(
      queue,
      () => 1,
      { schema },
      () => assert.rejects(job.result({ timeout: 30 }), /title: is no text/),
    );
    assert.equal((await job.get()).attempt, 1);
  });

  test("errors of providers hold the queue for their retry-after", async () => {
    const queue = await newQueue();
    const job = await queue.publish(1);
    const handler = (running) => {
      if (running.deferCount > 0) return "later";
      throw Object.assign(new Error("rate limited"), { status: 429, headers: new Headers({ "retry-after": "1" }) });
    };
    assert.equal(await work(queue, handler, { deferOn: provider }, () => job.result({ timeout: 30 })), "later");
    assert.deepEqual(await attemptsOf(job), ["deferred", "acked"]);
  });

  test("numbers that a double cannot hold stay exact in payloadText", async () => {
    const queue = await newQueue();
    const text = '{"id": 12345678901234567890, "list": [1, "a\\"]", {"payload": 2}]}';
    const answer = await outlast.request("POST", `/v1/queues/${queue.name}/jobs`, {
      rawBody: () => `{"payload": ${text}}`,
      headers: { "content-type": "application/json" },
    });
    let seen;
    const job = outlast.jobs.job(answer.id);
    await work(
      queue,
      (running) => void (seen = running.payloadText),
      {},
      () => job.result({ timeout: 30 }),
    );
    await job.get();
    assert.equal(seen, text);
    assert.equal(job.payloadText, text);
  });

  test("a batch handler gets a list, and each job its own outcome", async () => {
    const queue = await newQueue({ maxAttempts: 1 });
    const jobs = await queue.publishMany([1, 2, 3, 4, 5, 6]);
    const sizes = [];
    const handler = (list) => {
      sizes.push(list.length);
      return list.map(({ payload }) => (payload === 3 ? new Error("not three") : payload * 10));
    };
    const views = await work(queue, handler, { batch: 4 }, () => outlast.jobs.wait(jobs, { timeout: 30 }));
    assert.deepEqual(
      views.map(({ status }) => status),
      ["succeeded", "succeeded", "failed", "succeeded", "succeeded", "succeeded"],
    );
    assert.equal(await jobs[5].result(), 60);
    assert.ok(Math.max(...sizes) > 1, `sizes: ${sizes}`);
  });

  test("one worker serves several queues", async () => {
    const [mail, reports] = [await newQueue(), await newQueue()];
    const jobs = [await mail.publish(1), await reports.publish(2), await mail.publish(3)];
    const queues = {
      [mail.name]: (job) => `mail ${job.payload}`,
      [reports.name]: { handler: (job) => `report ${job.payload}`, weight: 3 },
    };
    const working = worker(queues, { outlast, signals: false, log: () => {}, concurrency: 2 });
    const running = working.run();
    const results = await Promise.all(jobs.map((job) => job.result({ timeout: 30 })));
    await working.stop();
    await running;
    assert.deepEqual(results, ["mail 1", "report 2", "mail 3"]);
  });

  test("a worker of a queue that does not exist rejects", async () => {
    const working = worker("no-such-queue", () => 1, { outlast, signals: false, log: () => {} });
    await assert.rejects(working.run(), { name: "NotFound", code: "queue_not_found" });
  });

  test("hooks see the start and the end", async () => {
    const queue = await newQueue({ maxAttempts: 1 });
    const job = await queue.publish(1);
    const seen = [];
    const hooks = {
      onStart: ({ id }) => seen.push(["start", id]),
      onEnd: ({ id }, { outcome }) => seen.push(["end", id, outcome]),
      onError: (error, { id }) => seen.push(["error", id, error.message]),
    };
    const handler = () => {
      throw new Error("it broke");
    };
    await work(queue, handler, hooks, () => assert.rejects(job.result({ timeout: 30 })));
    assert.deepEqual(seen, [
      ["start", job.id],
      ["error", job.id, "it broke"],
      ["end", job.id, "nack"],
    ]);
  });
});

describe("results that are files", { concurrency: 4 }, () => {
  const bytes = randomBytes(3_000_000);
  const sha256 = createHash("sha256").update(bytes).digest("hex");

  async function upload(handler) {
    const queue = await newQueue();
    const job = await queue.publish(1);
    await work(queue, handler, {}, () => outlast.jobs.wait([job], { timeout: 30 }));
    const view = await job.get();
    assert.equal(view.status, "succeeded", JSON.stringify(view.lastError));
    assert.equal(view.resultMeta.sha256, sha256);
    return job;
  }

  test("bytes", async () => {
    const job = await upload(() => new Uint8Array(bytes));
    await assert.rejects(job.result(), { name: "ResultIsFile" });
  });

  test("a stream", async () => {
    await upload(async function* () {
      for (let at = 0; at < bytes.length; at += 100_000) yield new Uint8Array(bytes.subarray(at, at + 100_000));
    });
  });

  test("a file, by its path, with its name and progress", async () => {
    const path = join(folder, "report.bin");
    await writeFile(path, bytes);
    let last;
    const onProgress = (progress) => (last = progress);
    const job = await upload(async (running) => {
      await running.upload(path, { filename: "report.bin", contentType: "application/x-report", onProgress });
    });
    assert.deepEqual(last, { length: bytes.length, total: bytes.length });
    assert.equal(job.view.resultMeta.filename, "report.bin");
    assert.equal(job.view.resultMeta.contentType, "application/x-report");
  });

  test("by links in parts", async () => {
    await upload(async (running) => {
      await running.upload(new Blob([bytes]), { parts: 3 });
    });
  });

  test("a download to a path and to a writable", async () => {
    const job = await upload(() => new Uint8Array(bytes));
    const path = join(folder, "down.bin");
    assert.deepEqual(await job.download(path), { length: bytes.length, sha256 });
    assert.deepEqual(await readFile(path), bytes);

    const chunks = [];
    const sink = new Writable({ write: (chunk, _, done) => (chunks.push(chunk), done()) });
    await job.download(sink);
    assert.deepEqual(Buffer.concat(chunks), bytes);
  });

  test("a download goes on after broken connections", async (context) => {
    const job = await upload(() => new Uint8Array(bytes));
    const proxy = await startCuttingProxy(server.url);
    context.after(() => proxy.stop());
    const through = new Outlast({ url: proxy.url, key: server.key }).jobs.job(job.id);
    const path = join(folder, "cut.bin");
    let cuts = 0;
    const onProgress = ({ length }) => {
      if (cuts >= 3 || length < (cuts + 1) * 500_000) return;
      cuts += 1;
      proxy.breakAll();
    };
    assert.deepEqual(await through.download(path, { onProgress }), { length: bytes.length, sha256 });
    assert.deepEqual(await readFile(path), bytes);
    assert.equal(cuts, 3);
  });

  test("a wrong SHA-256 deletes the file", async () => {
    const job = await upload(() => new Uint8Array(bytes));
    const path = join(folder, "wrong.bin");
    const changing = async (input, init) => {
      const response = await fetch(input, init);
      if (!String(input).includes("/objects/")) return response;
      const body = new Uint8Array(await response.arrayBuffer());
      body[1000] ^= 1;
      return new Response(body, { status: response.status, headers: response.headers });
    };
    const damaged = new Outlast({ ...server, fetch: changing }).jobs.job(job.id);
    await assert.rejects(damaged.download(path), { name: "DownloadDamaged" });
    await assert.rejects(stat(path), { code: "ENOENT" });
  });
});
