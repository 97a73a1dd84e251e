/**
 * Pod names in packed form: a prefix that many pods share (up to the last hyphen) and a suffix. The suffix that
 * Kubernetes generates (five of 27 characters) takes three bytes.
 */
import type { ByteReader, ByteWriter } from "./bytes.ts";

/** The characters of generated suffixes (`k8s.io/apimachinery/pkg/util/rand`). */
const ALPHABET = "bcdfghjklmnpqrstvwxz2456789";
const BASE = ALPHABET.length;
const GENERATED_LENGTH = 5;
/** The longest DNS subdomain. A reader rejects longer names, so that a short text can't become a large history. */
const MAX_NAME_CHARS = 253;
const GENERATED = new RegExp(`^[${ALPHABET}]{${GENERATED_LENGTH}}$`);

interface NameParts {
  readonly prefix: string;
  readonly suffix: string;
  readonly isGenerated: boolean;
}

/** The parts of a name; undefined for a name for which a reader would reject the whole text. */
export function splitName(name: string | undefined): NameParts | undefined {
  if (name === undefined || name.length > MAX_NAME_CHARS) return undefined;
  const end = name.lastIndexOf("-") + 1;
  const suffix = name.slice(end);
  return { prefix: name.slice(0, end), suffix, isGenerated: GENERATED.test(suffix) };
}

/** The prefixes of one packed text, each written once. */
export class PrefixTable {
  readonly #indexes = new Map<string, number>();

  /** Index of `prefix`; adds a new one. */
  add(prefix: string): number {
    const known = this.#indexes.get(prefix);
    if (known !== undefined) return known;
    this.#indexes.set(prefix, this.#indexes.size);
    return this.#indexes.size - 1;
  }

  write(out: ByteWriter): void {
    out.unsigned(this.#indexes.size);
    for (const prefix of this.#indexes.keys()) out.text(prefix);
  }
}

export function readPrefixes(input: ByteReader): readonly string[] {
  const count = input.unsigned();
  if (count > input.remaining) throw new RangeError("packed text ends too early");
  const prefixes: string[] = [];
  for (let index = 0; index < count; index++) prefixes.push(input.text());
  return prefixes;
}

export function writeName(out: ByteWriter, table: PrefixTable, parts: NameParts): void {
  out.unsigned(table.add(parts.prefix));
  if (!parts.isGenerated) {
    out.text(parts.suffix);
    return;
  }
  let number = 0;
  for (const character of parts.suffix) number = number * BASE + ALPHABET.indexOf(character);
  out.byte(number >>> 16);
  out.byte((number >>> 8) & 255);
  out.byte(number & 255);
}

export function readName(input: ByteReader, prefixes: readonly string[], isGenerated: boolean): string {
  const prefix = prefixes[input.unsigned()];
  if (prefix === undefined) throw new RangeError("packed name has no prefix");
  const name = prefix + (isGenerated ? readGenerated(input) : input.text());
  if (name.length > MAX_NAME_CHARS) throw new RangeError("packed name is too long");
  return name;
}

function readGenerated(input: ByteReader): string {
  let number = (input.byte() << 16) | (input.byte() << 8) | input.byte();
  let suffix = "";
  for (let index = 0; index < GENERATED_LENGTH; index++) {
    suffix = ALPHABET.charAt(number % BASE) + suffix;
    number = Math.floor(number / BASE);
  }
  if (number !== 0) throw new RangeError("packed name is out of range");
  return suffix;
}
