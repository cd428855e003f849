// outlast/hono: `app.post("/hook", hono(hook))`.

import type { Hook } from "./webhook/hook.js";

interface ContextLike {
  req: { raw: Request };
  executionCtx?: { waitUntil(work: Promise<unknown>): void };
}

export function hono(hook: Hook): (context: ContextLike) => Promise<Response> {
  return (context) => hook(context.req.raw, { waitUntil: waitUntilOf(context) });
}

/** Hono throws where the platform has no such context: on Node, Bun and Deno, which need none. */
function waitUntilOf(context: ContextLike): ((work: Promise<unknown>) => void) | undefined {
  try {
    const { executionCtx } = context;
    return executionCtx && ((work) => executionCtx.waitUntil(work));
  } catch {
    return undefined;
  }
}
