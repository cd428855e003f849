// Output of a running job: words are gathered to 4 KiB or 250 ms and sent in order.

import { Conflict, InDoubt } from "../errors.js";
import { warnOnce } from "../runtime.js";

const CHARS_MAX = 4096;
const GATHER_MILLIS = 250;

export class OutputBuffer {
  readonly #send: (text: string) => Promise<void>;
  #text = "";
  #timer: ReturnType<typeof setTimeout> | undefined;
  #sending: Promise<void> = Promise.resolve();
  #isFull = false;

  constructor(send: (text: string) => Promise<void>) {
    this.#send = send;
  }

  add(text: string): void {
    this.#text += text;
    if (this.#text.length >= CHARS_MAX) this.#drain();
    else this.#timer ??= setTimeout(() => this.#drain(), GATHER_MILLIS);
  }

  /** Resolves when all of it is stored. */
  async flush(): Promise<void> {
    this.#drain();
    // Half of a pair whose other half never came.
    if (this.#text !== "") this.#queue("\ufffd");
    this.#text = "";
    await this.#sending;
  }

  #drain(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (let piece = firstPiece(this.#text); piece !== ""; piece = firstPiece(this.#text)) {
      this.#text = this.#text.slice(piece.length);
      this.#queue(piece);
    }
  }

  #queue(piece: string): void {
    this.#sending = this.#sending.then(() => this.#sendOne(piece));
  }

  async #sendOne(piece: string): Promise<void> {
    if (this.#isFull) return;
    try {
      await this.#send(piece);
    } catch (error) {
      // Output is for viewers: a piece that cannot be stored does not end the work.
      this.#isFull = error instanceof Conflict && error.code === "output_full";
      const isExpected = this.#isFull || error instanceof InDoubt;
      warnOnce(isExpected ? `output was not stored: ${(error as Error).message}` : `output failed: ${String(error)}`);
    }
  }
}

/** At most 4,096 characters, which is less than the server's 16 KiB; no pair of surrogates is cut, also between two calls. */
function firstPiece(text: string): string {
  const piece = text.slice(0, CHARS_MAX);
  const last = piece.charCodeAt(piece.length - 1);
  return last >= 0xd800 && last <= 0xdbff ? piece.slice(0, -1) : piece;
}
