// Writes src/worker/keeper-source.ts: the keeper's loop as a text, which a thread is started with. A file of its own would be
// lost by bundlers, and the text of a compiled function may contain names of a bundler. With --check it only compares.

import { readFile, writeFile } from "node:fs/promises";
import ts from "typescript";

const source = new URL("../src/worker/keeper-loop.ts", import.meta.url);
const target = new URL("../src/worker/keeper-source.ts", import.meta.url);

const bootstrap = `
const { parentPort, workerData } = require("node:worker_threads");
const ticks = new Int32Array(workerData.ticks);
const keeper = keeperLoop(workerData.link, {
  fetch: globalThis.fetch,
  ticks: () => Atomics.load(ticks, 0),
  notify: (notice) => parentPort.postMessage(notice),
});
parentPort.on("message", (command) => {
  keeper.command(command);
  if (command.type === "stop") parentPort.close();
});
`;

/** The text of src/worker/keeper-source.ts. */
export async function keeperSource() {
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, removeComments: true };
  const { outputText } = ts.transpileModule(await readFile(source, "utf8"), { compilerOptions });
  const program = outputText.replace(/^export /gm, "") + bootstrap;
  const head = "// @generated from keeper-loop.ts by `make gen`; do not edit.";
  return `${head}\n\nexport const keeperSource =\n  ${JSON.stringify(program)};\n`;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const text = await keeperSource();
  if (process.argv.includes("--check")) {
    if ((await readFile(target, "utf8")) !== text) throw new Error("keeper-source.ts is not up to date: run make gen");
  } else await writeFile(target, text);
}
