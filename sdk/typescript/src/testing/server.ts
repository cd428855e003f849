// Starts the real server for tests: own folder, free port, stopped with `stop()`.

import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { seconds, sleep, type Duration } from "../duration.js";

export interface StartOptions {
  /** Path of the binary; default: OUTLAST_BIN, else `outlast` on the PATH. */
  binary?: string;
  /** `manual`: time goes on only by `advance()`. */
  clock?: "manual";
  /** Further arguments of `outlast dev`. */
  args?: string[];
}

export interface OutlastServer {
  url: string;
  key: string;
  pid: number;
  /** Moves a manual clock on. */
  advance(by: Duration): Promise<void>;
  /** Ends the process without a chance to tidy up; `start()` runs it again on the same folder and port. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Stops the process and removes the folder. */
  stop(): Promise<void>;
}

const START_SECONDS_MAX = 60;

export async function startOutlast(options: StartOptions = {}): Promise<OutlastServer> {
  const folder = await mkdtemp(join(tmpdir(), "outlast-test-"));
  const listen = `127.0.0.1:${await freePort()}`;
  const args = [
    "dev",
    "--data",
    folder,
    "--listen",
    listen,
    ...(options.clock ? ["--clock", options.clock] : []),
    ...(options.args ?? []),
  ];
  const binary = options.binary ?? process.env["OUTLAST_BIN"] ?? "outlast";
  let child: ChildProcess;

  const server: OutlastServer = {
    url: `http://${listen}`,
    key: "",
    pid: 0,
    async start() {
      child = spawn(binary, args, { stdio: ["ignore", "ignore", "pipe"] });
      await ready(child, server.url);
      server.pid = child.pid!;
      server.key = (await readFile(join(folder, "admin.key"), "utf8")).trim();
    },
    async advance(by) {
      const headers = { authorization: `Bearer ${server.key}` };
      const body = JSON.stringify({ advance: seconds(by, "by") });
      const answer = await fetch(`${server.url}/v1/dev/clock`, { method: "POST", headers, body });
      if (!answer.ok) throw new Error(`the clock was not moved: ${answer.status} ${await answer.text()}`);
    },
    kill: () => end(child, "SIGKILL"),
    async stop() {
      await end(child, "SIGTERM");
      await rm(folder, { recursive: true, force: true });
    },
  };
  await server.start();
  return server;
}

/** Waits until the server takes requests; fails with what the process has written. */
async function ready(child: ChildProcess, url: string): Promise<void> {
  let stderr = "";
  let failure: Error | undefined;
  child.stderr!.on("data", (chunk: Buffer) => (stderr = (stderr + chunk.toString()).slice(-4000)));
  child.once("error", (error) => (failure = error));
  const deadline = Date.now() + START_SECONDS_MAX * 1000;
  for (;;) {
    if (failure) throw new Error(`outlast cannot be started; set OUTLAST_BIN: ${failure.message}`);
    if (child.exitCode !== null) throw new Error(`outlast has ended with ${child.exitCode}: ${stderr}`);
    if (Date.now() > deadline) throw new Error(`outlast has not become ready in ${START_SECONDS_MAX} s: ${stderr}`);
    const answer = await fetch(`${url}/readyz`).catch(() => undefined);
    await answer?.arrayBuffer();
    if (answer?.ok) return;
    await sleep(20);
  }
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill(signal);
  // A stop that takes too long is not the test's concern.
  const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
  await ended;
  clearTimeout(timer);
}

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
