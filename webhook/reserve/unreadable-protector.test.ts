import { expect, test } from "vitest";
import { unreadableProtector } from "./unreadable-protector.ts";

const metadata = { namespace: "ns", name: "a", uid: "u", resourceVersion: "7", generation: 2 };
const spec = { minAvailable: 3, minReadySeconds: 5, selector: { matchLabels: { app: "a" } }, enforcement: "Warn" };

test.each([
  ["an unreadable status is none", { metadata, spec, status: { cells: [] } }, spec],
  [
    "an unreadable spec keeps its selector",
    { metadata, spec: { ...spec, minAvailable: undefined } },
    { minAvailable: 1, minReadySeconds: 0, selector: spec.selector },
  ],
  [
    "an unreadable selector selects every pod",
    { metadata, spec: { ...spec, selector: undefined } },
    { minAvailable: 1, minReadySeconds: 0, selector: {} },
  ],
  ["a missing spec does, too", { metadata }, { minAvailable: 1, minReadySeconds: 0, selector: {} }],
])("%s", (_, raw, expected) => {
  const protector = unreadableProtector(raw);
  expect(protector).toEqual({ metadata: { ...metadata, resourceVersion: "0" }, spec: expected });
});

test("what has no metadata is no protector", () => {
  expect(unreadableProtector({ metadata: { name: "a" }, spec })).toBeUndefined();
});
