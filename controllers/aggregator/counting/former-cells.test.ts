import { describe, expect, test } from "vitest";
import type { CellStatus } from "../../../shared/schema/podprotector.ts";
import { AggregatorHarness, SETTLE_MS } from "../../../test/support/aggregator/aggregator-harness.ts";

const SUMMARY = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };

/** An entry as the aggregator of another id has left it, or the generator that removed it. */
function left(cellID: string, pods: number): CellStatus {
  return { cellID, aggregation: { totalReplicas: pods, availableReplicas: pods, epoch: 1 } };
}

/** A leader over three pods, of which `p` has this entry already. */
async function leading(entry: CellStatus, formerCells: () => ReadonlySet<string> | undefined) {
  const harness = new AggregatorHarness({ formerCells });
  harness.core.put("p", {}, { status: { cells: [entry], summary: SUMMARY } });
  for (const name of ["a", "b", "c"]) harness.cell.putUnseen(name);
  await harness.start();
  const available = (): number | undefined => harness.core.entry("p")?.aggregation?.availableReplicas;
  const told = (): unknown[] => harness.events.filter(({ kind }) => kind === "renamed");
  return { harness, available, told };
}

describe("a protector that counts the pods of the cell under an id that it had before", () => {
  test("is counted a settle period after the old entry was removed, however long this process has led", async () => {
    const { harness, available, told } = await leading(left("before", 3), () => new Set(["before"]));
    await harness.run(3 * SETTLE_MS);
    expect([available(), told()]).toEqual([undefined, [{ kind: "renamed", formerCell: "before" }]]);
    const edit = (...cells: CellStatus[]) =>
      harness.core.edit("p", (object) => ({ ...object, status: { cells, summary: SUMMARY } }));
    edit(left("before", 0));
    await harness.run(SETTLE_MS / 2);
    edit();
    await harness.run(SETTLE_MS / 4);
    expect(available()).toBeUndefined();
    await harness.run(SETTLE_MS / 2);
    expect([available(), told().length]).toEqual([3, 1]);
  });

  test("and whose old entry was removed before, is counted a settle period later", async () => {
    const { harness, available } = await leading(left("before", 0), () => new Set(["before"]));
    await harness.run(SETTLE_MS / 2);
    expect(available()).toBeUndefined();
    await harness.run(SETTLE_MS);
    expect(available()).toBe(3);
  });

  test("and under the present one, too, is counted on", async () => {
    const ids = new Set<string>();
    const { harness, available, told } = await leading(left("before", 3), () => ids);
    expect(available()).toBe(3);
    ids.add("before");
    harness.cell.unready("a");
    await harness.run(50);
    expect([available(), told().length]).toEqual([2, 1]);
  });
});

test("no protector is counted for the first time before the former ids are known", async () => {
  let ids: ReadonlySet<string> | undefined;
  const { harness, available } = await leading(left("other", 3), () => ids);
  await harness.run(60_000);
  expect(available()).toBeUndefined();
  ids = new Set(["before"]);
  await harness.run(1_000);
  expect(available()).toBe(3);
});
