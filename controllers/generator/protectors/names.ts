/** Names and label values that are always valid, whatever the source is called (design 7). */
import { createHash } from "node:crypto";

const NAME_MAX_CHARACTERS = 253;
const LABEL_VALUE_MAX_CHARACTERS = 63;
const LABEL_VALUE = /^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$/;
/** 64 bits: two of a million names in one namespace share a hash with a chance of 1 in 37 million. */
const HASH_CHARACTERS = 16;

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, HASH_CHARACTERS);
}

/** The beginning of `text` and a hash of the whole of it, together at most `maxCharacters`. */
function shortened(text: string, maxCharacters: number): string {
  const head = text.slice(0, maxCharacters - HASH_CHARACTERS - 1).replace(/[^A-Za-z0-9]+$/, "");
  return `${head}-${hash(text)}`;
}

/** `name` itself when it is a valid label value, else its valid beginning and a hash. */
export function labelValue(name: string): string {
  if (name.length <= LABEL_VALUE_MAX_CHARACTERS && LABEL_VALUE.test(name)) return name;
  const valid = name.replace(/[^A-Za-z0-9._-]/g, "-").replace(/^[^A-Za-z0-9]+/, "");
  const head = valid.slice(0, LABEL_VALUE_MAX_CHARACTERS - HASH_CHARACTERS - 1).replace(/[^A-Za-z0-9]+$/, "");
  return head === "" ? hash(name) : `${head}-${hash(name)}`;
}

/** `name` itself when an object can be called so, else its beginning and a hash. */
export function protectorName(name: string): string {
  return name.length <= NAME_MAX_CHARACTERS ? name : shortened(name, NAME_MAX_CHARACTERS);
}

/** The name to take when another source or a person has taken `name`: never the same for two sources. */
export function alternativeName(name: string, sourceKey: string): string {
  const head = name.slice(0, NAME_MAX_CHARACTERS - HASH_CHARACTERS - 1).replace(/[^A-Za-z0-9]+$/, "");
  return `${head}-${hash(sourceKey)}`;
}
