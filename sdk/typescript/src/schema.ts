// Standard Schema: the interface that zod, valibot, arktype and others share. Nothing of them is imported.

import { OutlastError } from "./errors.js";

type SchemaResult<Value> =
  { value: Value; issues?: undefined } | { issues: readonly { message: string; path?: readonly unknown[] }[] };

export interface StandardSchema<Value> {
  readonly "~standard": { readonly validate: (value: unknown) => SchemaResult<Value> | Promise<SchemaResult<Value>> };
}

/** A value does not match the schema that was given for it. */
export class SchemaMismatch extends OutlastError {
  override readonly name = "SchemaMismatch";
}

export async function check<Value>(
  schema: StandardSchema<Value> | undefined,
  value: unknown,
  subject: string,
): Promise<Value> {
  if (!schema) return value as Value;
  const result = await schema["~standard"].validate(value);
  if (!result.issues) return result.value;
  const issues = result.issues.map(({ message, path }) =>
    path?.length ? `${path.map(segment).join(".")}: ${message}` : message,
  );
  throw new SchemaMismatch(`${subject} does not match its schema: ${issues.join("; ")}`);
}

function segment(part: unknown): string {
  return String(typeof part === "object" && part !== null && "key" in part ? part.key : part);
}
