// Starts the keeper in a thread (Node, Bun) or on the main loop (elsewhere), and passes its notices to the jobs.

import { nodeModule, processLike } from "../runtime.js";
import type { Transport } from "../transport.js";
import { keeperLoop, type HeldJob, type KeeperCommand, type KeeperLink, type KeeperNotice } from "./keeper-loop.js";
import { keeperSource } from "./keeper-source.js";

export interface Keeper {
  hold(jobs: HeldJob[]): void;
  release(ids: string[]): void;
  progress(id: string, report: object): void;
  stop(): Promise<void>;
}

const TICK_MILLIS = 1000;

export async function startKeeper(
  transport: Transport,
  maxBlockedMillis: number,
  notify: (notice: KeeperNotice) => void,
): Promise<Keeper> {
  const canWait = (await transport.serverVersion()) !== null;
  const link: KeeperLink = { ...transport.credentials, canWait, maxBlockedMillis };
  // A fetch of the caller's cannot be passed to another thread.
  if (transport.hasOwnFetch || !hasThreads()) return onMainLoop(transport, link, notify);
  return inThread(link, notify);
}

function hasThreads(): boolean {
  const isDeno = "Deno" in globalThis;
  return !isDeno && Boolean(processLike?.versions?.["node"]) && typeof SharedArrayBuffer !== "undefined";
}

async function inThread(link: KeeperLink, notify: (notice: KeeperNotice) => void): Promise<Keeper> {
  const { Worker } = await nodeModule<typeof import("node:worker_threads")>("worker_threads");
  const ticks = new SharedArrayBuffer(4);
  const counter = new Int32Array(ticks);
  const thread = new Worker(keeperSource, { eval: true, workerData: { link, ticks } });
  thread.on("message", notify);
  thread.on("error", (error) => notify({ type: "trouble", message: `the keeper has failed: ${error.message}` }));
  const clock = setInterval(() => Atomics.add(counter, 0, 1), TICK_MILLIS);
  clock.unref();
  // No job is received before the thread can keep it: a handler may block this loop at once.
  await new Promise<void>((resolve, reject) => thread.once("online", resolve).once("error", reject));
  const exited = new Promise<void>((resolve) => thread.once("exit", () => resolve()));
  // A job in work keeps the process alive, also one that only waits for its signal; the thread alone does not.
  const ids = new Set<string>();
  thread.unref();
  const send = (command: KeeperCommand) => {
    thread.postMessage(command);
    if (command.type === "hold") for (const { id } of command.jobs) ids.add(id);
    if (command.type === "release") for (const id of command.ids) ids.delete(id);
    if (ids.size > 0) thread.ref();
    else thread.unref();
  };
  return control(send, async () => {
    clearInterval(clock);
    send({ type: "stop" });
    await Promise.race([exited, new Promise((resolve) => setTimeout(resolve, 500))]);
    await thread.terminate();
  });
}

function onMainLoop(transport: Transport, link: KeeperLink, notify: (notice: KeeperNotice) => void): Keeper {
  // On the main loop a beat is itself the proof that the loop is not blocked.
  let ticks = 0;
  const loop = keeperLoop(link, { fetch: transport.rawFetch, ticks: () => (ticks += 1), notify });
  return control(
    (command) => loop.command(command),
    async () => loop.command({ type: "stop" }),
  );
}

function control(send: (command: KeeperCommand) => void, stop: () => Promise<void>): Keeper {
  return {
    hold: (jobs) => send({ type: "hold", jobs }),
    release: (ids) => send({ type: "release", ids }),
    progress: (id, report) => send({ type: "progress", id, report }),
    stop,
  };
}
