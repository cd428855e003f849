// Opens a page in a real browser, headless, evaluates an expression in it and prints what it resolves to as JSON. Speaks
// the browser's own protocol over two pipes, so nothing has to be installed but the browser.
// Usage: node browser.mjs CHROMIUM URL EXPRESSION

import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [program, url, expression] = process.argv.slice(2);
const profile = await mkdtemp(join(tmpdir(), "outlast-browser-"));
const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"];
flags.push("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe");
const browser = spawn(program, [...flags, `--user-data-dir=${profile}`, "about:blank"], {
  stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
});
const [, , , commands, messages] = browser.stdio;
const ended = new Promise((resolve) => browser.on("exit", resolve));
const died = ended.then((code) => Promise.reject(new Error(`the browser has ended with ${code}`)));
// It ends in any case; only those who wait for something else meanwhile are to hear of it.
died.catch(() => {});

const waiting = new Map();
const heard = [];
let unread = "";
messages.setEncoding("utf8").on("data", (text) => {
  const parts = (unread + text).split("\0");
  unread = parts.pop();
  for (const message of parts.map((part) => JSON.parse(part))) {
    if (message.id) waiting.get(message.id)?.(message);
    else heard.push(message.method);
  }
});

let last = 0;
function call(method, params = {}, sessionId = undefined) {
  const id = ++last;
  commands.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
  return new Promise((resolve, reject) => {
    waiting.set(id, ({ result, error }) => (error ? reject(new Error(`${method}: ${error.message}`)) : resolve(result)));
    died.catch(reject);
  });
}

try {
  const { targetId } = await call("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
  await call("Page.enable", {}, sessionId);
  heard.length = 0;
  await call("Page.navigate", { url }, sessionId);
  while (!heard.includes("Page.loadEventFired")) {
    await Promise.race([new Promise((resolve) => messages.once("data", resolve)), died]);
  }
  const wish = { expression, awaitPromise: true, returnByValue: true };
  const { result, exceptionDetails } = await call("Runtime.evaluate", wish, sessionId);
  if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
  console.log(JSON.stringify(result.value));
  // It ends its own processes in order; what takes too long is killed below.
  call("Browser.close").catch(() => {});
  await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 5000).unref())]);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  browser.kill("SIGKILL");
  await ended;
  await rm(profile, { recursive: true, force: true });
}
