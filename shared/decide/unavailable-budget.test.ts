/** What the protector of a PodUnavailableBudget leaves alone: pods with OpenKruise's annotation, other operations. */
import { expect, test } from "vitest";
import { makeCell, makePod, makeProtector, makeRequest, makeSpec } from "../../test/support/decide/fixtures.ts";
import { decideLost } from "../recovery/lost-protector.ts";
import { SOURCE_KIND_LABEL } from "../schema/annotations.ts";
import { OPERATIONS, type PodProtectorSpec } from "../schema/podprotector.ts";
import { isTakenOut, leftOutMark } from "./availability/availability.ts";
import { specFacts } from "./availability/spec-facts.ts";
import { type DisruptionRequest, decide } from "./quota.ts";
import { parseProtector } from "./state/protector-state.ts";

/** At its minimum of 2. */
function stateOf(kind: string, spec: Partial<PodProtectorSpec> = {}) {
  const protector = makeProtector([makeCell("a", 2, [], {}, makeSpec(spec))], spec);
  const labels = { [SOURCE_KIND_LABEL]: kind };
  return parseProtector({ ...protector, metadata: { ...protector.metadata, labels } });
}

const request = (change: Partial<DisruptionRequest>): DisruptionRequest => ({
  ...makeRequest(makePod("x", {}), { operation: "UPDATE" }),
  ...change,
});

test.each<[string, string, Partial<DisruptionRequest>, string]>([
  ["without the annotation", "PodUnavailableBudget", { operation: "DELETE" }, "AtMinimum"],
  ["with it", "PodUnavailableBudget", { operation: "DELETE", noProtect: true }, "Forced"],
  ["with it, under another budget", "PodDisruptionBudget", { operation: "DELETE", noProtect: true }, "AtMinimum"],
])("a pod at the minimum %s", (_, kind, change, expected) => {
  const state = stateOf(kind);
  const decision = decide(state, request(change));
  expect(decision.allowed ? decision.reason : decision.cause).toBe(expected);
  // Its record counts against the pods that stay.
  if (decision.allowed) expect(decision.write).toEqual({ weight: 1, paid: false });
  expect(decideLost(state, request(change))?.reason).toBe(expected === "Forced" ? "Forced" : undefined);
});

test.each<[readonly string[], boolean, string]>([
  [["RESIZE"], true, "AtMinimum"],
  [["RESIZE"], false, "NotProtected"],
  [["UPDATE"], true, "AtMinimum"],
  [["UPDATE"], false, "AtMinimum"],
  [["EVICT"], true, "NotProtected"],
])("with %s protected, a change that is a resize: %s", (protectedOperations, isResize, expected) => {
  const state = stateOf("PodUnavailableBudget", { protectedOperations: [...protectedOperations] });
  const decision = decide(state, request({ isResize }));
  expect(decision.allowed ? decision.reason : decision.cause).toBe(expected);
  expect(decideLost(state, request({ isResize }))?.reason).toBe(expected === "AtMinimum" ? undefined : expected);
});

test.each<[DisruptionRequest["operation"], string]>([
  ["DELETE", "Unavailable"],
  ["EVICT", "PinnedUnavailable"],
  ["UPDATE", "PinnedUnavailable"],
])(
  "%s of a pod whose labels take it out of the count uses no quota once the count has left it out",
  (operation, free) => {
    const spec = makeSpec({
      unavailableLabelPrefix: "unavailable-pod.kruise.io/",
      protectedOperations: [...OPERATIONS],
    });
    const pod = makePod("x", { labels: { "unavailable-pod.kruise.io/a": "b" }, resourceVersion: "1000" });
    const reasonAt = (resourceVersion: string): string => {
      const leftOut = leftOutMark(specFacts(spec), resourceVersion);
      const cell = makeCell("a", 2, [], { resourceVersion, ...(leftOut === undefined ? {} : { leftOut }) }, spec);
      const decision = decide(parseProtector(makeProtector([cell], spec)), makeRequest(pod, { operation }));
      return decision.allowed ? decision.reason : decision.cause;
    };
    expect([reasonAt("999"), reasonAt("1000")]).toEqual(["AtMinimum", free]);
  },
);

test("each of the pod's labels is looked at once, however many protectors decide, whatever their prefixes are", () => {
  let looks = 0;
  const labels = new Proxy<Record<string, string>>(
    { app: "web", "away/x": "" },
    {
      ownKeys: (all) => {
        looks++;
        return Reflect.ownKeys(all);
      },
    },
  );
  const reasonUnder = (unavailableLabelPrefix: string): string => {
    const spec = makeSpec({ unavailableLabelPrefix });
    const leftOut = leftOutMark(specFacts(spec), "1000");
    const state = parseProtector(makeProtector([makeCell("a", 2, [], leftOut ? { leftOut } : {}, spec)], spec));
    const decision = decide(state, makeRequest(makePod("x", { labels })));
    return decision.allowed ? decision.reason : decision.cause;
  };
  expect(Array.from({ length: 50 }, () => reasonUnder("out/"))).toEqual(Array(50).fill("AtMinimum"));
  expect([reasonUnder("away/"), reasonUnder("out/")]).toEqual(["Unavailable", "AtMinimum"]);
  expect(looks).toBe(1);
});

test("a pod is taken out by exactly the prefixes of its labels, in whatever order they are", () => {
  const keys = ["b/x", "a", "B/", "b0", "c/", "b/y", "ab/z"];
  for (const some of [keys, keys.toReversed(), keys.slice(0, 1), []]) {
    const labels = Object.fromEntries(some.map((key) => [key, ""]));
    for (const prefix of ["a", "b/", "b/x", "b/xx", "b/y", "b", "B", "c/", "c/z", "A", "d"]) {
      const expected = some.some((key) => key.startsWith(prefix));
      expect(isTakenOut({ labels }, { unavailableLabelPrefix: prefix }), `${prefix} of ${some}`).toBe(expected);
    }
  }
});
