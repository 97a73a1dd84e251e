import { describe, expect, it } from "vitest";
import type { InFlightRequest } from "../actors/admission-requests.ts";
import type { EtcdChange, EtcdObject, Json } from "../apiserver/etcd.ts";
import { Denials } from "./denials.ts";

const KEY = "podprotectors/default/web";

/** A version with `available` pods in one cell, and `reserved` disruptions in flight. */
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
  const after: EtcdObject = { key: KEY, revision, value };
  return { revision, key: KEY, before: undefined, after };
}

const GONE: EtcdChange = { revision: 9, key: KEY, before: undefined, after: undefined };

describe("L6", () => {
  const asked = 1_000;
  it.for([
    ["a denial at the minimum, while the request was decided", "AtMinimum", [[500, version(1, 3, 3, 0)]], 0],
    [
      "a denial at the minimum that was past before the request",
      "AtMinimum",
      [
        [500, version(1, 3, 3, 0)],
        [900, version(2, 3, 5, 0)],
      ],
      1,
    ],
    [
      "a denial at the minimum that ended during the request",
      "AtMinimum",
      [
        [500, version(1, 3, 3, 0)],
        [1_100, version(2, 3, 5, 0)],
      ],
      0,
    ],
    ["busy with all quota reserved", "Reserved", [[500, version(1, 3, 5, 2)]], 0],
    ["busy with quota left", "Reserved", [[500, version(1, 3, 5, 1)]], 1],
    ["busy in a cell on hold", "OnHold", [[500, version(1, 3, 5, 0, "Behind/x")]], 0],
    ["busy for a hold that the cell does not have", "OnHold", [[500, version(1, 3, 5, 0)]], 1],
    ["busy as not counted, in a cell that is counted", "NotCounted", [[500, version(1, 3, 5, 0)]], 1],
    ["a denial at the minimum by a protector that no longer exists", "AtMinimum", [[900, GONE]], 1],
    ["a denial for a cause that no version decides", "recovering", [[900, GONE]], 0],
  ] as const)("%s", ([, cause, versions, expected]) => {
    let nowMs = 0;
    const violations: string[] = [];
    const denials = new Denials(
      (invariant) => violations.push(invariant),
      () => nowMs,
    );
    for (const [atMs, change] of versions) {
      nowMs = atMs;
      denials.changed("core", change);
    }
    nowMs = 1_200;
    const inFlight: InFlightRequest = {
      ...{ cell: "one", uid: "uid", key: "pods/default/web-9", operation: "DELETE", revision: 7 },
      ...{ forced: false, askedMs: asked, state: "asked" },
    };
    denials.denied("one", inFlight, [`core/default/web=${cause}`]);
    expect(violations).toEqual(Array.from({ length: expected }, () => "L6"));
  });
});
