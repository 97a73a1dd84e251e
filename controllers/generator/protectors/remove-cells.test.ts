import { describe, expect, test } from "vitest";
import { checkHistory } from "../../../shared/decide/settling/lost-history.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import type { CellStatus, PodProtector, PodProtectorStatus } from "../../../shared/schema/podprotector.ts";
import { parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { makeCell } from "../../../test/support/decide/fixtures.ts";
import { type RemovalCalls, removeCells } from "./remove-cells.ts";

const ANNOTATION = "podseidon.kubewharf.io/remove-cell-once";

function protector(cells: readonly CellStatus[]): PodProtector {
  return {
    metadata: {
      namespace: "ns",
      name: "p",
      uid: "u",
      resourceVersion: "10",
      annotations: { [ANNOTATION]: "gone", kept: "yes" },
    },
    spec: { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: "a" } } },
    status: {
      cells: [...cells],
      summary: { totalReplicas: 6, aggregatedAvailableReplicas: 6, estimatedAvailableReplicas: 6 },
    },
  };
}

/** A core that accepts every write. */
function core(object: PodProtector): { calls: RemovalCalls; written: string[]; stored: () => PodProtector } {
  let stored = object;
  const written: string[] = [];
  const store = (next: PodProtector): PodProtector => {
    const resourceVersion = String(Number(stored.metadata.resourceVersion) + 1);
    stored = { ...next, metadata: { ...next.metadata, resourceVersion } };
    return stored;
  };
  const api: RemovalCalls["api"] = {
    putPodProtectorStatus: async (identity, status: PodProtectorStatus) => {
      written.push(`status at ${identity.resourceVersion}`);
      return { kind: "ok", object: store({ ...stored, status }) };
    },
    update: async <T>(_path: string, body: unknown, parse: (raw: unknown) => T): Promise<ApiResult<T>> => {
      const { metadata } = parsePodProtector(body);
      written.push(`object at ${metadata.resourceVersion}`);
      return { kind: "ok", object: parse(store({ ...stored, metadata })) };
    },
  };
  const signal = new AbortController().signal;
  return { calls: { api, timeoutMs: 1000, signal }, written, stored: () => stored };
}

const entry = (id: string, aggregation: Record<string, unknown> = {}): CellStatus => makeCell(id, 3, [], aggregation);

describe("remove-cell-once", () => {
  test("removes the counts and keeps the epoch; then it removes the annotation", async () => {
    const { calls, written, stored } = core(protector([entry("kept"), entry("gone", { epoch: 6, hold: "Gone/x" })]));
    expect((await removeCells(calls, stored(), ["gone"])).kind).toBe("ok");
    expect(written).toEqual(["status at 10", "object at 11"]);
    const { status, metadata } = stored();
    expect(metadata.annotations).toEqual({ kept: "yes" });
    expect(status?.cells.map(({ cellID }) => cellID)).toEqual(["kept", "gone"]);
    expect(status?.cells[1]).toEqual({
      cellID: "gone",
      aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: 6 },
    });
    expect(status?.summary.aggregatedAvailableReplicas).toBe(3);
  });

  test.each([
    ["with an epoch", { epoch: 6 }, 7],
    ["without one", {}, 1],
  ])("a removed cell that counts again, %s, goes on hold", async (_, aggregation, epoch) => {
    const { calls, stored } = core(protector([entry("gone", aggregation)]));
    await removeCells(calls, stored(), ["gone"]);
    // A repetition finds the entry that the first removal left.
    await removeCells(calls, stored(), ["gone"]);
    const verdict = checkHistory({
      protectorUID: "u",
      protectorVersion: stored().metadata.resourceVersion,
      stored: stored().status?.cells.find(({ cellID }) => cellID === "gone"),
      known: undefined,
      isMarkedRestored: false,
      etcdRestore: undefined,
      token: () => "t",
      nowMs: 1_500,
    });
    expect(verdict).toEqual({ lost: "CellRemoved", epoch, hold: "CellRemoved/1-t" });
  });

  test("of an unknown cell only removes the annotation", async () => {
    const { calls, written, stored } = core(protector([entry("kept")]));
    await removeCells(calls, stored(), ["gone"]);
    expect(written).toEqual(["object at 10"]);
    expect(stored().metadata.annotations).toEqual({ kept: "yes" });
  });
});
