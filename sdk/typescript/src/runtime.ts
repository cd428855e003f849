// The few things that differ between runtimes: modules of Node, randomness, the environment.

type ProcessLike = {
  env?: Record<string, string | undefined>;
  versions?: Record<string, string | undefined>;
  getBuiltinModule?: (name: string) => unknown;
};

export const processLike: ProcessLike | undefined = (globalThis as { process?: ProcessLike }).process;

/** A module of Node, where the runtime has it. Not a static import: bundlers for browsers and edge runtimes must not see one. */
export async function nodeModule<T>(name: string): Promise<T> {
  const specifier = `node:${name}`;
  const found = processLike?.getBuiltinModule?.(specifier);
  if (found) return found as T;
  return (await import(/* webpackIgnore: true */ /* @vite-ignore */ specifier)) as T;
}

/** Web Crypto. Node 18 has it only in its module. */
export async function webCrypto(): Promise<Crypto> {
  if (globalThis.crypto?.subtle) return globalThis.crypto;
  return (await nodeModule<{ webcrypto: Crypto }>("crypto")).webcrypto;
}

/** A random text of 32 hexadecimal digits. `randomUUID` is missing on pages without TLS. */
export async function randomKey(): Promise<string> {
  const crypto = globalThis.crypto ?? (await webCrypto());
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function environment(name: string): string | undefined {
  return processLike?.env?.[name] || undefined;
}

const warned = new Set<string>();

export function warnOnce(message: string): void {
  if (warned.has(message)) return;
  warned.add(message);
  console.warn(`outlast: ${message}`);
}
