import { describe, expect, it } from "vitest";
import type { Answered, InFlight } from "../actors/admission-requests.ts";
import type { Json, Stored } from "../apiserver/etcd.ts";
import { Exemptions } from "./exemptions.ts";
import { Suspensions } from "./suspensions.ts";

const START_MS = Date.UTC(2026, 0, 1);

function version(revision: number, suspend: Json | undefined): Stored {
  const spec = { minAvailable: 3, minReadySeconds: 0, selector: { matchLabels: { app: "web" } }, suspend };
  return { key: "podprotectors/default/web", revision, value: { metadata: { name: "web", uid: "p" }, spec } };
}

const flight: InFlight = {
  ...{ cell: "one", uid: "uid", key: "pods/default/web-9", operation: "DELETE", revision: 7 },
  ...{ forced: false, askedMs: 30_000, state: "asked" },
};

function answer(allowed: boolean, reason: string, wallMs: number): Answered {
  const clock = { earliest: START_MS + wallMs, latest: START_MS + wallMs };
  return {
    ...{ request: {}, allowed, code: allowed ? 200 : 429, message: "", isOnlyWarned: false },
    ...{ decisions: [`core/default/web=${reason}`], reasons: [reason], wallMs: clock },
  };
}

const until = (ms: number): Json => ({ enabled: true, until: new Date(START_MS + ms).toISOString() });
const SWITCHED_ON: Json = { enabled: true };

describe("a pod is let go, or refused, at 30 s", () => {
  it.for<[string, (readonly [number, Json | undefined])[], Answered, string[]]>([
    ["while suspended", [[10_000, SWITCHED_ON]], answer(true, "Suspended", 30_000), []],
    ["before the end", [[10_000, until(31_000)]], answer(true, "Suspended", 30_000), []],
    ["at the end", [[10_000, until(30_000)]], answer(true, "Suspended", 30_000), ["S8"]],
    ["after the end, by a clock that is late", [[10_000, until(29_000)]], answer(true, "Suspended", 20_000), []],
    ["never suspended", [], answer(true, "Suspended", 30_000), ["S8"]],
    [
      "switched off just now",
      [
        [10_000, SWITCHED_ON],
        [15_000, undefined],
      ],
      answer(true, "Suspended", 30_000),
      [],
    ],
    [
      "switched off long ago",
      [
        [1_000, SWITCHED_ON],
        [5_000, undefined],
      ],
      answer(true, "Suspended", 30_000),
      ["S8"],
    ],
    ["refused while suspended", [[10_000, SWITCHED_ON]], answer(false, "AtMinimum", 30_000), ["L6"]],
    ["refused, suspended since it was asked", [[30_500, SWITCHED_ON]], answer(false, "AtMinimum", 30_600), []],
    ["refused after the end", [[10_000, until(20_000)]], answer(false, "AtMinimum", 30_000), []],
  ])("%s", ([, versions, given, expected]) => {
    let nowMs = 0;
    const broken: string[] = [];
    const exemptions = new Exemptions(() => nowMs);
    const suspensions = new Suspensions({
      ...{ exemptions, elapsedMs: () => nowMs, rule: () => undefined },
      violation: (invariant) => broken.push(invariant),
    });
    for (const [index, [atMs, suspend]] of [[0, undefined] as const, ...versions].entries()) {
      nowMs = atMs;
      suspensions.stored("web", version(index + 1, suspend));
    }
    nowMs = Math.max(nowMs, 30_600);
    suspensions.answered("one", flight, given);
    expect(broken).toEqual(expected);
    expect(exemptions.has("web", "one", "uid")).toBe(given.allowed && broken.length === 0);
  });
});
