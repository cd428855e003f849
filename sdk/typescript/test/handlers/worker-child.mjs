// A worker in a process of its own, for tests that kill, stop and block it. QUEUE names its queue, ROLE its handler; LOG is a
// file that gets one line per step.

import { appendFileSync } from "node:fs";
import { worker } from "outlast";

const { QUEUE, ROLE, LOG, KILL_AT, CONCURRENCY, GRACE } = process.env;
const log = (line) => appendFileSync(LOG, `${line}\n`);
const die = () => process.kill(process.pid, "SIGKILL");
const pause = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

const roles = {
  /** 161 sections; dies in the middle of one, or right after it was stored. */
  async report(job) {
    const names = Array.from({ length: 161 }, (_, index) => `section-${String(index + 1).padStart(3, "0")}`);
    const [place, moment] = (KILL_AT ?? "").split(" ");
    let wasStored = false;
    const parts = await job.eachSection(names, async (name) => {
      if (wasStored) die();
      log(name);
      if (name === `section-${place}` && moment === "in-work") die();
      wasStored = name === `section-${place}` && moment === "stored";
      return { name, attempt: job.attempt };
    });
    return { sections: parts.length };
  },
  /** Burns the processor without a pause for the loop. */
  block(job) {
    log(`start ${job.attempt}`);
    const end = Date.now() + job.payload.millis;
    while (Date.now() < end);
    return { attempt: job.attempt };
  },
  /** Works on until it is let go, then tries to store something. */
  async late(job) {
    log(`start ${job.attempt}`);
    await new Promise((resolve) => job.signal.addEventListener("abort", resolve, { once: true }));
    log(`stopped: ${job.stopReason}`);
    await job.section("late", () => "a zombie's work").catch((error) => log(`refused: ${error.name}`));
    return "late";
  },
  async load(job) {
    log(`start ${job.id}`);
    await pause(job.payload.millis);
    log(`end ${job.id}`);
    return 1;
  },
  /** Does not end when it is asked to. */
  async stubborn(job) {
    log("start");
    await pause(60_000);
    return job.id;
  },
};

const options = { concurrency: Number(CONCURRENCY ?? 1), grace: GRACE ?? "25s", log: (line) => log(`log: ${line}`) };
const working = worker(QUEUE, roles[ROLE], options);
console.log("ready");
await working.run();
log("exit");
