// Signatures of deliveries and callbacks, as Standard Webhooks defines them: HMAC-SHA-256 over id, time and the raw body.

import { OutlastError } from "../errors.js";
import { webCrypto } from "../runtime.js";

/** `whsec_…`, or a secret of your own. Several during a rotation. */
export type Secret = string | readonly string[];

export type HeaderSource = Headers | Record<string, string | string[] | undefined>;

/** The request is not genuine: answer 401. */
export class NotSigned extends OutlastError {
  override readonly name = "NotSigned";
}

export interface VerifyOptions {
  /** Seconds since 1970; default: this machine's clock. */
  now?: number;
}

const TOLERANCE_SECONDS = 300;

/** Checks the signature of a raw body. Resolves with the `webhook-id`; rejects with `NotSigned`. */
export async function verify(
  secret: Secret,
  headers: HeaderSource,
  body: Uint8Array | string,
  { now = Date.now() / 1000 }: VerifyOptions = {},
): Promise<string> {
  const id = headerOf(headers, "webhook-id");
  const timestamp = headerOf(headers, "webhook-timestamp");
  const signatures = headerOf(headers, "webhook-signature");
  if (!id || !timestamp || !signatures)
    throw new NotSigned("webhook-id, webhook-timestamp or webhook-signature is missing");
  if (!/^\d+$/.test(timestamp)) throw new NotSigned("webhook-timestamp is not a number of seconds");
  if (Math.abs(now - Number(timestamp)) > TOLERANCE_SECONDS) {
    throw new NotSigned(`webhook-timestamp is more than ${TOLERANCE_SECONDS} s away from this machine's clock`);
  }
  const given = signatures
    .split(" ")
    .filter((one) => one.startsWith("v1,"))
    .map((one) => one.slice(3));
  let isGenuine = false;
  // Every pair is compared, so that the time does not say which one was right.
  for (const one of secretsOf(secret)) {
    const expected = await signature(one, id, timestamp, body);
    for (const candidate of given) if (isEqual(expected, candidate)) isGenuine = true;
  }
  if (!isGenuine) throw new NotSigned("no signature matches: check the secret, and that the body is raw bytes");
  return id;
}

/** The signature of one message, in base64. */
export async function signature(
  secret: string,
  id: string,
  timestamp: string,
  body: Uint8Array | string,
): Promise<string> {
  const { subtle } = await webCrypto();
  const key = await subtle.importKey("raw", keyBytes(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const message = new Uint8Array(head.length + bytes.length);
  message.set(head);
  message.set(bytes, head.length);
  return toBase64(new Uint8Array(await subtle.sign("HMAC", key, message)));
}

export function secretsOf(secret: Secret): readonly string[] {
  const secrets = typeof secret === "string" ? [secret] : secret;
  if (secrets.length === 0 || secrets.some((one) => !one)) throw new TypeError("there is no secret: pass { secret }");
  return secrets;
}

export function headerOf(headers: HeaderSource, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  const value = headers[name] ?? headers[Object.keys(headers).find((one) => one.toLowerCase() === name) ?? name];
  return Array.isArray(value) ? value[0] : value;
}

/** `whsec_` is followed by base64; any other secret is the key itself. */
function keyBytes(secret: string): Uint8Array<ArrayBuffer> {
  if (!secret.startsWith("whsec_")) return new TextEncoder().encode(secret);
  return Uint8Array.from(atob(secret.slice(6)), (char) => char.charCodeAt(0));
}

function toBase64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

/** In constant time for texts of one length. */
function isEqual(one: string, other: string): boolean {
  if (one.length !== other.length) return false;
  let difference = 0;
  for (let at = 0; at < one.length; at += 1) difference |= one.charCodeAt(at) ^ other.charCodeAt(at);
  return difference === 0;
}
