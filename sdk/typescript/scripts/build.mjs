// Builds dist/: ES modules and CommonJS with their types, by plain tsc. Nothing is bundled.

import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");

rmSync(`${root}dist`, { recursive: true, force: true });
for (const [project, folder, type] of [
  ["tsconfig.json", "esm", "module"],
  ["tsconfig.cjs.json", "cjs", "commonjs"],
]) {
  execFileSync(process.execPath, [tsc, "-p", project], { cwd: root, stdio: "inherit" });
  mkdirSync(`${root}dist/${folder}`, { recursive: true });
  // Node decides by the nearest package.json how a .js file is read.
  writeFileSync(`${root}dist/${folder}/package.json`, `{ "type": "${type}" }\n`);
}
