// SHA-256 of a stream of bytes. By Node's module where the runtime has it; Web Crypto cannot digest in steps.

import { nodeModule } from "./runtime.js";

export interface Digest {
  update(bytes: Uint8Array): void;
  hex(): string;
}

export async function sha256(): Promise<Digest> {
  try {
    const { createHash } = await nodeModule<typeof import("node:crypto")>("crypto");
    const hash = createHash("sha256");
    return { update: (bytes) => void hash.update(bytes), hex: () => hash.digest("hex") };
  } catch {
    return portableSha256();
  }
}

// The first 32 bits of the fractional parts of the square and cube roots of the first primes (FIPS 180-4).
const { H, K } = constants();

function constants(): { H: number[]; K: number[] } {
  const primes: number[] = [];
  for (let candidate = 2; primes.length < 64; candidate += 1) {
    if (primes.every((prime) => candidate % prime !== 0)) primes.push(candidate);
  }
  const fraction = (root: number) => ((root - Math.floor(root)) * 2 ** 32) | 0;
  return {
    H: primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime))),
    K: primes.map((prime) => fraction(Math.cbrt(prime))),
  };
}

export function portableSha256(): Digest {
  const state = Int32Array.from(H);
  const block = new Uint8Array(64);
  let filled = 0;
  let length = 0;

  function update(bytes: Uint8Array): void {
    length += bytes.length;
    for (let at = 0; at < bytes.length;) {
      const count = Math.min(64 - filled, bytes.length - at);
      block.set(bytes.subarray(at, at + count), filled);
      filled += count;
      at += count;
      if (filled === 64) {
        compress(state, block);
        filled = 0;
      }
    }
  }

  function hex(): string {
    const bits = length * 8;
    const padding = new Uint8Array((filled < 56 ? 56 : 120) - filled + 8);
    padding[0] = 0x80;
    const view = new DataView(padding.buffer);
    view.setUint32(padding.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(padding.length - 4, bits >>> 0);
    update(padding);
    return Array.from(state, (word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
  }

  return { update, hex };
}

const schedule = new Int32Array(64);
const rotate = (word: number, by: number) => (word >>> by) | (word << (32 - by));

function compress(state: Int32Array, block: Uint8Array): void {
  const view = new DataView(block.buffer);
  for (let at = 0; at < 64; at += 1) {
    if (at < 16) {
      schedule[at] = view.getInt32(at * 4);
      continue;
    }
    const early = schedule[at - 15]!;
    const late = schedule[at - 2]!;
    const small0 = rotate(early, 7) ^ rotate(early, 18) ^ (early >>> 3);
    const small1 = rotate(late, 17) ^ rotate(late, 19) ^ (late >>> 10);
    schedule[at] = schedule[at - 16]! + small0 + schedule[at - 7]! + small1;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let at = 0; at < 64; at += 1) {
    const big1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const first = (h + big1 + ((e & f) ^ (~e & g)) + K[at]! + schedule[at]!) | 0;
    const big0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const second = (big0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, index) => (state[index]! += word));
}
