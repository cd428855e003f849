// outlast/express: `app.post("/hook", express(hook))`. Also for Connect and for plain `http` of Node.

import type { Hook, HookContext } from "./webhook/hook.js";
import { readBytes, refuseServerless } from "./webhook/hook.js";

interface RequestLike extends AsyncIterable<Uint8Array> {
  headers: Record<string, string | string[] | undefined>;
  body?: unknown;
  readableEnded?: boolean;
}

interface ResponseLike {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body?: string): unknown;
}

export function express(hook: Hook, context: HookContext = {}) {
  refuseServerless(context);
  return async (request: RequestLike, response: ResponseLike, next?: (error: unknown) => void): Promise<void> => {
    try {
      const answer = await hook.handle({ headers: request.headers, body: await rawBody(request) }, context);
      response.statusCode = answer.status;
      for (const [name, value] of Object.entries(answer.headers)) response.setHeader(name, value);
      response.end(answer.body);
    } catch (error) {
      if (!next) throw error;
      next(error);
    }
  };
}

async function rawBody(request: RequestLike): Promise<Uint8Array> {
  // Of `express.raw()`.
  if (request.body instanceof Uint8Array) return request.body;
  if (request.readableEnded || (request.body !== undefined && request.body !== null)) {
    throw new TypeError('a parser has read the body: move app.post("…", express(hook)) above app.use(express.json())');
  }
  return readBytes(request);
}
