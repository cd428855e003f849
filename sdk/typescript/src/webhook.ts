// outlast/webhook: takes deliveries of push queues, and completion notifications.

import { verify, type HeaderSource, type Secret } from "./webhook/signature.js";
import type { components } from "./wire.js";

export {
  webhook,
  type Hook,
  type HookAnswer,
  type HookContext,
  type RawDelivery,
  type WebhookOptions,
} from "./webhook/hook.js";
export { NotSigned, verify, type HeaderSource, type Secret, type VerifyOptions } from "./webhook/signature.js";

export type Callback = components["schemas"]["Callback"];

/** Checks a completion notification, which is signed with the secret of `_callbacks`, and parses it. */
export async function parseCallback(
  secret: Secret,
  headers: HeaderSource,
  body: Uint8Array | string,
): Promise<Callback> {
  await verify(secret, headers, body);
  return JSON.parse(typeof body === "string" ? body : new TextDecoder().decode(body)) as Callback;
}
