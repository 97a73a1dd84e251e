import { expect, test } from "vitest";
import { namespacedName, type PodProtector } from "../../../shared/schema/podprotector.ts";
import { makeCell } from "../../../test/support/decide/fixtures.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { GeneratorEvent } from "./events.ts";
import { RestoredCells } from "./restored-cells.ts";

type Cells = NonNullable<PodProtector["status"]>["cells"];

function protector(cells: Cells, resourceVersion: string): PodProtector {
  return {
    metadata: { namespace: "ns", name: "p", uid: "u", resourceVersion },
    spec: { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: "a" } } },
    status: { cells, summary: { totalReplicas: 6, aggregatedAvailableReplicas: 6, estimatedAvailableReplicas: 6 } },
  };
}

/** A core that accepts a write on the newest version alone, and a watch that shows what `watched` is set to. */
function world(cells: Cells, mayWrite = true) {
  const time = new VirtualTime();
  let stored = protector(cells, "10");
  let watched = stored;
  const events: GeneratorEvent[] = [];
  const restored = new RestoredCells({
    api: {
      putPodProtectorStatus: async ({ resourceVersion }, status) => {
        if (resourceVersion !== stored.metadata.resourceVersion) return { kind: "conflict", message: "changed" };
        stored = { ...stored, metadata: { ...stored.metadata, resourceVersion: "20" }, status };
        return { kind: "ok", object: stored };
      },
    },
    protectors: {
      get: (key) => (key === namespacedName(watched.metadata) ? watched : undefined),
      values: () => [watched],
    },
    ...{ ports: time, workers: 1, timeoutMs: 1000, mayWrite: () => mayWrite, onEvent: (event) => events.push(event) },
  });
  const holds = () => stored.status?.cells.map(({ aggregation }) => aggregation?.hold?.replace(/\/.*/, ""));
  const write = (next: Cells): void => {
    stored = protector(next, "11");
  };
  const show = (): void => {
    watched = stored;
  };
  return { time, restored, events, holds, write, show };
}

test("counted entries are put on hold, and those that are on hold or removed stay as they are", async () => {
  const removed = { cellID: "removed", aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: 3 } };
  const { time, restored, events, holds } = world([
    makeCell("a", 3),
    makeCell("b", 3, [], { hold: "Gone/1-t" }),
    removed,
  ]);
  const workers = restored.start();
  restored.restored();
  await time.advance(100);
  expect(holds()).toEqual(["CoreRestored", "Gone", undefined]);
  expect(events).toEqual([{ kind: "cellsHeld", protector: "ns/p", cells: ["a"] }]);
  await workers.stop();
});

test("an entry that its cell has written since the restore is left", async () => {
  const { time, restored, events, holds, write, show } = world([makeCell("a", 3), makeCell("b", 3)]);
  const workers = restored.start();
  restored.restored();
  write([makeCell("a", 2, [], { epoch: 1 }), makeCell("b", 3)]);
  await time.advance(10);
  expect(events.map(({ kind }) => kind)).toEqual(["failed"]);
  show();
  await time.advance(1_000);
  expect(holds()).toEqual([undefined, "CoreRestored"]);
  await workers.stop();
});

test("a leader that is deposed holds nothing", async () => {
  const { time, restored, events, holds } = world([makeCell("a", 3)], false);
  const workers = restored.start();
  restored.restored();
  await time.advance(100);
  expect([holds(), events]).toEqual([[undefined], []]);
  await workers.stop();
});
