/** Kubernetes' own limits on the strings of an object, in characters. No apiserver stores or sends longer ones. */
import { SchemaError } from "./schema-error.ts";

/** Longest name or UID (DNS subdomains). */
export const MAX_NAME_LENGTH = 253;
/** Longest namespace or label value. */
export const MAX_LABEL_LENGTH = 63;
/** Longest label key or condition type: prefix, slash and name. */
export const MAX_KEY_LENGTH = 317;

/** Throws `SchemaError`. */
export function requireShort(value: string | null | undefined, path: string, maxLength: number): void {
  if (value !== undefined && value !== null && value.length > maxLength)
    throw new SchemaError(path, `has ${value.length} characters, and Kubernetes allows ${maxLength}`);
}
