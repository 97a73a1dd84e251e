/** Names and label values that Kubernetes accepts, whatever the source is called. */
import { hash } from "node:crypto";
import { isLabelValue } from "../../../shared/decide/availability/selector-text.ts";

const NAME_MAX_CHARACTERS = 253;
const LABEL_VALUE_MAX_CHARACTERS = 63;
/** 64 bits: two of a million names in one namespace share a hash with a chance of 1 in 37 million. */
const HASH_CHARACTERS = 16;

/** A prefix of `text` and a hash of `hashed`, together at most `maxCharacters`. */
function shortened(text: string, maxCharacters: number, hashed: string): string {
  const end = hash("sha256", hashed, "hex").slice(0, HASH_CHARACTERS);
  const head = text.slice(0, maxCharacters - HASH_CHARACTERS - 1).replace(/[^A-Za-z0-9]+$/, "");
  return head === "" ? end : `${head}-${end}`;
}

/** `name` itself if it is a valid label value, else a valid prefix of `name` and a hash. */
export function labelValue(name: string): string {
  if (isLabelValue(name)) return name;
  const valid = name.replace(/[^A-Za-z0-9._-]/g, "-").replace(/^[^A-Za-z0-9]+/, "");
  return shortened(valid, LABEL_VALUE_MAX_CHARACTERS, name);
}

/** `name` itself if it is short enough for an object, else a prefix of `name` and a hash. */
export function protectorName(name: string): string {
  return name.length <= NAME_MAX_CHARACTERS ? name : shortened(name, NAME_MAX_CHARACTERS, name);
}

/** A name for the protector when `name` is taken: a different one for each source, and each protector of a source. */
export function alternativeName(name: string, sourceKey: string): string {
  const isCut = name.length > NAME_MAX_CHARACTERS - HASH_CHARACTERS - 1;
  return shortened(name, NAME_MAX_CHARACTERS, isCut ? `${sourceKey} ${name}` : sourceKey);
}
