import { describe, expect, test } from "vitest";
import { makeCell } from "../../../test/support/decide/fixtures.ts";
import type { CellStatus } from "../../schema/podprotector.ts";
import { checkHistory, type HistoryCheckInput, type KnownEntry } from "./lost-history.ts";

const KNOWN: KnownEntry = {
  protectorUID: "p1",
  protectorVersion: "5000",
  wasCounted: true,
  epoch: 2,
  position: "1000",
};

function judge(stored: CellStatus | undefined, rest: Partial<HistoryCheckInput> = {}): ReturnType<typeof checkHistory> {
  return checkHistory({
    protectorUID: "p1",
    protectorVersion: "5001",
    stored,
    known: KNOWN,
    isMarkedRestored: false,
    etcdRestore: undefined,
    token: () => "t",
    nowMs: 1_500,
    ...rest,
  });
}

const cell = (aggregation: Record<string, unknown> = {}): CellStatus =>
  JSON.parse(JSON.stringify(makeCell("a", 3, [], { epoch: 2, ...aggregation }))) as CellStatus;
const uncounted: CellStatus = { cellID: "a", admissionHistory: { buckets: [] } };
const strange = { known: undefined };

describe("lost history", () => {
  const cases: [string, CellStatus | undefined, Partial<HistoryCheckInput>, string | undefined][] = [
    ["as it was written", cell(), {}, undefined],
    ["further than it was written", cell({ resourceVersion: "1001" }), {}, undefined],
    ["another epoch, raised by a new leader", cell({ epoch: 3, resourceVersion: "900" }), {}, undefined],
    ["position went back", cell({ resourceVersion: "999" }), {}, "Behind"],
    [
      "one shard's position went back",
      cell({ resourceVersion: "2000,999" }),
      { known: { ...KNOWN, position: "1000,1000" } },
      "Behind",
    ],
    ["epoch went back", cell({ epoch: 1, resourceVersion: "2000" }), {}, "Behind"],
    ["the protector's version went back, the entry did not", cell(), { protectorVersion: "4999" }, "Behind"],
    ["the entry is gone", undefined, {}, "Gone"],
    ["the entry is there without its counts", uncounted, {}, "Gone"],
    [
      "the position is gone",
      cell({ resourceVersion: undefined, specHash: undefined, epoch: undefined }),
      { known: { ...KNOWN, epoch: 0 } },
      "NoPosition",
    ],
    [
      "position and epoch are gone",
      cell({ resourceVersion: undefined, specHash: undefined, epoch: undefined }),
      {},
      "Behind",
    ],
    ["another protector of the same name", cell(), { protectorUID: "p2" }, "Recreated"],
    ["another protector, never counted", undefined, { protectorUID: "p2" }, "Recreated"],
    ["first seen, counted by an earlier leader", cell(), strange, undefined],
    [
      "first seen, counted by an upstream aggregator",
      cell({ resourceVersion: undefined, epoch: undefined }),
      strange,
      "NoPosition",
    ],
    ["first seen, never counted", undefined, strange, undefined],
    ["first seen, an entry that only a webhook wrote", uncounted, strange, undefined],
    [
      "never counted, as before",
      undefined,
      { known: { ...KNOWN, wasCounted: false, epoch: 0, position: undefined } },
      undefined,
    ],
    ["first seen, restored from a backup", uncounted, { ...strange, isMarkedRestored: true }, "Restored"],
    ["restored from a backup, and counted since", cell(), { ...strange, isMarkedRestored: true }, undefined],
    [
      "first seen, the entry was removed and left its epoch",
      { cellID: "a", aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: 7 } },
      strange,
      "CellRemoved",
    ],
    [
      "the core is older than the version seen before",
      cell(),
      { etcdRestore: { id: "i", reason: "CoreRestored" } },
      "CoreRestored",
    ],
    ["the cell was restored", cell(), { etcdRestore: { id: "i", reason: "CellRestored" } }, "CellRestored"],
    [
      "a restore that was handled",
      cell(),
      { etcdRestore: { id: "i", reason: "CellRestored" }, known: { ...KNOWN, etcdRestoreID: "i" } },
      undefined,
    ],
    [
      "first seen, the cell was restored",
      cell(),
      { ...strange, etcdRestore: { id: "i", reason: "CellRestored" } },
      "CellRestored",
    ],
    [
      "a restore, never counted",
      undefined,
      { ...strange, etcdRestore: { id: "i", reason: "CellRestored" } },
      undefined,
    ],
  ];
  test.each(cases)("%s", (_, stored, input, lost) => {
    const verdict = judge(stored, input);
    expect(verdict.lost).toBe(lost);
    if (lost === undefined) expect(verdict.hold).toBeUndefined();
    else expect(verdict.hold).toBe(`${lost}/1-t`);
  });

  test("the epoch rises above every known epoch", () => {
    expect(judge(cell({ epoch: 1 })).epoch).toBe(3);
    expect(judge(cell({ epoch: 9 }), { protectorUID: "p2" }).epoch).toBe(10);
    const left: CellStatus = { cellID: "a", aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: 40 } };
    expect(judge(left, strange).epoch).toBe(41);
    expect(judge(cell()).epoch).toBe(2);
  });

  test("an epoch that can't rise any more stays a number that the CRD takes, and the cell is held", () => {
    const highest = cell({ epoch: Number.MAX_SAFE_INTEGER, resourceVersion: "999" });
    const found = judge(highest, { known: { ...KNOWN, epoch: Number.MAX_SAFE_INTEGER } });
    expect(found).toEqual({ lost: "Behind", epoch: Number.MAX_SAFE_INTEGER, hold: "Behind/1-t" });
  });

  test("a stored hold is kept, another loss replaces it", () => {
    expect(judge(cell({ hold: "Gone/old" })).hold).toBe("Gone/old");
    expect(judge(cell({ hold: "Gone/old", resourceVersion: "1" })).hold).toBe("Behind/1-t");
  });

  test("a webhook's hold on an uncounted entry is kept", () => {
    const held: CellStatus = {
      cellID: "a",
      aggregation: { totalReplicas: 0, availableReplicas: 0, hold: "WentBack/w" },
    };
    const kept = { lost: undefined, epoch: 0, hold: "WentBack/w" };
    expect(judge(held, strange)).toEqual(kept);
    expect(judge(held, { ...strange, isMarkedRestored: true })).toEqual(kept);
  });
});
