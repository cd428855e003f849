// Makes genuine deliveries for tests of webhook handlers.

import { randomUUID } from "node:crypto";

import { randomKey } from "../runtime.js";
import { signature } from "../webhook/signature.js";

export interface DeliveryOptions {
  payload?: unknown;
  id?: string;
  queue?: string;
  attempt?: number;
  mode?: "standard" | "ack";
  [field: string]: unknown;
}

/** The body of a delivery, with a fresh id and lease. */
export function delivery(options: DeliveryOptions = {}): Record<string, unknown> {
  const now = Date.now();
  return {
    id: randomUUID(),
    queue: "test",
    attempt: 1,
    maxAttempts: 5,
    deferCount: 0,
    replays: 0,
    mode: "standard",
    createdAt: new Date(now).toISOString(),
    lease: randomUUID().replaceAll("-", ""),
    leaseExpiresAt: new Date(now + 30_000).toISOString(),
    ...options,
    payload: options.payload ?? null,
  };
}

/** Signs a body as the server does. A body that is no text is written as JSON. */
export async function signDelivery(
  secret: string,
  body: unknown,
  { id, now = Date.now() / 1000 }: { id?: string; now?: number } = {},
): Promise<{ headers: Record<string, string>; body: string }> {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const webhookId = id ?? (await randomKey());
  const timestamp = String(Math.floor(now));
  const headers = {
    "content-type": "application/json",
    "webhook-id": webhookId,
    "webhook-timestamp": timestamp,
    "webhook-signature": `v1,${await signature(secret, webhookId, timestamp, text)}`,
  };
  return { headers, body: text };
}
