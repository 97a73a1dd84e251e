import fc from "fast-check";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { checker } from "./check.ts";
import { PodProtector, parsePodProtector } from "./podprotector.ts";
import { SchemaError } from "./schema-error.ts";

function protector(changes: object = {}): object {
  return {
    metadata: { name: "web", namespace: "shop", uid: "u-1", resourceVersion: "7" },
    spec: { minAvailable: 8, minReadySeconds: 0, selector: { matchLabels: { app: "web" } }, ...changes },
  };
}

function withStatus(cell: object, status: object = {}): object {
  const summary = { totalReplicas: 1, aggregatedAvailableReplicas: 1, estimatedAvailableReplicas: 1 };
  return { ...protector(), status: { cells: [cell], summary, ...status } };
}

function errorOf(run: () => unknown): SchemaError {
  try {
    run();
  } catch (error) {
    if (error instanceof SchemaError) return error;
    throw error;
  }
  throw new Error("was accepted");
}

describe("a PodProtector", () => {
  test("is returned as it is, unknown fields included", () => {
    const raw = { ...withStatus({ cellID: "a", added: { later: [1] } }), apiVersion: "x", other: null };
    const before = structuredClone(raw);
    expect(parsePodProtector(raw)).toBe(raw);
    expect(raw).toEqual(before);
  });

  test.each([
    ["values that this version does not know", protector({ unhealthyPodPolicy: "New", protectedOperations: ["NEW"] })],
    ["a selector that can't be read", protector({ selector: { matchExpressions: [{ key: "a", operator: "Near" }] } })],
    ["a negative minReadySeconds", protector({ minReadySeconds: -1 })],
    ["the largest number", protector({ minAvailable: 2 ** 31 - 1, minReadySeconds: -(2 ** 31) })],
    ["a switch", protector({ countExpectedPods: true })],
    [
      "an event time that Go wrote as null",
      withStatus({ cellID: "a", aggregation: { totalReplicas: 0, availableReplicas: 0, lastEventTime: null } }),
    ],
    ["history without counts", withStatus({ cellID: "a", admissionHistory: { buckets: [{ startTime: "x" }] } })],
  ])("is accepted with %s", (_, raw) => {
    expect(parsePodProtector(raw)).toBe(raw);
  });

  test.each<[string, unknown, string, string]>([
    ["no object", "text", "", 'expected an object, got "text"'],
    ["null", null, "", "got null"],
    ["a list where an object belongs", protector({ selector: [] }), "spec.selector", "got an array"],
    ["no spec", { metadata: { name: "a", uid: "u", resourceVersion: "1" } }, "spec", "is required"],
    ["a text for a number", protector({ minAvailable: "8" }), "spec.minAvailable", 'got "8"'],
    ["a fraction", protector({ minAvailable: 1.5 }), "spec.minAvailable", "expected an integer of at least 0"],
    ["a negative number", protector({ minAvailable: -1 }), "spec.minAvailable", "at least 0"],
    ["more than 32 bits", protector({ minReadySeconds: 2 ** 31 }), "spec.minReadySeconds", "at most 2147483647"],
    ["NaN", protector({ minAvailable: Number.NaN }), "spec.minAvailable", "got NaN"],
    ["null for a required field", protector({ selector: null }), "spec.selector", "got null"],
    [
      "a requirement without a key",
      protector({ selector: { matchExpressions: [{ operator: "Exists" }] } }),
      "spec.selector.matchExpressions[0].key",
      "is required",
    ],
    [
      "a label that is no text",
      protector({ selector: { matchLabels: { "app.io/name": 5 } } }),
      'spec.selector.matchLabels["app.io/name"]',
      "expected a string, got 5",
    ],
    [
      "a bucket deep inside",
      withStatus({ cellID: "a", admissionHistory: { buckets: [{ startTime: "x" }, { startTime: "x", paid: "yes" }] } }),
      "status.cells[0].admissionHistory.buckets[1].paid",
      "expected a boolean",
    ],
  ])("is refused: %s", (_, raw, path, problem) => {
    const error = errorOf(() => parsePodProtector(raw));
    expect(error.path).toBe(path);
    expect(error.message).toContain(problem);
    expect(error.tag).toBe("schema");
  });

  test("is refused without repeating a large input", () => {
    const long = "x".repeat(1_000_000);
    expect(errorOf(() => parsePodProtector(protector({ minAvailable: long }))).message.length).toBeLessThan(200);
    const key = protector({ selector: { matchLabels: { [long]: 5 } } });
    expect(errorOf(() => parsePodProtector(key)).message.length).toBeLessThan(300);
  });
});

describe("a compiled check", () => {
  test("accepts exactly what valibot accepts", () => {
    // No lists where objects belong: valibot accepts a list as an object, JSON schemas and this project do not.
    const scalar = fc.constantFrom(null, undefined, -1, 0, 1.5, 2 ** 40, "", "a", true);
    const junk = fc.oneof(
      scalar,
      fc.dictionary(fc.constantFrom("key", "operator", "values", "enabled", "cellID"), scalar),
    );
    const change = fc.oneof(
      fc.tuple(
        fc.constantFrom(
          ["metadata"],
          ["metadata", "labels"],
          ["spec", "minAvailable"],
          ["spec", "selector"],
          ["spec", "selector", "matchLabels"],
          ["spec", "suspend"],
          ["status"],
          ["status", "summary", "maxLatencyMillis"],
        ),
        junk,
      ),
      fc.tuple(
        fc.constantFrom(
          ["metadata", "finalizers"],
          ["spec", "selector", "matchExpressions"],
          ["spec", "availabilityConditions"],
          ["status", "cells"],
          ["status", "conditions"],
        ),
        fc.oneof(junk, fc.array(junk, { maxLength: 3 })),
      ),
    );
    fc.assert(
      fc.property(fc.array(change, { maxLength: 3 }), (changes) => {
        const raw = structuredClone(withStatus({ cellID: "a" }));
        for (const [steps, value] of changes) put(raw, steps, value);
        let accepted = true;
        try {
          parsePodProtector(raw);
        } catch {
          accepted = false;
        }
        expect(accepted).toBe(v.is(PodProtector, raw));
      }),
      { numRuns: 1000 },
    );
  });

  test("a field that may be absent or null is checked where it is there", () => {
    const parse = checker(v.looseObject({ count: v.nullish(v.number()) }));
    for (const raw of [{}, { count: null }, { count: 1 }]) expect(parse(raw)).toBe(raw);
    expect(errorOf(() => parse({ count: "1" })).message).toContain("expected a number");
  });

  test("rejects a schema that it would not check in full", () => {
    expect(() => checker(v.pipe(v.string(), v.email()))).toThrow("email");
    expect(() => checker(v.tuple([v.string()]))).toThrow("tuple");
  });
});

function put(target: object, [step, ...rest]: readonly string[], value: unknown): void {
  if (step === undefined) return;
  if (rest.length === 0) {
    Object.assign(target, { [step]: value });
    return;
  }
  const next: unknown = new Map<string, unknown>(Object.entries(target)).get(step);
  if (typeof next === "object" && next !== null) put(next, rest, value);
}
