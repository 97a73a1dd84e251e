import { describe, expect, it } from "vitest";
import type { Operation } from "../../../shared/schema/podprotector.ts";
import { standsFor } from "./stored-protectors.ts";

const POD = { uid: "uid-1" };

function recordsOf(...records: readonly (readonly [Operation, string | undefined])[]) {
  return new Map(records.map(([operation, podResourceVersion]) => [operation, { podResourceVersion }]));
}

describe("a record of the pod stands for a request", () => {
  it.each([
    { request: "DELETE", revision: 10, records: recordsOf(["DELETE", "10"]), stands: true },
    { request: "DELETE", revision: 11, records: recordsOf(["DELETE", "10"]), stands: false },
    { request: "DELETE", revision: 11, records: recordsOf(["DELETE", "10"], ["EVICT", undefined]), stands: true },
    { request: "DELETE", revision: 11, records: recordsOf(["EVICT", undefined]), stands: true },
    { request: "DELETE", revision: 11, records: recordsOf(["DELETE", undefined]), stands: true },
    { request: "DELETE", revision: 11, records: recordsOf(["UPDATE", "12"]), stands: false },
    { request: "EVICT", revision: undefined, records: recordsOf(["EVICT", undefined]), stands: true },
    { request: "EVICT", revision: undefined, records: recordsOf(["DELETE", "10"]), stands: false },
    { request: "UPDATE", revision: 11, records: recordsOf(["UPDATE", "11"]), stands: true },
    { request: "UPDATE", revision: 11, records: recordsOf(["UPDATE", "10"]), stands: false },
    { request: "UPDATE", revision: 11, records: recordsOf(["EVICT", undefined]), stands: false },
    { request: "EVICT", revision: undefined, records: undefined, stands: false },
  ] as const)("$request at $revision: $stands", ({ request: operation, revision, records, stands }) => {
    expect(standsFor(records, { ...POD, operation, revision })).toBe(stands);
  });
});
