// outlast/testing: handlers without a server, and in a child process that is killed.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Defer, NotRetryable } from "outlast";
import { delivery, runJob, signDelivery, startOutlast } from "outlast/testing";
import { verify } from "outlast/webhook";

const names = (count) => Array.from({ length: count }, (_, index) => `section-${index + 1}`);

describe("runJob", () => {
  test("shows the outcome, progress, sections, output and usage", async () => {
    const run = await runJob(
      async (job) => {
        job.progress(40, "reading");
        job.output("Once ");
        job.output("upon");
        job.usage({ tokens: 3 });
        job.usage({ tokens: 4 });
        await job.section("intro", () => ({ words: 12 }));
        await job.checkpoint.save({ page: 7 }, 2);
        return { pages: job.payload.pages * 2 };
      },
      { payload: { pages: 6 } },
    );

    assert.deepEqual(run.outcome, { ack: { pages: 12 } });
    assert.deepEqual(run.progress, [{ pct: 40, stage: "reading" }]);
    assert.deepEqual(run.sections, { intro: { words: 12 } });
    assert.deepEqual(run.checkpoint, { data: { page: 7 }, schemaVersion: 2 });
    assert.equal(run.output, "Once upon");
    assert.deepEqual(run.usage, { tokens: 7 });
  });

  test("a stored section never runs again, and values come in order", async () => {
    const worked = [];
    const handler = (job) =>
      job.eachSection(
        names(5),
        (name) => {
          worked.push(name);
          return `new ${name}`;
        },
        { concurrency: 3 },
      );

    const run = await runJob(handler, { sections: { "section-2": "old 2", "section-4": "old 4" } });

    assert.deepEqual(run.outcome, { ack: ["new section-1", "old 2", "new section-3", "old 4", "new section-5"] });
    assert.deepEqual(worked.sort(), ["section-1", "section-3", "section-5"]);
    assert.deepEqual(run.progress.at(-1), { itemsDone: 5, itemsTotal: 5 });
  });

  test("a cancel stops before the next section", async () => {
    const run = await runJob((job) => job.eachSection(names(10), (name) => name), { cancelAfter: 3 });

    assert.deepEqual(run.outcome, { cancelled: true });
    assert.deepEqual(Object.keys(run.sections), names(3));
  });

  test("a failed section lets the others in work end, and starts no new one", async () => {
    const run = await runJob((job) =>
      job.eachSection(
        names(6),
        async (name) => {
          if (name === "section-1") throw new Error("broken");
          await new Promise((resolve) => setTimeout(resolve, 5));
          return name;
        },
        { concurrency: 2 },
      ),
    );

    assert.match(run.outcome.nack, /^broken \(at /);
    assert.deepEqual(Object.keys(run.sections), ["section-2"]);
  });

  test("errors become outcomes", async () => {
    const thrown = async (error) => {
      const run = await runJob(() => {
        throw error;
      });
      return run.outcome;
    };

    assert.deepEqual(await thrown(new Defer("5m", { scope: "queue", reason: "busy" })), {
      defer: { after: 300, scope: "queue", reason: "busy" },
    });
    assert.equal((await thrown(new NotRetryable("no such address"))).retryable, false);
    assert.match((await thrown("text")).nack, /^text$/);
    assert.deepEqual((await runJob(() => undefined)).outcome, { ack: undefined });
    assert.deepEqual((await runJob(() => null)).outcome, { ack: null });
  });

  test("bytes and streams are uploaded", async () => {
    const bytes = await runJob(() => new Uint8Array([1, 2, 3]));
    const stream = await runJob(async function* () {
      yield new Uint8Array([4]);
      yield new Uint8Array([5]);
    });

    assert.deepEqual([...bytes.uploaded.bytes], [1, 2, 3]);
    assert.deepEqual([...stream.uploaded.bytes], [4, 5]);
  });

  test("a killed handler goes on from its sections", async () => {
    const module = new URL("./handlers/sections.mjs", import.meta.url);
    const killed = await runJob(module, { killAfter: "section 7" });
    assert.deepEqual(killed.outcome, { killed: "section 7" });
    assert.equal(Object.keys(killed.sections).length, 7);

    const resumed = await runJob(module, { attempt: 2, sections: killed.sections });
    assert.deepEqual(resumed.outcome, { ack: { parts: 10, first: 7 } });
  });

  test("a function cannot be run in a child process", async () => {
    await assert.rejects(
      runJob(() => 1, { killAfter: "section 1" }),
      /pass the path or URL of its module/,
    );
  });
});

test("signDelivery makes a genuine delivery", async () => {
  const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  const { headers, body } = await signDelivery(secret, delivery({ payload: { n: 1 } }));

  assert.equal(await verify(secret, headers, body), headers["webhook-id"]);
  await assert.rejects(verify(secret, headers, `${body} `), { name: "NotSigned" });
});

test("startOutlast says so when there is no binary", async () => {
  await assert.rejects(startOutlast({ binary: "/no/such/outlast" }), /set OUTLAST_BIN/);
});
