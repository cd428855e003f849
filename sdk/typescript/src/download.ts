// Downloads a result to a path or a writable: follows the link, goes on by range after a broken connection, checks the bytes.

import { sleep } from "./duration.js";
import { DownloadDamaged, InDoubt, NotFound, OutlastError } from "./errors.js";
import { backoff } from "./retry.js";
import { nodeModule } from "./runtime.js";
import { sha256 } from "./sha256.js";
import type { Transport } from "./transport.js";

/** A path (where the runtime has files), a web stream, or a writable of Node. */
export type DownloadTarget = string | WritableStream<Uint8Array> | NodeWritable;

interface NodeWritable {
  write(chunk: Uint8Array, done: (error?: Error | null) => void): boolean;
  end(done: () => void): unknown;
}

export interface DownloadOptions {
  onProgress?: (progress: { length: number; total: number | undefined }) => void;
  signal?: AbortSignal | undefined;
}

interface StoredResult {
  id: string;
  meta: { length: number; sha256?: string | null } | null;
}

interface Sink {
  write(chunk: Uint8Array): Promise<void>;
  close(): Promise<void>;
  /** Removes what was written, where that is possible. */
  discard(): Promise<void>;
}

/** Connections in a row that bring no byte. */
const FAILURES_MAX = 5;

export async function download(
  transport: Transport,
  result: StoredResult,
  target: DownloadTarget,
  { onProgress, signal }: DownloadOptions,
): Promise<{ length: number; sha256: string }> {
  const sink = await sinkFor(target);
  const digest = await sha256();
  const total = result.meta?.length;
  let length = 0;
  let failures = 0;
  try {
    for (;;) {
      try {
        for await (const chunk of readFrom(transport, result.id, length, signal)) {
          await sink.write(chunk);
          digest.update(chunk);
          length += chunk.length;
          failures = 0;
          onProgress?.({ length, total });
        }
        if (total === undefined) break;
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        // An object that is missing or damaged stays so; a link that has run out is replaced by a new one.
        if (error instanceof OutlastError && !(error instanceof InDoubt)) throw error;
        if (failures + 1 >= FAILURES_MAX) throw error;
      }
      // Also after a connection that broke behind the last byte.
      if (total !== undefined && length >= total) break;
      failures += 1;
      await sleep(backoff(failures), signal);
    }
    const hex = digest.hex();
    const expected = result.meta?.sha256;
    if ((total !== undefined && length !== total) || (expected && hex !== expected)) {
      throw new DownloadDamaged(
        `the result of job ${result.id} has ${length} bytes with SHA-256 ${hex}; expected ${total}, ${expected}`,
      );
    }
    await sink.close();
    return { length, sha256: hex };
  } catch (error) {
    await sink.discard();
    throw error;
  }
}

/** The bytes of the result from this position on, over one connection. */
async function* readFrom(
  transport: Transport,
  id: string,
  from: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  const path = `/v1/jobs/${encodeURIComponent(id)}/result`;
  const headers: Record<string, string> = from > 0 ? { range: `bytes=${from}-` } : {};
  let response = await transport.open({ method: "GET", path, headers, signal, accepts: [307] });
  if (response.status === 307) {
    await response.body?.cancel();
    response = await transport.openLink(response.headers.get("location") ?? "", headers, signal);
  }
  if (response.status === 404)
    throw new NotFound({ code: "result_not_found", status: 404, detail: `job ${id} has no result` });
  if (!response.ok) throw new InDoubt(`the link of the result answered ${response.status}`);
  // A server that does not know ranges sends all of it again.
  let skip = response.status === 206 ? 0 : from;
  const reader = response.body!.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const chunk = value.subarray(Math.min(skip, value.length));
      skip -= value.length - chunk.length;
      if (chunk.length > 0) yield chunk;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function sinkFor(target: DownloadTarget): Promise<Sink> {
  if (typeof target === "string") return fileSink(target);
  if ("getWriter" in target) {
    const writer = target.getWriter();
    return {
      write: (chunk) => writer.write(chunk),
      close: () => writer.close(),
      discard: () => writer.abort().catch(() => {}),
    };
  }
  return {
    write: (chunk) =>
      new Promise((resolve, reject) => target.write(chunk, (error) => (error ? reject(error) : resolve()))),
    close: () => new Promise((resolve) => target.end(resolve)),
    discard: async () => {},
  };
}

async function fileSink(path: string): Promise<Sink> {
  const { open, rm } = await nodeModule<typeof import("node:fs/promises")>("fs/promises");
  const file = await open(path, "w");
  return {
    write: async (chunk) => void (await file.write(chunk)),
    close: () => file.close(),
    async discard() {
      await file.close().catch(() => {});
      await rm(path, { force: true });
    },
  };
}
