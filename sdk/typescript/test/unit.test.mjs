// The pure parts, and the tables that must agree with the server's documents and with sdk/scenarios.yaml.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import * as sdk from "outlast";
import { verify } from "outlast/webhook";
import { parse } from "yaml";
import { seconds } from "../dist/esm/duration.js";
import { refusal } from "../dist/esm/errors.js";
import { jsonText } from "../dist/esm/json-text.js";
import { backoff, nextTry, retryAfter } from "../dist/esm/retry.js";
import { portableSha256 } from "../dist/esm/sha256.js";
import { keeperSource } from "../scripts/inline-keeper.mjs";
import { wireTypes } from "../scripts/gen-wire.mjs";
import { operations, withoutMethod } from "./support/operations.mjs";

const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
const shared = parse(read("../../scenarios.yaml"));

describe("tables", () => {
  test("every code of ERRORS.md has its class", () => {
    const documented = [...read("../../../docs/reference/ERRORS.md").matchAll(/^\| `(\w+)` \| (\d{3}) \|/gm)];
    assert.ok(documented.length > 40);
    for (const [, code, status] of documented) {
      const error = refusal({ code, status: Number(status), detail: "" });
      assert.equal(error.name, shared.errors[code], `${code}: scenarios.yaml says ${shared.errors[code]}`);
      assert.ok(error instanceof sdk.Refused && error instanceof sdk[error.name]);
    }
    assert.deepEqual(Object.keys(shared.errors).sort(), documented.map(([, code]) => code).sort());
  });

  test("a code that is not known has the class of its status", () => {
    for (const [status, name] of Object.entries(shared.statuses)) {
      assert.equal(refusal({ code: "of_tomorrow", status: Number(status), detail: "" }).name, name);
    }
  });

  test("durations", () => {
    for (const { in: given, seconds: expected } of shared.durations) {
      if (expected === null) assert.throws(() => seconds(given, "delay"), /^TypeError: delay is seconds/);
      else assert.equal(seconds(given, "delay"), expected);
    }
  });

  for (const { name, secret, headers, body, now, genuine } of shared.signatures) {
    test(`signature: ${name}`, async () => {
      const checked = verify(secret, headers, body, { now });
      if (genuine) assert.equal(await checked, headers["webhook-id"]);
      else await assert.rejects(checked, { name: "NotSigned" });
    });
  }

  test("every operation of the API has a method, or a reason why not", () => {
    const { paths } = JSON.parse(read("../../../docs/reference/openapi.json"));
    const documented = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods)
        .filter((method) => ["get", "put", "post", "patch", "delete"].includes(method))
        .map((method) => `${method.toUpperCase()} ${path}`),
    );
    const listed = [...Object.keys(operations), ...Object.keys(withoutMethod)];
    assert.deepEqual(
      documented.filter((one) => !listed.includes(one)),
      [],
      "operations without a method",
    );
    // A source file names the path of each method, with its variables replaced.
    const sources = ["job", "job-events", "queue", "client", "resources", "download", "transport"]
      .concat([
        "worker/worker",
        "worker/reports",
        "worker/outcomes",
        "worker/upload",
        "worker/keeper-loop",
        "testing/server",
      ])
      .map((name) => read(`../src/${name}.ts`))
      .join("\n");
    for (const [operation, text] of Object.entries(operations)) {
      assert.ok(sources.includes(text), `${operation}: no source has ${text}`);
    }
  });

  test("generated files are up to date", async () => {
    assert.equal(read("../src/wire.ts"), await wireTypes(), "src/wire.ts: run make gen");
    assert.equal(read("../src/worker/keeper-source.ts"), await keeperSource(), "keeper-source.ts: run make gen");
  });

  test("the version is the package's", () => {
    const { version } = JSON.parse(read("../package.json"));
    assert.ok(read("../src/transport.ts").includes(`SDK_VERSION = "${version}"`));
  });
});

describe("retries", () => {
  const rule = { isRepeatable: true, retries: 3 };
  const busy = (after, status = 503) => refusal({ code: "overloaded", status, detail: "", retryAfter: after });

  test("waits lie between 0.1 s and 5 s and grow", () => {
    for (let tries = 1; tries < 30; tries += 1) {
      const millis = backoff(tries);
      assert.ok(millis >= 100 && millis <= 5000, `${millis}`);
    }
    assert.ok(Math.max(...Array.from({ length: 50 }, () => backoff(1))) <= 100);
    assert.ok(Math.min(...Array.from({ length: 50 }, () => backoff(9))) >= 2500);
  });

  test("a Retry-After is waited for, up to 30 s", () => {
    assert.ok(nextTry(busy(2), 1, rule) >= 2000);
    assert.notEqual(nextTry(busy(30), 1, rule), null);
    assert.equal(nextTry(busy(31), 1, rule), null);
    assert.notEqual(nextTry(busy(31), 1, { ...rule, retries: Infinity }), null);
    assert.equal(nextTry(busy(undefined, 400), 1, rule), null);
    assert.equal(nextTry(busy(1), 4, rule), null);
  });

  test("a Retry-After is seconds or a date", () => {
    assert.equal(retryAfter("7", 0), 7);
    assert.equal(retryAfter("Thu, 01 Jan 1970 00:00:10 GMT", 4000), 6);
    assert.equal(retryAfter("soon", 0), undefined);
    assert.equal(retryAfter(null, 0), undefined);
  });
});

test("texts of members are found unchanged", () => {
  const text = ' { "a\\"b" : [ 1 , {"x":"}]"}, 1e400 ] , "payload" :\t{"n": 12345678901234567890} , "z":null }';
  assert.equal(jsonText(text, ["payload"]), '{"n": 12345678901234567890}');
  assert.equal(jsonText(text, ["payload", "n"]), "12345678901234567890");
  assert.equal(jsonText(text, ['a"b', 1, "x"]), '"}]"');
  assert.equal(jsonText(text, ['a"b', 2]), "1e400");
  assert.equal(jsonText(text, ["z"]), "null");
  assert.equal(jsonText(text, ['a"b', 3]), undefined);
  assert.equal(jsonText(text, ["none"]), undefined);
});

test("the portable SHA-256 agrees with Node's", () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 100_003]) {
    const bytes = Uint8Array.from({ length }, (_, index) => (index * 31) & 255);
    const digest = portableSha256();
    for (let at = 0; at < length; at += 37) digest.update(bytes.subarray(at, at + 37));
    assert.equal(digest.hex(), createHash("sha256").update(bytes).digest("hex"), `${length} bytes`);
  }
});

test("a client without a key, and a batch of a wrong size, are refused before a request", async () => {
  assert.throws(() => new sdk.Outlast({ url: "http://127.0.0.1:1", key: "" }), /there is no key/);
  const queue = new sdk.Outlast({ url: "http://127.0.0.1:1", key: "ol_x" }).queue("q");
  await assert.rejects(queue.publishMany([1], { size: 0 }), /size is a whole number from 1 to 1000/);
  await assert.rejects(queue.publish(1, { signal: AbortSignal.abort(new Error("given up")) }), /given up/);
});
