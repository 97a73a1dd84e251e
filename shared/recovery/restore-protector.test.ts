import { expect, test } from "vitest";
import { makeCell, makeProtector, makeSpec } from "../../test/support/decide/fixtures.ts";
import type { CellStatus } from "../schema/podprotector.ts";
import { type RestoreCalls, restore } from "./restore-protector.ts";

const hold = "Restored/1-t";
const zero = { totalReplicas: 0, availableReplicas: 0 };
const asks = makeSpec({ countExpectedPods: true });
const removed = { cellID: "removed", aggregation: { ...zero, epoch: 1 } };

/** The cells that are written; `meanwhile`: those that others have written since the creation. */
async function restored(
  cells: readonly CellStatus[],
  holdText: string | undefined,
  meanwhile: readonly CellStatus[] = [],
  conflicts = meanwhile.length > 0 ? 1 : 0,
) {
  const writes: (readonly CellStatus[])[] = [];
  let left = conflicts;
  const api: RestoreCalls = {
    create: async (_path, _body, parse) => ({ kind: "ok", object: parse({ ...makeProtector([], asks) }) }),
    putPodProtectorStatus: async (_, status) => {
      if (left > 0) return { kind: "conflict", message: "changed" };
      writes.push(status.cells);
      return { kind: "ok", object: makeProtector([], asks) };
    },
    getPodProtector: async () => {
      left--;
      return { kind: "ok", object: makeProtector([...meanwhile], asks) };
    },
  };
  await restore(api, {}, makeProtector([...cells], asks), { timeoutMs: 1_000 }, holdText);
  return writes;
}

test("each cell that counted a budget over cells keeps its part of the number, but no count, on hold", async () => {
  const { specHash } = makeCell("a", 9, [], {}, asks).aggregation ?? {};
  const lost = [
    makeCell("a", 9, [], { expectedReplicas: 10 }, asks),
    makeCell("silent", 2, [], {}, asks),
    { cellID: "lost before", aggregation: { ...zero, expectedReplicas: 4, hold: "Restored/0-t" } },
    removed,
  ];
  const parts = [
    { cellID: "a", aggregation: { ...zero, expectedReplicas: 10, specHash, hold } },
    { cellID: "silent", aggregation: { ...zero, specHash, hold } },
    { cellID: "lost before", aggregation: { ...zero, expectedReplicas: 4, hold } },
  ];
  expect(await restored(lost, hold)).toEqual([[...parts, removed]]);
  expect(await restored(lost, undefined)).toEqual([]);
});

// Its webhook may still be there, and puts it on hold. As a cell that was never removed, it would be waited for.
test("a removed cell stays removed in a budget over cells, whatever its webhook has written", async () => {
  const held = { ...removed, aggregation: { ...removed.aggregation, hold: "Replaced/0-t" } };
  expect(await restored([held], hold)).toEqual([[removed]]);
  const since = { cellID: "removed", aggregation: { ...zero, hold: "Replaced/2-t" } };
  expect(await restored([removed], hold, [since])).toEqual([
    [{ cellID: "removed", aggregation: { ...removed.aggregation, hold: "Replaced/2-t" } }],
  ]);
});

// The aggregators of many cells count a new protector at once.
test("the parts of the number are written after the entries of many cells", async () => {
  const lost = [makeCell("a", 9, [], { expectedReplicas: 10 }, asks)];
  expect(await restored(lost, hold, [], 15)).toHaveLength(1);
});

test("what cells have written since stays", async () => {
  const lost = ["a", "b"].map((cell) => makeCell(cell, 9, [], { expectedReplicas: 10 }, asks));
  const { specHash } = lost[0]?.aggregation ?? {};
  const counted = makeCell("a", 3, [], { expectedReplicas: 3, hold: "Recreated/2-t" }, asks);
  const held = { cellID: "b", aggregation: { ...zero, hold: "Replaced/2-t" } };
  const merged = { cellID: "b", aggregation: { ...held.aggregation, expectedReplicas: 10, specHash } };
  expect(await restored(lost, hold, [counted, held])).toEqual([[counted, merged]]);
});
