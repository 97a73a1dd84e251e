/** Hostile objects: valid ones, changed at random places into what may break a parser. One seed gives one history. */
import type { Randomness } from "../../../shared/runtime/clock.ts";

export type HostileJson =
  | string
  | number
  | boolean
  | null
  | readonly HostileJson[]
  | { readonly [key: string]: HostileJson };

/** Present in every object, in fields that no program needs. It must not appear in a log. */
export const PRIVATE_TEXT = "kept-to-itself-7d1f";

const MAX_CHANGES = 6;
const LONG = 20_000;
/** Deep enough to overflow a recursive parser, and within the size of an admission request. */
const DEEP = 5_000;

const VALUES: readonly ((random: Randomness) => HostileJson)[] = [
  () => null,
  () => "",
  () => [],
  () => ({}),
  () => true,
  () => -1,
  () => 0,
  () => 2 ** 53,
  () => 1e308,
  () => 0.5,
  () => "NaN",
  () => "2026-13-45T99:99:99Z",
  () => "0001-01-01T00:00:00.999999999Z",
  () => "99999999999999999999999999",
  () => "__proto__",
  () => "constructor",
  () => "../../etc/passwd",
  () => "\u0000\ud800\uffff",
  () => "a,b=c;d\r\nx: y",
  // Slow for backtracking regular expressions.
  () => `${"a".repeat(LONG)}!`,
  () => `${"1".repeat(LONG)}.`,
  () => " ".repeat(LONG),
  () => "-".repeat(LONG),
  (random) => Math.floor(random.fraction() * 2 ** 32),
  (random) => random.token(),
  () => Array.from({ length: 500 }, () => null),
  () => Array.from({ length: 300 }, (_, index) => ({ key: `k${index}`, operator: "In", values: [`v${index}`] })),
  () => Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`key-${index}`, `value-${index}`])),
  () => JSON.parse(`${"[".repeat(200)}${"]".repeat(200)}`),
  () => JSON.parse('{"__proto__":{"polluted":"yes"},"constructor":{"prototype":{"polluted":"yes"}},"toString":1}'),
];

/** Returns the object with up to six places changed, removed, or moved. */
export function hostile(base: HostileJson, random: Randomness): HostileJson {
  let object = structuredClone(base);
  const changes = Math.floor(random.fraction() * (MAX_CHANGES + 1));
  for (let change = 0; change < changes; change++) object = changed(object, random);
  return object;
}

function pick<T>(list: readonly T[], random: Randomness): T | undefined {
  return list[Math.floor(random.fraction() * list.length)];
}

/** Descends at random, and changes what it reaches. */
function changed(value: HostileJson, random: Randomness): HostileJson {
  const isContainer = typeof value === "object" && value !== null;
  if (!isContainer || random.fraction() < 0.15) return pick(VALUES, random)?.(random) ?? null;
  if (Array.isArray(value)) {
    const at = Math.floor(random.fraction() * value.length);
    if (value.length === 0) return [pick(VALUES, random)?.(random) ?? null];
    return value.flatMap((item, index) => (index !== at ? [item] : changedItem(item, random)));
  }
  const entries = Object.entries(value);
  const [name = random.token()] = pick(entries, random) ?? [];
  if (random.fraction() < 0.1) return Object.fromEntries(entries.filter(([key]) => key !== name));
  return Object.fromEntries([
    ...entries.filter(([key]) => key !== name),
    [name, changed(Reflect.get(value, name) ?? null, random)],
  ]);
}

function changedItem(item: HostileJson, random: Randomness): readonly HostileJson[] {
  if (random.fraction() < 0.2) return [];
  if (random.fraction() < 0.2) return [item, item];
  return [changed(item, random)];
}

/** The text of an object. Some texts are cut, altered, or nested without end, as no serializer writes them. */
export function hostileText(object: HostileJson, random: Randomness): Buffer {
  const text = JSON.stringify(object);
  const kind = random.fraction();
  if (kind < 0.9) return Buffer.from(text);
  const at = Math.floor(random.fraction() * text.length);
  if (kind < 0.93) return Buffer.from(text.slice(0, at));
  if (kind < 0.96)
    return Buffer.concat([
      Buffer.from(text.slice(0, at)),
      Buffer.from([0xff, 0xfe, 0x00, 0xc3]),
      Buffer.from(text.slice(at)),
    ]);
  if (kind < 0.98) return Buffer.from("[".repeat(DEEP) + "]".repeat(DEEP));
  return Buffer.from(text.replace("{", `{"request":${'{"a":'.repeat(DEEP)}1${"}".repeat(DEEP)},`));
}
