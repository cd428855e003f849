// Finds the text of one member in JSON, unchanged: numbers that a double cannot hold stay as they were written.

/** The text of the value at this path of names and indexes, or undefined. The JSON is valid: it has been parsed before. */
export function jsonText(text: string, path: readonly (string | number)[]): string | undefined {
  let at = skipBlank(text, 0);
  for (const step of path) {
    const found = text[at] === "{" ? member(text, at, step) : text[at] === "[" ? entry(text, at, step) : undefined;
    if (found === undefined) return undefined;
    at = found;
  }
  return text.slice(at, valueEnd(text, at));
}

function member(text: string, open: number, name: string | number): number | undefined {
  let at = skipBlank(text, open + 1);
  while (text[at] === '"') {
    const end = valueEnd(text, at);
    const value = skipBlank(text, skipBlank(text, end) + 1);
    if (JSON.parse(text.slice(at, end)) === name) return value;
    at = skipBlank(text, skipBlank(text, valueEnd(text, value)) + 1);
  }
  return undefined;
}

function entry(text: string, open: number, index: string | number): number | undefined {
  let at = skipBlank(text, open + 1);
  for (let number = 0; text[at] !== "]" && at < text.length; number += 1) {
    if (number === index) return at;
    const after = skipBlank(text, valueEnd(text, at));
    if (text[after] === "]") return undefined;
    at = skipBlank(text, after + 1);
  }
  return undefined;
}

function skipBlank(text: string, at: number): number {
  while (at < text.length && " \n\r\t".includes(text[at]!)) at += 1;
  return at;
}

const SCALAR_END = /[\s,\]}]/g;

function valueEnd(text: string, start: number): number {
  const first = text[start];
  if (first === '"') return stringEnd(text, start);
  if (first !== "{" && first !== "[") {
    SCALAR_END.lastIndex = start;
    return SCALAR_END.exec(text)?.index ?? text.length;
  }
  let depth = 0;
  for (let at = start; at < text.length; at += 1) {
    const char = text[at];
    if (char === '"') at = stringEnd(text, at) - 1;
    else if (char === "{" || char === "[") depth += 1;
    else if (char === "}" || char === "]") {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return text.length;
}

function stringEnd(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}
