import { describe, expect, it } from "vitest";
import type { InFlightRequest, ObservedResponse } from "../actors/admission-requests.ts";
import type { EtcdObject, Json } from "../apiserver/etcd.ts";
import { Exemptions } from "./exemptions.ts";
import { Suspensions } from "./suspensions.ts";

const START_MS = Date.UTC(2026, 0, 1);

function version(revision: number, suspend: Json | undefined): EtcdObject {
  const spec = { minAvailable: 3, minReadySeconds: 0, selector: { matchLabels: { app: "web" } }, suspend };
  return { key: "podprotectors/default/web", revision, value: { metadata: { name: "web", uid: "p" }, spec } };
}

const inFlight: InFlightRequest = {
  ...{ cell: "one", uid: "uid", key: "pods/default/web-9", operation: "DELETE", revision: 7 },
  ...{ forced: false, askedMs: 30_000, state: "asked" },
};

function response(allowed: boolean, reason: string, wallMs: number): ObservedResponse {
  const clock = { earliest: START_MS + wallMs, latest: START_MS + wallMs };
  return {
    ...{ request: {}, allowed, code: allowed ? 200 : 429, message: "", isOnlyWarned: false, podsOfNode: [] },
    ...{ decisions: [`core/default/web=${reason}`], reasons: [reason], wallMs: clock },
  };
}

const until = (ms: number): Json => ({ enabled: true, until: new Date(START_MS + ms).toISOString() });
const SWITCHED_ON: Json = { enabled: true };

describe("a pod is allowed, or denied, at 30 s", () => {
  it.for<[string, (readonly [number, Json | undefined])[], ObservedResponse, string[]]>([
    ["allowed while suspended", [[10_000, SWITCHED_ON]], response(true, "Suspended", 30_000), []],
    ["allowed before the suspension expires", [[10_000, until(31_000)]], response(true, "Suspended", 30_000), []],
    ["allowed when the suspension expires", [[10_000, until(30_000)]], response(true, "Suspended", 30_000), ["S8"]],
    ["allowed after it expired, by a late clock", [[10_000, until(29_000)]], response(true, "Suspended", 20_000), []],
    ["allowed as suspended, but never suspended", [], response(true, "Suspended", 30_000), ["S8"]],
    [
      "allowed just after the suspension was switched off",
      [
        [10_000, SWITCHED_ON],
        [15_000, undefined],
      ],
      response(true, "Suspended", 30_000),
      [],
    ],
    [
      "allowed long after the suspension was switched off",
      [
        [1_000, SWITCHED_ON],
        [5_000, undefined],
      ],
      response(true, "Suspended", 30_000),
      ["S8"],
    ],
    ["denied while suspended", [[10_000, SWITCHED_ON]], response(false, "AtMinimum", 30_000), ["L6"]],
    ["denied, suspended since the request", [[30_500, SWITCHED_ON]], response(false, "AtMinimum", 30_600), []],
    ["denied after the suspension expired", [[10_000, until(20_000)]], response(false, "AtMinimum", 30_000), []],
  ])("%s", ([, versions, given, expected]) => {
    let nowMs = 0;
    const broken: string[] = [];
    const exemptions = new Exemptions(() => nowMs);
    const suspensions = new Suspensions({
      ...{ exemptions, elapsedMs: () => nowMs, rule: () => undefined, isRecorded: () => false },
      violation: (invariant) => broken.push(invariant),
    });
    for (const [index, [atMs, suspend]] of [[0, undefined] as const, ...versions].entries()) {
      nowMs = atMs;
      suspensions.stored("web", version(index + 1, suspend));
    }
    nowMs = Math.max(nowMs, 30_600);
    suspensions.responded("one", inFlight, given);
    expect(broken).toEqual(expected);
    expect(exemptions.has("web", "one", "uid")).toBe(given.allowed && broken.length === 0);
  });
});
