// Webhooks: the real server delivers to the real frameworks.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import express5 from "express";
import fastifyFactory from "fastify";
import { Hono } from "hono";
import { Defer, NotRetryable, Outlast } from "outlast";
import { express } from "outlast/express";
import { fastifyPlugin } from "outlast/fastify";
import { hono } from "outlast/hono";
import { nextHandler } from "outlast/next";
import { delivery, signDelivery, startOutlast } from "outlast/testing";
import { parseCallback, webhook } from "outlast/webhook";
import { Webhook } from "standardwebhooks";
import { pause, until } from "./support/poll.mjs";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
let server;
let outlast;
let hasMode;
before(async () => {
  server = await startOutlast();
  outlast = new Outlast(server);
  hasMode = (await outlast.transport.serverVersion()) !== null;
});
after(() => server?.stop());

/** Serves web requests with plain Node. */
async function serveWeb(handle) {
  const http = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const web = new Request(`http://localhost${request.url}`, {
      method: "POST",
      headers: request.headers,
      body: Buffer.concat(chunks),
    });
    const answer = await handle(web);
    response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(Buffer.from(await answer.arrayBuffer()));
  });
  return listen(http);
}

async function listen(http) {
  await new Promise((resolve) => http.listen(0, "127.0.0.1", resolve));
  const stop = () =>
    new Promise((resolve) => {
      http.close(resolve);
      http.closeAllConnections();
    });
  return { url: `http://127.0.0.1:${http.address().port}/hook`, stop };
}

const frameworks = {
  "a web request": (hook) => serveWeb((request) => hook(request)),
  express: (hook) => {
    const app = express5();
    app.post("/hook", express(hook));
    app.use(express5.json());
    return listen(createServer(app));
  },
  "express with raw()": (hook) => {
    const app = express5();
    app.use(express5.raw({ type: "*/*" }));
    app.post("/hook", express(hook));
    return listen(createServer(app));
  },
  async fastify(hook) {
    const app = fastifyFactory();
    app.register(fastifyPlugin(hook, { path: "/hook" }));
    app.post("/json", async (request) => request.body);
    await app.listen({ port: 0, host: "127.0.0.1" });
    const parsed = await app.inject({ method: "POST", url: "/json", payload: { other: "routes keep their parsers" } });
    assert.deepEqual(parsed.json(), { other: "routes keep their parsers" });
    return { url: `http://127.0.0.1:${app.server.address().port}/hook`, stop: () => app.close() };
  },
  hono: (hook) => {
    const app = new Hono();
    app.post("/hook", hono(hook));
    return serveWeb((request) => app.fetch(request));
  },
  "next route handler": (hook) => {
    const POST = nextHandler(hook, { waitUntil: () => {} });
    return serveWeb((request) => POST(request));
  },
};

let number = 0;
async function withHook(frame, handler, settings, run, options = {}) {
  const hook = webhook({ secret: SECRET, outlast, log: () => {}, ...options }, handler);
  const site = await frame(hook);
  number += 1;
  const queue = `hook-${number}`;
  await outlast.queues.put(queue, {
    webhookUrl: site.url,
    signingSecret: SECRET,
    backoff: { type: "fixed", delay: 0 },
    ...settings,
  });
  try {
    await run(outlast.queue(queue), site, hook);
  } finally {
    await hook.stop();
    await site.stop();
  }
}

describe("frameworks", { concurrency: 3 }, () => {
  for (const [name, frame] of Object.entries(frameworks)) {
    for (const mode of ["standard", "ack"]) {
      test(`${name}, ${mode} mode`, async () => {
        await withHook(
          frame,
          (job) => ({ twice: job.payload.n * 2, attempt: job.attempt }),
          { mode },
          async (queue) => {
            const job = await queue.publish({ n: 21, text: "größer" });
            assert.deepEqual(await job.result({ timeout: 30 }), { twice: 42, attempt: 1 });
          },
        );
      });
    }
  }
});

describe("outcomes", { concurrency: 3 }, () => {
  test("a throw is a failed attempt, and the next delivery a new one", async () => {
    const handler = (job) => {
      if (job.attempt === 1) throw new Error("it broke");
      return job.attempt;
    };
    await withHook(frameworks["a web request"], handler, { mode: "standard" }, async (queue) => {
      const job = await queue.publish(1);
      assert.equal(await job.result({ timeout: 30 }), 2);
      assert.match((await job.get()).attempts[0].error ?? "", /.*/);
    });
  });

  test("NotRetryable is a dead letter at once", async () => {
    const handler = () => {
      throw new NotRetryable("no such address");
    };
    await withHook(frameworks.express, handler, { mode: "standard" }, async (queue) => {
      const job = await queue.publish(1);
      await assert.rejects(job.result({ timeout: 30 }), { name: "JobFailed" });
      assert.equal((await job.get()).attempt, 1);
    });
  });

  test("Defer is free", async () => {
    const handler = (job) => {
      if (job.deferCount === 0) throw new Defer(1);
      return "later";
    };
    await withHook(frameworks.express, handler, { mode: "standard" }, async (queue) => {
      const job = await queue.publish(1);
      assert.equal(await job.result({ timeout: 30 }), "later");
      assert.equal((await job.get()).attempt, 1);
    });
  });

  test("work that takes longer than the answer is reported later, and kept meanwhile", async () => {
    const handler = async (job) => {
      job.progress(50);
      await pause(4000);
      return "late";
    };
    const settings = { mode: "standard", ackTimeout: 2, webhookTimeout: 5 };
    await withHook(
      frameworks.express,
      handler,
      settings,
      async (queue) => {
        const job = await queue.publish(1);
        assert.equal(await job.result({ timeout: 30 }), "late");
        assert.equal((await job.get()).attempt, 1);
      },
      { answerWithin: "500ms" },
    );
  });

  test("sections survive a failed delivery", async () => {
    const worked = [];
    const handler = async (job) => {
      const parts = await job.eachSection(["a", "b"], (name) => {
        worked.push(name);
        return `${name}${job.attempt}`;
      });
      if (job.attempt === 1) throw new Error("it broke");
      return parts;
    };
    await withHook(frameworks.express, handler, { mode: "ack" }, async (queue) => {
      const job = await queue.publish(1);
      assert.deepEqual(await job.result({ timeout: 30 }), ["a1", "b1"]);
      assert.deepEqual(worked, ["a", "b"]);
    });
  });

  test("a result above 256 KiB is uploaded", async () => {
    await withHook(
      frameworks.express,
      () => "x".repeat(300_000),
      { mode: "standard" },
      async (queue) => {
        const job = await queue.publish(1);
        await assert.rejects(job.result({ timeout: 30 }), { name: "ResultIsFile" });
      },
    );
  });
});

