// Writes src/wire.ts, the types of the API's schemas, from docs/reference/openapi.json. With --check it only compares.

import { readFile, writeFile } from "node:fs/promises";
import openapiTypescript, { astToString } from "openapi-typescript";

const source = new URL("../../../docs/reference/openapi.json", import.meta.url);
const target = new URL("../src/wire.ts", import.meta.url);

/** The text of src/wire.ts. Routes are left out: the SDK has a method for each, and a test that compares them. */
export async function wireTypes() {
  const document = JSON.parse(await readFile(source, "utf8"));
  const schemasOnly = { ...document, paths: {}, webhooks: {}, components: { schemas: document.components.schemas } };
  const tree = await openapiTypescript(schemasOnly, { alphabetize: true, exportType: true });
  return `// @generated from docs/reference/openapi.json by \`make gen\`; do not edit.\n\n${astToString(tree)}`;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const text = await wireTypes();
  if (process.argv.includes("--check")) {
    if ((await readFile(target, "utf8")) !== text) throw new Error("src/wire.ts is not up to date: run make gen");
  } else await writeFile(target, text);
}
