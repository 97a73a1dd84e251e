import fc from "fast-check";
import { expect, test } from "vitest";
import { LineSplitter } from "./line-splitter.ts";

function split(bytes: Uint8Array, cuts: readonly number[]): string[] {
  const splitter = new LineSplitter();
  const ends = [...new Set(cuts.map((cut) => Math.min(cut, bytes.length)))].sort((a, b) => a - b);
  const lines: string[] = [];
  let start = 0;
  for (const end of [...ends, bytes.length]) {
    lines.push(...splitter.push(bytes.subarray(start, end)));
    start = end;
  }
  return lines;
}

test("any text is split into its lines, wherever its chunks end, even inside a character", () => {
  const line = fc.string({ unit: "grapheme" }).map((text) => text.replaceAll("\n", ""));
  fc.assert(
    fc.property(fc.array(line), fc.array(fc.nat(200)), (lines, cuts) => {
      const bytes = new TextEncoder().encode(lines.map((text) => `${text}\n`).join(""));
      expect(split(bytes, cuts)).toEqual(lines.filter((text) => text !== ""));
    }),
  );
});

test("an unfinished line is not delivered", () => {
  const splitter = new LineSplitter();
  expect([...splitter.push(new TextEncoder().encode("whole\npart"))]).toEqual(["whole"]);
  expect(splitter.pendingBytes).toBe(4);
});

test("the beginning of a line is copied, so that it does not keep its chunk in memory", () => {
  const splitter = new LineSplitter();
  const chunk = Buffer.from("begin");
  expect([...splitter.push(chunk)]).toEqual([]);
  chunk.fill("x");
  expect([...splitter.push(Buffer.from("ning\n"))]).toEqual(["beginning"]);
});

test("a line that is too long throws before it fills memory", () => {
  const splitter = new LineSplitter(10);
  expect(() => {
    for (let i = 0; i < 4; i++) [...splitter.push(new TextEncoder().encode("1234"))];
  }).toThrow(expect.objectContaining({ tag: "corrupt" }));
  expect(splitter.pendingBytes).toBeLessThanOrEqual(10);
});

test("bytes that are not UTF-8 are corruption, not replacement characters", () => {
  expect(() => [...new LineSplitter().push(Uint8Array.of(0x7b, 0xff, 0x7d, 0x0a))]).toThrow(
    expect.objectContaining({ tag: "corrupt" }),
  );
});

test("a kept part of a chunk does not keep the chunk in memory", () => {
  const splitter = new LineSplitter();
  const chunk = new Uint8Array(new TextEncoder().encode("a\nbc"));
  expect([...splitter.push(chunk)]).toEqual(["a"]);
  chunk.fill(0x78);
  expect([...splitter.push(new TextEncoder().encode("\n"))]).toEqual(["bc"]);
});

test("a line in parts of a byte each, which take far more memory than their bytes, throws as well", () => {
  const splitter = new LineSplitter(10_000);
  expect(() => {
    for (let i = 0; i < 100; i++) [...splitter.push(new TextEncoder().encode("1"))];
  }).toThrow(expect.objectContaining({ tag: "corrupt" }));
});
