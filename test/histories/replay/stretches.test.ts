import { expect, test } from "vitest";
import { readHistory } from "../checker/history.ts";
import { protectorsOf } from "../checker/protector-history.ts";
import { spansOf, stretchesOf } from "./stretches.ts";

type Line = Readonly<Record<string, unknown>>;

const HEAD: Line = { kind: "head", core: "core", cells: { east: "cell" }, settleMs: 1_000 };
const REPLACED: Line = {
  ...{ kind: "replaced", cluster: "core", resource: "podprotectors", history: 1, inherits: 0, atMs: 5_000 },
};

function stored(history: number, revision: number, atMs: number, aggregation: Line): Line {
  const status = { cells: [{ cellID: "east", aggregation: { availableReplicas: 1, ...aggregation } }] };
  const object = { metadata: { uid: "p", generation: 1 }, spec: { minAvailable: 1, selector: {} }, status };
  const about = { kind: "version", cluster: "core", resource: "podprotectors", key: "default/web" };
  return { ...about, history, revision, atMs, object };
}

function stretches(lines: readonly Line[]) {
  return stretchesOf(readHistory([HEAD, ...lines, { kind: "end", atMs: 9_000 }].map((line) => JSON.stringify(line))));
}

function spans(lines: readonly Line[]) {
  return stretches(lines).map((stretch) => {
    const found = spansOf(stretch, protectorsOf(stretch.history));
    return found.map(({ fromMs, endMs }) => [fromMs, endMs]);
  });
}

const FIRST = stored(0, 10, 1_000, { resourceVersion: "3" });

test("a history without a restore is one stretch, and one world", () => {
  const lines = [FIRST, stored(0, 11, 2_000, { resourceVersion: "4" })];
  expect(stretches(lines)).toHaveLength(1);
  expect(spans(lines)).toEqual([[[-Infinity, Infinity]]]);
});

const LOST = stored(0, 11, 2_000, { resourceVersion: "4" });
const AGAIN = stored(1, 10, 5_001, { resourceVersion: "3" });
const HELD = stored(1, 11, 6_000, { resourceVersion: "4", epoch: 1, hold: "WentBack/1-x" });
const FREE = stored(1, 12, 8_000, { resourceVersion: "5", epoch: 1 });

test("what a restored core tells again is no step of the new history", () => {
  const [, last] = stretches([FIRST, LOST, REPLACED, AGAIN, HELD, FREE]);
  const [protector] = protectorsOf(last?.history ?? expect.fail("there is one stretch"));
  expect(protector?.steps.map(({ moment }) => moment.revision)).toEqual([11, 12]);
});

test("a world ends with the restore, and the next one begins after the last hold", () => {
  expect(spans([FIRST, LOST, REPLACED, AGAIN, HELD, FREE])).toEqual([[[-Infinity, 5_000]], [[6_000, Infinity]]]);
});

test("a protector that is made after the restore has a world from its beginning", () => {
  expect(spans([REPLACED, stored(1, 12, 8_000, { resourceVersion: "5" })])[1]).toEqual([[-Infinity, Infinity]]);
});
