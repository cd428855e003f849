// The code of README.md: every block is compiled against the package's types, and run.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { after, before, test } from "node:test";
import { transform } from "esbuild";
import { Outlast } from "outlast";
import { startOutlast } from "outlast/testing";
import ts from "typescript";
import { until } from "./support/poll.mjs";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const root = new URL("..", import.meta.url).pathname;
// Inside the package, so that the blocks find it by its name.
const folder = `${root}test/readme-blocks`;
let server;
let outlast;
let blocks;
before(async () => {
  const text = await readFile(`${root}README.md`, "utf8");
  const found = [...text.matchAll(/<!-- (run: \w+|check) -->\n```(tsx?)\n([\s\S]*?)```/g)];
  assert.equal(found.length, text.match(/```tsx?\n/g).length, "every block of code has a mark above it");
  blocks = found.map(([, mark, language, code], index) => ({
    mark,
    code,
    file: `${folder}/block-${index}.${language === "tsx" ? "tsx" : "mts"}`,
  }));
  await mkdir(folder, { recursive: true });
  for (const { file, code } of blocks) await writeFile(file, code);
  server = await startOutlast();
  outlast = new Outlast(server);
  for (const name of ["reports", "mail", "counts"]) await outlast.queues.put(name);
});
after(async () => {
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
});

test("the blocks compile", { timeout: 120_000 }, () => {
  const options = { strict: true, noEmit: true, skipLibCheck: true, jsx: ts.JsxEmit.ReactJSX, esModuleInterop: true };
  const modules = { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext };
  const program = ts.createProgram(
    blocks.map(({ file }) => file),
    { ...options, ...modules, target: ts.ScriptTarget.ES2022, types: ["node"] },
  );
  const messages = ts.getPreEmitDiagnostics(program).map(({ file, messageText }) => {
    return `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
  });
  assert.deepEqual(messages, []);
});

async function start({ code, file }, environment = {}, args = []) {
  const script = file.replace(/\.mts$/, ".mjs");
  await writeFile(script, (await transform(code, { loader: "ts", format: "esm" })).code);
  const env = { ...process.env, OUTLAST_URL: server.url, OUTLAST_KEY: server.key, ...environment };
  // The runner marks its children; a test inside a test would be taken for a part of it.
  delete env.NODE_TEST_CONTEXT;
  const child = spawn(process.execPath, [...args, script], { env, cwd: root, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
  const exited = new Promise((resolve) => child.once("exit", (code, signal) => resolve(signal ?? code)));
  return { child, exited, output: () => output };
}

async function stop({ child, exited, output }) {
  child.kill("SIGTERM");
  assert.equal(await exited, 0, output());
}

test("the first worker and the program beside it run", { timeout: 60_000 }, async () => {
  const [first] = blocks.filter(({ mark }) => mark === "run: worker");
  const [program] = blocks.filter(({ mark }) => mark === "run: program");
  const working = await start(first);
  const running = await start(program);
  assert.equal(await running.exited, 0, running.output());
  assert.match(running.output(), /161 sections/);
  assert.match(running.output(), /^end$/m);
  assert.match(running.output(), /2 jobs/);
  await stop(working);
});

test("the worker of several queues runs", { timeout: 60_000 }, async () => {
  const [, several] = blocks.filter(({ mark }) => mark === "run: worker");
  const working = await start(several);
  const jobs = [
    await outlast.queue("mail").publish({ to: "ada" }),
    await outlast.queue("reports").publish({ title: "Tides" }),
    ...(await outlast.queue("counts").publishMany([1, 2])),
  ];
  const [mail, report, count] = await Promise.all(jobs.map((job) => job.result({ timeout: 40 })));
  assert.deepEqual([mail, report], [undefined, "Tides"]);
  assert.match(count, /^1 of \d$/);
  await until(() => working.output().includes("to ada"), "the mail");
  await stop(working);
});

test("the webhook server takes deliveries", { timeout: 60_000 }, async () => {
  const [block] = blocks.filter(({ mark }) => mark === "run: server");
  const port = await freePort();
  const serving = await start({ ...block, code: block.code.replace("3000", port) }, { OUTLAST_SECRET: SECRET });
  await outlast.queues.put("pushed", {
    webhookUrl: `http://127.0.0.1:${port}/hook`,
    signingSecret: SECRET,
    backoff: { type: "fixed", delay: 1 },
  });
  const job = await outlast.queue("pushed").publish({ n: 1 });
  const result = await job.result({ timeout: 40 });
  assert.deepEqual(result.received, { n: 1 });
  serving.child.kill("SIGKILL");
  await serving.exited;
});

test("the tests run", { timeout: 60_000 }, async () => {
  const [block] = blocks.filter(({ mark }) => mark === "run: test");
  const testing = await start(block, {}, ["--test"]);
  assert.equal(await testing.exited, 0, testing.output());
  assert.match(testing.output(), /pass 3/);
});

async function freePort() {
  const probe = createServer();
  await new Promise((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
