import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { pathSegment } from "../../shared/certificates/ca-bundle.ts";
import { temporaryDirectory } from "../../test/support/runtime/temporary-directory.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { secretPaths } from "./secret-path.ts";

const pem = (body: string): string => `-----BEGIN CERTIFICATE-----\n${body}\n-----END CERTIFICATE-----\n`;
const [FIRST, SECOND, THIRD] = [pem("AAAA"), pem("BBBB"), pem("CCCC")];

const folder = temporaryDirectory();

test("the segments of all published authorities are known, and those before them", async () => {
  const time = new VirtualTime();
  const file = join(folder, "ca.crt");
  writeFileSync(file, FIRST);
  const isKnown = secretPaths(file, time.clock, () => undefined);
  const known = (): boolean[] => [FIRST, SECOND, THIRD].map((one) => isKnown(pathSegment(one)));
  expect(known()).toEqual([true, false, false]);
  expect(["", "~", "AAAA", `${pathSegment(FIRST)}x`].map(isKnown)).toEqual([false, false, false, false]);
  writeFileSync(file, FIRST + SECOND);
  // A caller who guesses has the file read once a second.
  expect(known()).toEqual([true, false, false]);
  await time.advance(1_000);
  expect(known()).toEqual([true, true, false]);
  writeFileSync(file, SECOND + THIRD);
  await time.advance(1_000);
  expect(isKnown(pathSegment(THIRD))).toBe(true);
  expect(known()).toEqual([true, true, true]);
  rmSync(file);
  await time.advance(1_000);
  expect([isKnown("guess"), isKnown(pathSegment(THIRD))]).toEqual([false, true]);
});

test("of the authorities that were replaced, the oldest are forgotten", async () => {
  const time = new VirtualTime();
  const file = join(folder, "rotated.crt");
  const authorities = ["A", "B", "C", "D", "E", "F", "G", "H", "I"].map((letter) => pem(letter.repeat(4)));
  writeFileSync(file, FIRST);
  const isKnown = secretPaths(file, time.clock, () => undefined);
  for (const one of authorities) {
    writeFileSync(file, one);
    await time.advance(1_000);
    expect(isKnown(pathSegment(one))).toBe(true);
  }
  const known = authorities.map((one) => isKnown(pathSegment(one)));
  expect(known).toEqual([false, ...Array.from({ length: 8 }, () => true)]);
});

test.each([
  ["emptied", (file: string) => writeFileSync(file, ""), /no certificate/],
  ["half written", (file: string) => writeFileSync(file, FIRST.slice(0, 30)), /no certificate/],
  ["deleted", (file: string) => rmSync(file), /ENOENT/],
  ["now a directory", (file: string) => [rmSync(file), mkdirSync(file)], /EISDIR/],
])(
  "a file that is %s is told of once; what it held stays in force, and a new one is followed",
  async (_, spoil, why) => {
    const time = new VirtualTime();
    const file = join(folder, "spoilt.crt");
    rmSync(file, { recursive: true, force: true });
    writeFileSync(file, FIRST);
    const told: string[] = [];
    const isKnown = secretPaths(file, time.clock, (text) => told.push(text));
    spoil(file);
    for (let times = 0; times < 3; times++) {
      await time.advance(1_000);
      expect([isKnown(pathSegment(SECOND)), isKnown(pathSegment(FIRST))]).toEqual([false, true]);
    }
    expect(told).toEqual([expect.stringMatching(why)]);
    rmSync(file, { recursive: true, force: true });
    writeFileSync(file, SECOND);
    await time.advance(1_000);
    expect(isKnown(pathSegment(SECOND))).toBe(true);
    expect(told).toHaveLength(1);
  },
);

test("a file without a certificate is an error, not an open door", () => {
  const file = join(folder, "empty");
  writeFileSync(file, "");
  expect(() => secretPaths(file, new VirtualTime().clock)).toThrow("holds no certificate");
  expect(() => secretPaths(join(folder, "absent"), new VirtualTime().clock)).toThrow("absent");
});
