import { describe, expect, it } from "vitest";
import type { InFlight } from "../actors/admission-requests.ts";
import type { EtcdChange, Json, Stored } from "../apiserver/etcd.ts";
import { Rejections } from "./rejections.ts";

const KEY = "podprotectors/default/web";

/** A version with `available` pods in one cell and `reserved` deletions under way. */
function version(
  revision: number,
  minAvailable: number,
  available: number,
  reserved: number,
  hold?: string,
): EtcdChange {
  const aggregation: Json = {
    ...{ totalReplicas: available, availableReplicas: available, lastEventTime: "2026-01-01T00:00:00.000000Z" },
    ...{ resourceVersion: "5", ...(hold === undefined ? {} : { hold }) },
  };
  const buckets = Array.from({ length: reserved }, (_, index) => ({
    ...{
      startTime: "2026-01-01T00:00:00.000000Z",
      podUID: `uid-${index}`,
      podName: `web-${index}`,
      nonce: `n${index}`,
    },
    ...{ podResourceVersion: "4", operation: "DELETE", paid: true },
  }));
  const value: Json = {
    metadata: { name: "web", namespace: "default", uid: "p" },
    spec: { minAvailable, minReadySeconds: 0, selector: { matchLabels: { app: "web" } } },
    status: {
      cells: [{ cellID: "one", aggregation, admissionHistory: { buckets } }],
      summary: { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 },
    },
  };
  const after: Stored = { key: KEY, revision, value };
  return { revision, key: KEY, before: undefined, after };
}

const GONE: EtcdChange = { revision: 9, key: KEY, before: undefined, after: undefined };

describe("L6", () => {
  const asked = 1_000;
  it.for([
    ["at the minimum while it was asked", "AtMinimum", [[500, version(1, 3, 3, 0)]], 0],
    [
      "at the minimum only before",
      "AtMinimum",
      [
        [500, version(1, 3, 3, 0)],
        [900, version(2, 3, 5, 0)],
      ],
      1,
    ],
    [
      "at the minimum, then more",
      "AtMinimum",
      [
        [500, version(1, 3, 3, 0)],
        [1_100, version(2, 3, 5, 0)],
      ],
      0,
    ],
    ["all reserved", "Reserved", [[500, version(1, 3, 5, 2)]], 0],
    ["not all reserved", "Reserved", [[500, version(1, 3, 5, 1)]], 1],
    ["on hold", "OnHold", [[500, version(1, 3, 5, 0, "Behind/x")]], 0],
    ["not on hold", "OnHold", [[500, version(1, 3, 5, 0)]], 1],
    ["counted", "NotCounted", [[500, version(1, 3, 5, 0)]], 1],
    ["at the minimum, and not there any more", "AtMinimum", [[900, GONE]], 1],
    ["for a cause that no version decides, and not there any more", "recovering", [[900, GONE]], 0],
  ] as const)("%s", ([, cause, versions, expected]) => {
    let nowMs = 0;
    const violations: string[] = [];
    const rejections = new Rejections(
      (invariant) => violations.push(invariant),
      () => nowMs,
    );
    for (const [atMs, change] of versions) {
      nowMs = atMs;
      rejections.changed("core", change);
    }
    nowMs = 1_200;
    const flight: InFlight = {
      ...{ cell: "one", uid: "uid", key: "pods/default/web-9", operation: "DELETE", revision: 7 },
      ...{ forced: false, askedMs: asked, state: "asked" },
    };
    rejections.refused("one", flight, [`core/default/web=${cause}`]);
    expect(violations).toEqual(Array.from({ length: expected }, () => "L6"));
  });
});
