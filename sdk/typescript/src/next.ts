// outlast/next: `export const POST = nextHandler(hook, { waitUntil })` in a route handler of Next.js.

import type { Hook, HookContext } from "./webhook/hook.js";
import { refuseServerless } from "./webhook/hook.js";

/** `waitUntil` is `after` of next/server, or `waitUntil` of your platform. */
export function nextHandler(hook: Hook, context: HookContext = {}): (request: Request) => Promise<Response> {
  refuseServerless(context);
  return (request) => hook(request, context);
}