describe("deliveries that are not genuine", () => {
  const hook = () => webhook({ secret: SECRET, outlast, log: () => {} }, () => 1);
  const post = (one, { headers, body }) => one(new Request("http://localhost/hook", { method: "POST", headers, body }));

  test("a wrong signature, another body and an old time get 401", async () => {
    const one = hook();
    const genuine = await signDelivery(SECRET, delivery());
    const other = await signDelivery("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", delivery());
    const old = await signDelivery(SECRET, delivery(), { now: Date.now() / 1000 - 400 });

    assert.equal((await post(one, other)).status, 401);
    assert.equal((await post(one, { ...genuine, body: `${genuine.body} ` })).status, 401);
    assert.equal((await post(one, old)).status, 401);
    assert.equal((await post(one, { headers: {}, body: "{}" })).status, 401);
    await one.stop();
  });

  test("a redelivery while the work runs hands over the lease, and is not worked on twice", async () => {
    let calls = 0;
    const handler = async () => {
      calls += 1;
      await pause(300);
      return "once";
    };
    const one = webhook({ secret: SECRET, outlast, log: () => {} }, handler);
    const first = delivery({ mode: "ack" });
    const again = { ...first, lease: "f".repeat(32), attempt: 2 };

    const answers = [
      await post(one, await signDelivery(SECRET, first, { id: "same" })),
      await post(one, await signDelivery(SECRET, again, { id: "same" })),
    ];
    await pause(500);
    answers.push(await post(one, await signDelivery(SECRET, again, { id: "same" })));

    assert.deepEqual(
      answers.map(({ status }) => status),
      [202, 202, 202],
    );
    assert.equal(calls, 1);
    await one.stop();
  });

  test("our signatures and those of the standardwebhooks package agree", async () => {
    const standard = new Webhook(SECRET);
    const ours = await signDelivery(SECRET, { n: 1, text: "größer" });
    standard.verify(ours.body, ours.headers);

    const now = new Date();
    const body = JSON.stringify({ id: "1", status: "succeeded", result: "größer" });
    const headers = {
      "webhook-id": "msg_1",
      "webhook-timestamp": String(Math.floor(now.getTime() / 1000)),
      "webhook-signature": standard.sign("msg_1", now, body),
    };
    assert.equal((await parseCallback(SECRET, headers, body)).status, "succeeded");
    await assert.rejects(parseCallback("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", headers, body), { name: "NotSigned" });
  });

  test("a body that a parser has read is an error that names the line", async () => {
    const app = express5();
    const one = hook();
    app.use(express5.json());
    app.post("/hook", express(one));
    let message;
    app.use((error, _request, response, _next) => {
      message = error.message;
      response.status(500).end();
    });
    const site = await listen(createServer(app));
    const { headers, body } = await signDelivery(SECRET, delivery());

    assert.equal((await fetch(site.url, { method: "POST", headers, body })).status, 500);
    assert.match(message, /above app\.use\(express\.json\(\)\)/);
    await site.stop();
    await one.stop();
  });
});

test("serverless without waitUntil is refused at start", () => {
  const hook = webhook({ secret: SECRET, outlast }, () => 1);
  process.env.VERCEL = "1";
  try {
    assert.throws(() => nextHandler(hook), /waitUntil/);
    assert.throws(() => express(hook), /waitUntil/);
    assert.equal(typeof nextHandler(hook, { waitUntil: () => {} }), "function");
  } finally {
    delete process.env.VERCEL;
  }
});

test("a webhook without a secret is refused at start", () => {
  assert.throws(() => webhook({ secret: undefined, outlast }, () => 1), /secret/);
});

test("callbacks of the server are genuine", async () => {
  const { signingSecret } = await outlast.queues.rotateSecret("_callbacks").catch(() => ({}));
  let callback;
  const site = await serveWeb(async (request) => {
    const body = new Uint8Array(await request.arrayBuffer());
    callback = await parseCallback(secret, request.headers, body).catch((error) => error);
    return new Response(null, { status: 204 });
  });
  await outlast.queues.put("calling");
  const job = await outlast.queue("calling").publish(1, { callbackUrl: site.url });
  const secret = signingSecret ?? (await outlast.queues.rotateSecret("_callbacks")).signingSecret;
  await job.cancel();
  await until(() => callback, "the callback");

  assert.equal(callback.id, job.id);
  assert.equal(callback.status, "cancelled");
  await site.stop();
});
