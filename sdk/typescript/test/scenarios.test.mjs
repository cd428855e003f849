// Runs sdk/scenarios.yaml; its first lines describe the format.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { after, before, describe, test } from "node:test";
import { Defer, item, NotRetryable, Outlast, Refused, worker } from "outlast";
import { startOutlast } from "outlast/testing";
import { parse } from "yaml";
import { Variables } from "./support/match.mjs";
import { matches, startProxy } from "./support/proxy.mjs";

const { scenarios } = parse(readFileSync(new URL("../../scenarios.yaml", import.meta.url), "utf8"));
const IGNORED = [
  "GET /livez",
  "POST /v1/heartbeats",
  "POST /v1/progress",
  "POST /v1/receive",
  "POST /v1/queues/*/receive",
];

let server;
let admin;
before(async () => {
  server = await startOutlast();
  admin = new Outlast(server);
});
after(() => server?.stop());

describe("scenarios", { concurrency: 4 }, () => {
  scenarios.forEach((scenario, index) =>
    test(scenario.name, { timeout: 60_000 }, (context) => run(scenario, index, context)),
  );
});

async function run(scenario, index, context) {
  if (scenario.needs === "version" && (await admin.transport.serverVersion()) === null)
    return context.skip("the server has no version");
  const queue = `scenario-${index}`;
  await admin.queues.put(queue, scenario.queue ?? {});
  const variables = new Variables();
  variables.set("queue", queue);
  const proxy = await startProxy(server.url, scenario.faults);
  const isRefusing = scenario.faults?.some((fault) => fault.refuse);
  const url = isRefusing ? await closedPort() : proxy.url;
  const scene = { variables, queue, outlast: new Outlast({ ...scenario.client, url, key: server.key }) };
  try {
    for (const call of scenario.calls) await make(call, scene);
    if (scenario.requests) compareRequests(scenario, proxy.requests, variables);
    if (scenario.jobs) variables.match(scenario.jobs, await jobsOf(queue), "jobs");
  } finally {
    await proxy.stop();
  }
}

async function make({ call, returns, raises, as, ...given }, scene) {
  const args = scene.variables.fill(given);
  let result;
  try {
    result = await calls[call](args, scene);
  } catch (error) {
    if (!raises) throw error;
    const { class: name, ...attributes } = raises;
    assert.equal(error.name, name, error.stack);
    scene.variables.match(attributes, error, "the error");
    return;
  }
  assert.equal(raises, undefined, `${call} has raised nothing`);
  if (as) scene.variables.set(as, result.id);
  if (returns) scene.variables.match(returns, result, `the result of ${call}`);
}

const shown = (job) => ({ id: job.id, queue: job.queue, status: job.status, duplicate: job.duplicate });

const calls = {
  publish: async ({ payload, ...options }, { outlast, queue }) =>
    shown(await outlast.queue(queue).publish(payload, options)),
  async publishMany({ items, size }, { outlast, queue }) {
    const answers = await outlast.queue(queue).publishMany(items.map(item), size ? { size } : {});
    return answers.map((one) => (one instanceof Refused ? { class: one.name, code: one.code } : shown(one)));
  },
  get: ({ job }, { outlast }) => outlast.jobs.job(job).get(),
  async result({ job, timeout }, { outlast }) {
    return { value: await outlast.jobs.job(job).result({ timeout }) };
  },
  async events({ job }, { outlast }) {
    const events = [];
    for await (const event of outlast.jobs.job(job).events()) if (event.type !== "progress") events.push(event);
    return events;
  },
  async list(filter, { outlast }) {
    return (await outlast.jobs.list({ ...filter, limit: 2 }).all()).map((job) => job.view);
  },
  cancel: ({ job }, { outlast }) => outlast.jobs.job(job).cancel(),
  replay: ({ job }, { outlast }) => outlast.jobs.job(job).replay(),
  request: ({ method, path, body }, { outlast }) => outlast.request(method, path, { body }),
  async work({ job, until, handler, cancelWhenRunning }, { outlast, queue }) {
    const working = worker(queue, (running) => perform(handler, running), { outlast, signals: false, log: () => {} });
    const ended = working.run();
    const watched = admin.jobs.job(job);
    const deadline = Date.now() + 30_000;
    let cancelled = false;
    for (let view = await watched.get(); !until.includes(view.status); view = await watched.get()) {
      assert.ok(Date.now() < deadline, `job ${job} is ${view.status} after 30 s`);
      if (cancelWhenRunning && view.status === "running" && !cancelled) {
        cancelled = true;
        await watched.cancel();
      }
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
    await working.stop();
    await ended;
  },
};

const valueOf = (name) => ({ section: name });

async function perform(steps, job) {
  for (const { attempt, ...step } of steps) {
    if (attempt !== undefined && attempt !== job.attempt) continue;
    const [[verb, value]] = Object.entries(step);
    if (verb === "return") return value;
    if (verb === "returnNothing") return undefined;
    if (verb === "returnSections") return job.eachSection(value, valueOf);
    if (verb === "returnCheckpoint") return job.checkpoint.load();
    if (verb === "returnBig") return "x".repeat(value);
    if (verb === "throw") throw new Error(value);
    if (verb === "notRetryable") throw new NotRetryable(value);
    if (verb === "defer") throw new Defer(value.after, value);
    if (verb === "wait") await new Promise((resolve) => job.signal.addEventListener("abort", resolve, { once: true }));
    else if (verb === "section") await job.section(value, valueOf);
    else if (verb === "checkpoint") await job.checkpoint.save(value.data, value.schemaVersion);
    else job[verb](value);
  }
  return undefined;
}

function compareRequests({ requests, ignore = [] }, recorded, variables) {
  const isIgnored = ({ request }) => [...IGNORED, ...ignore].some((pattern) => matches(pattern, ...request.split(" ")));
  const actual = recorded.filter((one) => !isIgnored(one));
  assert.deepEqual(
    actual.map(({ request }) => request),
    requests.map(({ request }) => variables.fill(request)),
    "the requests",
  );
  requests.forEach(({ body, headers }, index) => {
    if (body !== undefined) variables.match(body, actual[index].body, `the body of request ${index + 1}`);
    if (headers !== undefined) variables.match(headers, actual[index].headers, `the headers of request ${index + 1}`);
  });
}

async function jobsOf(queue) {
  const jobs = await admin.jobs.list({ queue }).all();
  return Promise.all(jobs.reverse().map((job) => job.get()));
}

async function closedPort() {
  const probe = createServer();
  await new Promise((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return `http://127.0.0.1:${port}`;
}
