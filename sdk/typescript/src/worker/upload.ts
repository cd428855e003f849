// Uploads a result: in one request through the server, or by links in parts, where each part is repeated on its own.

import { sleep } from "../duration.js";
import { InDoubt, NotFound } from "../errors.js";
import { backoff } from "../retry.js";
import { nodeModule } from "../runtime.js";
import type { Transport } from "../transport.js";
import type { components } from "../wire.js";

type Wire = components["schemas"];

export type Uploaded = Wire["UploadedResult"];

/** A path of a file, bytes, a Blob, or a stream. A stream is sent once: it cannot be repeated after a broken connection. */
export type UploadSource =
  string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

export interface UploadOptions {
  filename?: string;
  contentType?: string;
  /** Upload by links, in so many parts; where objects are in a folder there is one link. Not for streams. */
  parts?: number;
  onProgress?: (progress: { length: number; total: number | undefined }) => void;
}

/** How the job reports: its path, the header with the lease, and when to give up. */
export interface UploadTarget {
  path: string;
  headers: Record<string, string>;
  signal: AbortSignal;
  retries: number;
}

const PART_TRIES = 8;
/** An upload may take hours; the lease is kept meanwhile, and its loss aborts it. */
const UPLOAD_SECONDS_MAX = 12 * 3600;

export async function upload(
  transport: Transport,
  target: UploadTarget,
  source: UploadSource,
  options: UploadOptions,
): Promise<Uploaded> {
  const blob = await asBlob(source);
  if (!blob)
    return direct(transport, target, () => asStream(source as AsyncIterable<Uint8Array>, options), undefined, options);
  if (options.parts === undefined) {
    return direct(transport, target, () => counted(blob.stream(), blob.size, options), blob, options);
  }
  return byLinks(transport, target, blob, options);
}

/** Data that can be read again, and in parts; undefined for streams. */
async function asBlob(source: UploadSource): Promise<Blob | undefined> {
  if (source instanceof Blob) return source;
  if (typeof source === "string") {
    const fs = await nodeModule<typeof import("node:fs") & { openAsBlob?: (path: string) => Promise<Blob> }>("fs");
    // Node 18 has no blobs of files: it reads the file into memory.
    return fs.openAsBlob ? fs.openAsBlob(source) : new Blob([await fs.promises.readFile(source)]);
  }
  if (source instanceof ArrayBuffer || source instanceof Uint8Array) return new Blob([source as BlobPart]);
  return undefined;
}

async function direct(
  transport: Transport,
  target: UploadTarget,
  body: () => ReadableStream<Uint8Array>,
  blob: Blob | undefined,
  options: UploadOptions,
): Promise<Uploaded> {
  const headers = {
    ...target.headers,
    "content-type": options.contentType ?? (blob?.type || "application/octet-stream"),
  };
  const answer = await transport.send({
    method: "PUT",
    path: `${target.path}/result`,
    query: { filename: options.filename },
    // Without a listener a blob goes out as it is, with its length.
    rawBody: () => (blob && !options.onProgress ? blob : body()),
    headers,
    isRepeatable: blob !== undefined,
    retries: blob ? target.retries : 0,
    timeout: UPLOAD_SECONDS_MAX,
    signal: target.signal,
  });
  return answer.json as Uploaded;
}

async function byLinks(
  transport: Transport,
  target: UploadTarget,
  blob: Blob,
  options: UploadOptions,
): Promise<Uploaded> {
  const { path, headers, signal, retries } = target;
  const patience = { headers, signal, retries, isRepeatable: true };
  const body = {
    filename: options.filename,
    contentType: options.contentType ?? (blob.type || undefined),
    parts: options.parts,
  };
  const answer = await transport.send({ method: "POST", path: `${path}/result/upload`, body, ...patience });
  const announced = answer.json as Wire["UploadLinks"];
  const links = announced.parts?.length ? announced.parts : [{ number: 1, url: announced.url! }];
  const size = Math.ceil(blob.size / links.length);
  const parts: { number: number; etag: string }[] = [];
  let length = 0;
  for (const [index, link] of links.entries()) {
    const part = blob.slice(index * size, Math.min((index + 1) * size, blob.size));
    const etag = await putPart(transport, link.url, part, (announced.headers ?? {}) as Record<string, string>, signal);
    parts.push({ number: link.number, etag });
    length += part.size;
    options.onProgress?.({ length, total: blob.size });
  }
  const finalize = { uploadId: announced.uploadId, length: blob.size, ...(announced.parts?.length > 1 && { parts }) };
  const done = await transport.send({ method: "POST", path: `${path}/result/finalize`, body: finalize, ...patience });
  return done.json as Uploaded;
}

async function putPart(
  transport: Transport,
  link: string,
  part: Blob,
  headers: Record<string, string>,
  signal: AbortSignal,
): Promise<string> {
  for (let tries = 1; ; tries += 1) {
    try {
      const response = await transport.rawFetch(new URL(link, transport.url), {
        method: "PUT",
        body: part,
        headers,
        signal,
      });
      const text = await response.text();
      if (response.ok) return response.headers.get("etag") ?? "";
      if (response.status === 404) throw new NotFound({ code: "upload_not_found", status: 404, detail: text });
      throw new InDoubt(`the link of the upload answered ${response.status}: ${text.slice(0, 200)}`);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (error instanceof NotFound || tries >= PART_TRIES) throw error;
      await sleep(backoff(tries), signal);
    }
  }
}

function asStream(
  source: AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>,
  options: UploadOptions,
): ReadableStream<Uint8Array> {
  if (source instanceof ReadableStream) return counted(source, undefined, options);
  const iterator = source[Symbol.asyncIterator]();
  const stream = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(typeof value === "string" ? new TextEncoder().encode(value) : value);
    },
    async cancel() {
      await iterator.return?.();
    },
  });
  return counted(stream, undefined, options);
}

function counted(
  stream: ReadableStream<Uint8Array>,
  total: number | undefined,
  { onProgress }: UploadOptions,
): ReadableStream<Uint8Array> {
  if (!onProgress) return stream;
  let length = 0;
  return stream.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        length += chunk.length;
        onProgress({ length, total });
        controller.enqueue(chunk);
      },
    }),
  );
}
