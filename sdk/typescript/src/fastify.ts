// outlast/fastify: `fastify.register(fastifyPlugin(hook, { path: "/hook" }))`.

import type { Hook, HookContext } from "./webhook/hook.js";
import { refuseServerless } from "./webhook/hook.js";

interface ReplyLike {
  code(status: number): ReplyLike;
  headers(headers: Record<string, string>): ReplyLike;
  send(body: string): unknown;
}

interface RequestLike {
  headers: Record<string, string | string[] | undefined>;
  body: unknown;
}

interface FastifyLike {
  removeAllContentTypeParsers(): unknown;
  addContentTypeParser(
    type: string,
    options: { parseAs: "buffer" },
    parser: (request: unknown, body: Buffer, done: (error: Error | null, body?: Buffer) => void) => void,
  ): unknown;
  post(path: string, handler: (request: RequestLike, reply: ReplyLike) => Promise<unknown>): unknown;
}

export function fastifyPlugin(hook: Hook, { path, ...context }: { path: string } & HookContext) {
  refuseServerless(context);
  // Fastify encapsulates a plugin: other routes keep their parsers.
  return async (instance: FastifyLike): Promise<void> => {
    instance.removeAllContentTypeParsers();
    instance.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
    instance.post(path, async (request, reply) => {
      if (!(request.body instanceof Uint8Array)) {
        throw new TypeError(
          "a parser has read the body: register fastifyPlugin(hook) without fastify-plugin around it",
        );
      }
      const answer = await hook.handle({ headers: request.headers, body: request.body }, context);
      return reply.code(answer.status).headers(answer.headers).send(answer.body);
    });
  };
}
