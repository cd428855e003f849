// Writes api.snapshot.txt: the public names of each entry with their declarations, so that a change of the API is seen in review.

import { readFile, writeFile } from "node:fs/promises";
import ts from "typescript";

const root = new URL("..", import.meta.url);
const target = new URL("api.snapshot.txt", root);

/** The text of api.snapshot.txt; needs dist/. */
export async function apiSnapshot() {
  const { exports } = JSON.parse(await readFile(new URL("package.json", root), "utf8"));
  const entries = Object.entries(exports).filter(([, value]) => typeof value === "object");
  const files = entries.map(([name, value]) => [name, new URL(value.import.types, root).pathname]);
  const options = {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    skipLibCheck: true,
  };
  const program = ts.createProgram(
    files.map(([, file]) => file),
    { ...options, target: ts.ScriptTarget.ES2022 },
  );
  const checker = program.getTypeChecker();
  const lines = [];
  for (const [name, file] of files) {
    lines.push(`# outlast${name.slice(1)}`);
    const symbols = checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file)));
    for (const symbol of symbols.sort((one, other) => (one.name < other.name ? -1 : 1)))
      lines.push(...declaration(checker, symbol));
    lines.push("");
  }
  return lines.join("\n");
}

function declaration(checker, symbol) {
  const origin = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  // The wire types have a generated file of their own.
  if (symbol.name === "components") return ["components"];
  return (origin.declarations ?? []).map((node) => {
    const text = node.getText().replace(/\/\*\*[\s\S]*?\*\/|\/\/.*$/gm, "");
    return `${symbol.name}: ${text
      .replace(/^\s*(private |#).*$/gm, "")
      .replace(/\s+/g, " ")
      .trim()}`;
  });
}

if (process.argv[1] === new URL(import.meta.url).pathname) await writeFile(target, await apiSnapshot());
