// The package as users get it: checked, packed, installed into an empty project, imported both ways, small enough.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { publint } from "publint";
import { apiSnapshot } from "../scripts/api-snapshot.mjs";

const run = promisify(execFile);
const root = new URL("..", import.meta.url).pathname;
let folder;
let tarball;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "outlast-package-"));
  // dist/ is built before the tests; --ignore-scripts keeps the other tests from losing it meanwhile.
  const { stdout } = await run("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", folder], {
    cwd: root,
  });
  tarball = join(folder, JSON.parse(stdout)[0].filename);
});
after(() => rm(folder, { recursive: true, force: true }));

test("publint finds nothing", async () => {
  const { messages } = await publint({ pkgDir: root, strict: true, pack: false });
  assert.deepEqual(messages, []);
});

test("the types resolve from ES modules and from CommonJS", { timeout: 120_000 }, async () => {
  const attw = join(root, "node_modules/@arethetypeswrong/cli/dist/index.js");
  await run(process.execPath, [attw, tarball, "--profile", "node16"], { cwd: root }).catch(({ stdout }) =>
    assert.fail(stdout),
  );
});

test("the public API is that of api.snapshot.txt", async () => {
  assert.equal(
    await readFile(join(root, "api.snapshot.txt"), "utf8"),
    await apiSnapshot(),
    "run make gen and review the change",
  );
});

describe("an empty project", () => {
  const entries = ["", "/webhook", "/express", "/fastify", "/next", "/hono", "/browser", "/testing"];
  let project;
  before(async () => {
    project = await mkdtemp(join(folder, "project-"));
    await writeFile(join(project, "package.json"), '{"private":true}');
    await run("npm", ["install", "--no-audit", "--no-fund", "--offline", "--legacy-peer-deps", tarball], {
      cwd: project,
    });
  });

  test("has no other package", async () => {
    const lock = JSON.parse(await readFile(join(project, "package-lock.json"), "utf8"));
    assert.deepEqual(Object.keys(lock.packages), ["", "node_modules/outlast"]);
  });

  test("imports each entry as an ES module", async () => {
    const code = entries
      .map((entry) => `if (!Object.keys(await import("outlast${entry}")).length) throw "${entry}";`)
      .join("\n");
    await writeFile(join(project, "all.mjs"), code);
    await run(process.execPath, ["all.mjs"], { cwd: project });
  });

  test("requires each entry from CommonJS", async () => {
    const code = entries
      .map((entry) => `if (!Object.keys(require("outlast${entry}")).length) throw "${entry}";`)
      .join("\n");
    await writeFile(join(project, "all.cjs"), code);
    await run(process.execPath, ["all.cjs"], { cwd: project });
  });
});

describe("sizes", () => {
  const limits = [
    ["the client", 'export { Outlast } from "outlast"', 12],
    ["the browser part", 'export { watchJob } from "outlast/browser"', 5],
    ["the React hook", 'export { useJob } from "outlast/react"', 1, ["react", "*/browser.js"]],
  ];
  for (const [name, contents, kibibytes, external = []] of limits) {
    test(`${name} has at most ${kibibytes} KiB`, async (context) => {
      const { outputFiles } = await build({
        stdin: { contents, resolveDir: root },
        bundle: true,
        minify: true,
        format: "esm",
        platform: "browser",
        target: "es2022",
        write: false,
        external,
        logLevel: "silent",
      });
      const bytes = gzipSync(outputFiles[0].contents).length;
      context.diagnostic(`${name}: ${bytes} bytes`);
      assert.ok(bytes <= kibibytes * 1024, `${bytes} bytes`);
    });
  }
});
