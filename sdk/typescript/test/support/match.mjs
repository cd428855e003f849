// Matching of sdk/scenarios.yaml: variables, subsets of objects, exact lists.

import assert from "node:assert/strict";

export class Variables {
  #values = new Map();

  set(name, value) {
    this.#values.set(name, value);
  }

  /** The value with each bound variable replaced, in strings also as a part. */
  fill(value) {
    if (typeof value === "string") {
      if (this.#values.has(value.slice(1)) && value.startsWith("$")) return this.#values.get(value.slice(1));
      return value.replace(/\$(\w+)/g, (whole, name) =>
        this.#values.has(name) ? String(this.#values.get(name)) : whole,
      );
    }
    if (Array.isArray(value)) return value.map((one) => this.fill(one));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, this.fill(one)]));
  }

  match(expected, actual, where) {
    if (expected === "$any") return assert.notEqual(actual, undefined, `${where} is missing`);
    if (expected === "$absent") return assert.equal(actual, undefined, `${where} should be missing`);
    if (typeof expected === "string" && /^\$\w+$/.test(expected) && !this.#values.has(expected.slice(1))) {
      assert.notEqual(actual, undefined, `${where} is missing`);
      this.#values.set(expected.slice(1), actual);
      return;
    }
    if (Array.isArray(expected)) {
      assert.ok(Array.isArray(actual), `${where} is no list: ${JSON.stringify(actual)}`);
      assert.equal(actual.length, expected.length, `${where} has another length: ${JSON.stringify(actual)}`);
      expected.forEach((one, index) => this.match(one, actual[index], `${where}[${index}]`));
      return;
    }
    if (typeof expected === "object" && expected !== null) {
      assert.equal(typeof actual, "object", `${where} is no object: ${JSON.stringify(actual)}`);
      for (const [key, one] of Object.entries(expected)) this.match(one, actual?.[key], `${where}.${key}`);
      return;
    }
    assert.deepEqual(actual, this.fill(expected), where);
  }
}
