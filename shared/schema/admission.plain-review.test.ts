import fc from "fast-check";
import { expect, test } from "vitest";
import { AdmissionReview, isPlainReview } from "./admission.ts";
import { checker } from "./check.ts";

const REVIEW: unknown = {
  apiVersion: "admission.k8s.io/v1",
  kind: "AdmissionReview",
  request: {
    uid: "r-1",
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
    subResource: "eviction",
    requestKind: { group: "", version: "v1", kind: "Pod" },
    requestResource: { group: "", version: "v1", resource: "pods" },
    requestSubResource: "eviction",
    name: "web-1",
    namespace: "shop",
    operation: "CREATE",
    userInfo: { username: "eve", uid: "u", groups: ["a", "b"], extra: { key: ["x", "y"] } },
    object: null,
    oldObject: { kind: "Pod" },
    dryRun: false,
    options: { kind: "DeleteOptions" },
  },
};

/** The paths of everything in `value`, itself included. */
function pathsIn(value: unknown): string[][] {
  if (typeof value !== "object" || value === null) return [[]];
  return [[], ...Object.entries(value).flatMap(([key, one]) => pathsIn(one).map((rest) => [key, ...rest]))];
}

/** `value` with the part at `path` replaced or removed. */
function changed(value: unknown, [key, ...rest]: readonly string[], to: { readonly value: unknown } | "gone"): unknown {
  if (key === undefined) return to === "gone" ? undefined : to.value;
  if (typeof value !== "object" || value === null) return value;
  const before: unknown = Reflect.get(value, key);
  const after = changed(before, rest, to);
  if (Array.isArray(value)) return value.map((one: unknown, index) => (String(index) === key ? after : one));
  const others = Object.entries(value).filter(([name]) => name !== key);
  const isGone = rest.length === 0 && to === "gone";
  return Object.fromEntries(isGone ? others : [...others, [key, after]]);
}

const check = checker(AdmissionReview);

function fitsSchema(raw: unknown): boolean {
  try {
    check(raw);
    return true;
  } catch {
    return false;
  }
}

const odd = fc.oneof(
  fc.constantFrom<unknown>(null, "", "text", "DELETE", "PATCH", 0, 1, true, false, [], {}, ["a"], [1], { key: ["x"] }),
  fc.jsonValue(),
);
const change = fc.tuple(
  fc.constantFrom(...pathsIn(REVIEW)),
  fc.oneof(
    fc.constant("gone" as const),
    odd.map((value) => ({ value })),
  ),
);

test("a plain review is exactly what the schema accepts", () => {
  let taken = 0;
  let refused = 0;
  fc.assert(
    fc.property(fc.array(change, { maxLength: 3 }), (changes) => {
      const raw = changes.reduce((one, [path, to]) => changed(one, path, to), REVIEW);
      const fits = fitsSchema(raw);
      if (fits) taken++;
      else refused++;
      expect(isPlainReview(raw)).toBe(fits);
    }),
    { numRuns: 2_000 },
  );
  expect(Math.min(taken, refused)).toBeGreaterThan(100);
});
