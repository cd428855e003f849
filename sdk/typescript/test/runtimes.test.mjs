// The same program on Node 18, 20 and 22, Bun and Deno; the client alone in an edge runtime.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { EdgeVM } from "@edge-runtime/vm";
import { build } from "esbuild";
import { Outlast } from "outlast";
import { startOutlast } from "outlast/testing";

const run = promisify(execFile);
const root = new URL("..", import.meta.url).pathname;
const runtimes = `${root}test/runtimes/node_modules`;
const program = `${root}test/handlers/runtime-check.mjs`;
const commands = {
  "Node 18": [`${runtimes}/node18/bin/node`, program],
  "Node 20": [`${runtimes}/node20/bin/node`, program],
  "Node 22": [`${runtimes}/node22/bin/node`, program],
  Bun: [`${runtimes}/@oven/bun-linux-x64/bin/bun`, program],
  Deno: [`${runtimes}/@deno/linux-x64-glibc/deno`, "run", "--allow-all", "--no-lock", program],
};

let server;
let outlast;
before(async () => {
  server = await startOutlast();
  outlast = new Outlast(server);
});
after(() => server?.stop());

describe("runtimes", { concurrency: 2 }, () => {
  for (const [index, [name, [binary, ...args]]] of Object.entries(commands).entries()) {
    test(name, { timeout: 120_000 }, async (context) => {
      if (!existsSync(binary)) return context.skip(`${binary} is not installed`);
      const queue = `runtime-${index}`;
      await outlast.queues.put(queue, { visibilityTimeout: 3 });
      const env = { ...process.env, NODE_OPTIONS: "" };
      const { stdout } = await run(binary, [...args, server.url, server.key, queue], {
        cwd: root,
        env,
        timeout: 100_000,
      });
      assert.equal(stdout.trim().split("\n").at(-1), "ok");
    });
  }

  test("an edge runtime", async () => {
    await outlast.queues.put("edge");
    const contents = `
      import { Outlast } from "outlast";
      import { verify, NotSigned } from "outlast/webhook";
      globalThis.main = async (url, key) => {
        const outlast = new Outlast({ url, key });
        const job = await outlast.queue("edge").publish({ n: 1 });
        await job.cancel();
        const ended = await job.result({ timeout: 10 }).catch((error) => error.name);
        const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        const signed = await verify(secret, {}, "{}").catch((error) => error instanceof NotSigned);
        return JSON.stringify({ ended, signed, queued: (await outlast.jobs.list({ queue: "edge" }).all()).length });
      };`;
    const bundled = await build({
      stdin: { contents, resolveDir: root },
      bundle: true,
      format: "iife",
      platform: "browser",
      write: false,
    });
    const vm = new EdgeVM();
    vm.evaluate(bundled.outputFiles[0].text);
    const answer = await vm.evaluate(`main(${JSON.stringify(server.url)}, ${JSON.stringify(server.key)})`);
    assert.deepEqual(JSON.parse(answer), { ended: "JobCancelled", signed: true, queued: 1 });
  });
});
