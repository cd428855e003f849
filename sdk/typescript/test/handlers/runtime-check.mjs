// Publishes, works and verifies on any runtime; prints "ok". The server's URL and key are its arguments.

import { Outlast, Unavailable, worker } from "outlast";
import { verify } from "outlast/webhook";

const [url, key, queue] = (globalThis.Deno?.args ?? process.argv.slice(2)).slice(0, 3);
const outlast = new Outlast({ url, key });
const check = (condition, text) => {
  if (!condition) throw new Error(text);
};

const job = await outlast.queue(queue).publish({ n: 21 });
const handler = async (running) => {
  const parts = await running.eachSection(["a", "b"], (name) => name + running.payload.n);
  running.progress(50);
  // Longer than a third of the lease, so that the keeper is needed; without a pause, so that it has to be a thread.
  if (!globalThis.Deno) for (const end = Date.now() + 4500; Date.now() < end;);
  return parts;
};
const working = worker(queue, handler, { outlast, signals: false });
const running = working.run();
check(JSON.stringify(await job.result({ timeout: 60 })) === '["a21","b21"]', "the result");
check((await job.get()).attempt === 1, "the lease was lost");
const events = [];
for await (const event of job.events()) events.push(event.type);
check(events.at(-1) === "end", "the events");
await working.stop();
await running;

const many = await outlast.queue(queue).publishMany([1, 2, 3]);
check((await outlast.jobs.list({ queue, status: "queued" }).all()).length === many.length, "the list");
const refused = await new Outlast({ url: "http://127.0.0.1:61234", key, retries: 0 })
  .queue(queue)
  .publish(1)
  .catch((error) => error);
check(refused instanceof Unavailable, `a closed port is ${refused}`);
const headers = {
  "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
  "webhook-timestamp": "1614265330",
  "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
};
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
await verify(secret, headers, '{"test": 2432232314}', { now: 1614265330 });
console.log("ok");
