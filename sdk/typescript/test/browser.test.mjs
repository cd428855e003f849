// outlast/browser and outlast/react in a real Chromium, on a page of another origin than the server's.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { build } from "esbuild";
import { Outlast, worker } from "outlast";
import { startOutlast } from "outlast/testing";
import puppeteer from "puppeteer-core";
import { pause, until } from "./support/poll.mjs";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const root = new URL("..", import.meta.url).pathname;
let server;
let outlast;
let site;
let browser;
let working;
let running;

/** Waits for `payload.millis`, with progress and output, or until it is cancelled. */
async function handler(job) {
  job.progress(25);
  job.output("Once upon ");
  const end = Date.now() + job.payload.millis;
  while (Date.now() < end && !job.signal.aborted) await pause(50);
  if (job.signal.aborted) return undefined;
  job.output("a time");
  return "done";
}

before(async () => {
  if (!existsSync(CHROMIUM)) return;
  server = await startOutlast();
  outlast = new Outlast(server);
  await outlast.queues.put("page", { visibilityTimeout: 3 });
  working = worker("page", handler, { outlast, signals: false, log: () => {}, concurrency: 10, grace: 0 });
  running = working.run();
  const entryPoints = [`${root}test/handlers/page.jsx`];
  const define = { "process.env.NODE_ENV": '"production"' };
  const { outputFiles } = await build({
    entryPoints,
    bundle: true,
    write: false,
    format: "iife",
    jsx: "automatic",
    define,
  });
  const html = '<!doctype html><div id="root"></div><script src="/page.js"></script>';
  site = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.writeHead(200, { "content-type": isScript ? "text/javascript" : "text/html" });
    response.end(isScript ? outputFiles[0].text : html);
  });
  await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
  browser = await puppeteer.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-timer-throttling"],
  });
});
after(async () => {
  await browser?.close();
  site?.close();
  await working?.stop();
  await running;
  await server?.stop();
});

/** Opens the page on a new job; `block` aborts the page's requests whose URL it matches. */
async function open({ millis, block, token = { can: ["read", "cancel"] } }) {
  const job = await outlast.queue("page").publish({ millis });
  const { token: text } = await job.token(token);
  const page = await browser.newPage();
  const requests = [];
  page.on("request", (request) => request.method() !== "OPTIONS" && requests.push(request.url()));
  if (block) {
    await page.setRequestInterception(true);
    page.on("request", (request) => (block.test(request.url()) ? request.abort() : request.continue()));
  }
  await page.goto(`http://127.0.0.1:${site.address().port}/`);
  const options = { url: server.url, id: job.id, token: text };
  const state = async (name = "one") => JSON.parse(await page.$eval(`#${name} pre`, (element) => element.textContent));
  const show = () => page.evaluate((given) => window.show(given), options).then(() => page.waitForSelector("#one pre"));
  const channels = () => page.evaluate(() => [...window.channels]);
  return { job, page, options, requests, state, show, channels };
}

describe("a page", { skip: existsSync(CHROMIUM) ? false : `${CHROMIUM} is not installed` }, () => {
  test("shows status, progress and output, and its components share one stream", { timeout: 120_000 }, async () => {
    const { page, show, state, requests, channels } = await open({ millis: 6000 });
    await show();
    await until(async () => (await state()).pct === 25, "the progress");
    await until(async () => (await state()).isEnded, "the end");

    const one = await state();
    assert.equal(one.status, "succeeded");
    assert.equal(one.output, "Once upon a time");
    assert.equal(one.pct, 100);
    assert.deepEqual(await state("two"), one);
    assert.ok((await channels()).includes("stream"));
    assert.equal(requests.filter((url) => url.includes("/stream")).length, 1);
    await page.close();
  });

  test("cancels the job", { timeout: 120_000 }, async () => {
    const { page, show, state, job } = await open({ millis: 60_000 });
    await show();
    await until(async () => (await state()).status === "running", "the start");
    await page.click("#two button");
    await until(async () => (await state()).isEnded, "the end");
    assert.equal((await state()).status, "cancelled");
    assert.equal((await job.get()).status, "cancelled");
    await page.close();
  });

  test("polls where streams are blocked, with the same states", { timeout: 120_000 }, async () => {
    const { page, show, state, channels } = await open({ millis: 6000, block: /\/stream/ });
    await show();
    await until(async () => (await channels()).includes("long poll"), "the long poll");
    await until(async () => (await state()).isEnded, "the end");
    assert.equal((await state()).output, "Once upon a time");
    assert.equal((await state()).status, "succeeded");
    await page.close();
  });

  test("polls without a wait where long polls are blocked too", { timeout: 120_000 }, async () => {
    const { page, show, state, channels } = await open({ millis: 14_000, block: /\/stream|wait=/ });
    await show();
    await until(async () => (await channels()).includes("poll"), "the poll");
    await until(async () => (await state()).isEnded, "the end");
    assert.equal((await state()).status, "succeeded");
    await page.close();
  });

  test("a hidden tab has no connection, and catches up when it is shown", { timeout: 120_000 }, async () => {
    const { page, show, state, job, requests } = await open({ millis: 6000 });
    const setVisibility = (visibility) =>
      page.evaluate((value) => {
        Object.defineProperty(document, "visibilityState", { value, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, visibility);
    await show();
    await until(async () => (await state()).channel === "stream", "the stream");
    await setVisibility("hidden");
    const before = requests.length;
    await job.result({ timeout: 30 });
    await pause(500);
    assert.notEqual((await state()).status, "succeeded");
    assert.equal(requests.length, before);
    await setVisibility("visible");
    await until(async () => (await state()).isEnded, "the end");
    assert.equal((await state()).output, "Once upon a time");
    await page.close();
  });

  test("an expired token is replaced", { timeout: 120_000 }, async () => {
    const { page, show, state, job } = await open({ millis: 6000, token: { can: ["read"], expiresIn: 2 } });
    let renewals = 0;
    await page.exposeFunction("newToken", async () => {
      renewals += 1;
      return (await job.token({ can: ["read"] })).token;
    });
    await show();
    await until(async () => (await state()).isEnded, "the end");
    assert.equal((await state()).status, "succeeded");
    assert.equal(renewals, 1);
    await page.close();
  });

  test("a refused token is an error, and a key throws", { timeout: 120_000 }, async () => {
    const { page, options } = await open({ millis: 0 });
    const refused = await page.evaluate(
      (given) => window.iterate({ ...given, token: "olt_wrong" }).catch((error) => `${error.name} ${error.status}`),
      options,
    );
    assert.equal(refused, "WatchRefused 401");
    const states = await page.evaluate((given) => window.iterate(given), options);
    assert.equal(states.at(-1), "succeeded");
    const message = await page.evaluate((given) => window.withKey(given), { ...options, token: server.key });
    assert.match(message, /a key must never be here/);
    await page.close();
  });
});
