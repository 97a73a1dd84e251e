import { describe, expect, test } from "vitest";
import { seededRandomness } from "../../test/support/runtime/virtual-ports.ts";
import { protector } from "../../test/support/webhook/fixtures.ts";
import { Nonces, UNKNOWN_WRITER, writerOf } from "./nonces.ts";

describe("nonces", () => {
  test("have 8 characters without commas, and differ", () => {
    const nonces = new Nonces(seededRandomness(1));
    const drawn = Array.from({ length: 10_000 }, () => nonces.next());
    for (const nonce of drawn) expect(nonce).toMatch(/^[A-Za-z0-9_-]{8}$/);
    expect(new Set(drawn).size).toBe(drawn.length);
    expect(new Set(drawn.map((nonce) => nonce.slice(0, 4)))).toEqual(new Set([nonces.tag]));
  });

  test("of two replicas differ", () => {
    expect(new Nonces(seededRandomness(1)).tag).not.toBe(new Nonces(seededRandomness(2)).tag);
  });
});

describe("the writer of a version", () => {
  const withNonces = (...nonces: string[]): ReturnType<typeof protector> => {
    const object = protector(1);
    const [cell] = object.status?.cells ?? [];
    if (cell === undefined || object.status === undefined) throw new Error("the fixture has a cell");
    const buckets = nonces.map((nonce) => ({ startTime: "2026-01-01T00:00:00Z", nonce }));
    return { ...object, status: { ...object.status, cells: [{ ...cell, admissionHistory: { buckets } }] } };
  };

  test.each([
    ["a new reservation", ["aaaa0001"], ["aaaa0001", "bbbb0001"], "bbbb"],
    ["a refreshed reservation", ["aaaa0001"], ["aaaa0001,bbbb0007"], "bbbb"],
    ["a reservation less, and none added", ["aaaa0001", "aaaa0002"], ["aaaa0002"], UNKNOWN_WRITER],
    ["nothing", [], [], UNKNOWN_WRITER],
  ])("%s", (_name, before, after, writer) => {
    expect(writerOf(withNonces(...before), withNonces(...after))).toBe(writer);
  });
});
