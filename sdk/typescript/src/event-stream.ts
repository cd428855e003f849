// Server-sent events over `fetch`. Used by the client and by the browser part.

export interface StreamMessage {
  id: string | undefined;
  event: string;
  data: string;
  /** Milliseconds to wait before a reconnect, where the server has said so. */
  retry: number | undefined;
}

/** A server sends a comment every 15 s; after this long without a byte the connection is dead. */
export const SILENCE_MAX_MILLIS = 45_000;

/** The messages of a stream, until it ends. `onBytes` is called for each chunk, comments included. */
export async function* readMessages(
  body: ReadableStream<Uint8Array>,
  onBytes?: () => void,
): AsyncGenerator<StreamMessage> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onBytes?.();
      text += decoder.decode(value, { stream: true });
      // A message ends with an empty line; the rest stays for the next chunk.
      const blocks = text.split(/\r?\n\r?\n/);
      text = blocks.pop()!;
      for (const block of blocks) {
        const message = parseBlock(block);
        if (message) yield message;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parseBlock(block: string): StreamMessage | undefined {
  const message: StreamMessage = { id: undefined, event: "message", data: "", retry: undefined };
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
    if (field === "data") data.push(value!);
    else if (field === "id") message.id = value;
    else if (field === "event") message.event = value!;
    else if (field === "retry") message.retry = Number(value);
  }
  if (data.length === 0 && message.retry === undefined) return undefined;
  message.data = data.join("\n");
  return message;
}

/** Aborts after a silence. `reset` is called for each sign of life. */
export function silenceGuard(onSilence: () => void): { reset: () => void; stop: () => void } {
  let timer = setTimeout(onSilence, SILENCE_MAX_MILLIS);
  return {
    reset() {
      clearTimeout(timer);
      timer = setTimeout(onSilence, SILENCE_MAX_MILLIS);
    },
    stop: () => clearTimeout(timer),
  };
}
