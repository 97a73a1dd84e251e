/** What is declared, after each kind of write, as the apiserver keeps `metadata.managedFields`. */
import { expect, test } from "vitest";
import { declarersOf, FIELD_MANAGER, type FieldManager, lastWriter, withOwned } from "./field-ownership.ts";

const APPLIER = "argocd-controller";
const EARLIER = "2026-01-01T00:00:00Z";
const LATER = "2026-01-01T00:00:09Z";

/** `one: failurePolicy` is a field of a webhook; `one` alone all of it. */
function entry(manager: string, operation: string, time: string, ...fields: readonly string[]): FieldManager {
  const webhooks: Record<string, Record<string, unknown>> = {};
  for (const field of fields) {
    const [name = "", key = "name"] = field.split(": ");
    const item = `k:${JSON.stringify({ name })}`;
    webhooks[item] = { ".": {}, "f:name": {}, ...webhooks[item], [`f:${key}`]: {} };
  }
  return { manager, operation, time, fieldsV1: { "f:webhooks": webhooks } };
}

type Values = Readonly<Record<string, string | number>>;
const form = (webhooks: Readonly<Record<string, Values>>): unknown => ({
  metadata: { name: "podseidon" },
  webhooks: Object.entries(webhooks).map(([name, values]) => ({ name, ...values })),
});

const known = [entry(APPLIER, "Apply", EARLIER, "one: failurePolicy", "one: timeoutSeconds", "two: failurePolicy")];
const helm = [entry("helm", "Update", EARLIER, "one: failurePolicy", "one: timeoutSeconds", "two: failurePolicy")];
const wanted = { one: { failurePolicy: "Fail", timeoutSeconds: 5 }, two: { failurePolicy: "Fail" } };
const ignoring = { ...wanted, one: { failurePolicy: "Ignore", timeoutSeconds: 5 } };
const shorter = { ...wanted, one: { failurePolicy: "Fail", timeoutSeconds: 10 } };

test.each([
  [
    "an applier changes a value",
    known,
    [entry(APPLIER, "Apply", LATER, "one: failurePolicy", "one: timeoutSeconds", "two: failurePolicy")],
    ignoring,
    ignoring,
  ],
  [
    "another applier takes a value over",
    known,
    [...known, entry("flux", "Apply", LATER, "one: failurePolicy")],
    ignoring,
    ignoring,
  ],
  [
    "an edit takes a value",
    known,
    [
      entry(APPLIER, "Apply", EARLIER, "one: timeoutSeconds", "two: failurePolicy"),
      entry("kubectl-edit", "Update", LATER, "one: failurePolicy"),
    ],
    ignoring,
    wanted,
  ],
  [
    "an edit takes a webhook out",
    known,
    [entry(APPLIER, "Apply", EARLIER, "one: failurePolicy")],
    { one: wanted.one },
    wanted,
  ],
  [
    "an applier leaves a webhook out",
    known,
    [entry(APPLIER, "Apply", LATER, "one: failurePolicy", "one: timeoutSeconds")],
    { one: wanted.one },
    { one: wanted.one },
  ],
  [
    "an applier leaves out what the keeper has restored",
    known,
    [
      entry(APPLIER, "Apply", LATER, "one: failurePolicy", "one: timeoutSeconds"),
      entry(FIELD_MANAGER, "Update", EARLIER, "two: failurePolicy"),
    ],
    wanted,
    { one: wanted.one },
  ],
  [
    "an applier no longer gives a value: the apiserver's default",
    known,
    [entry(APPLIER, "Apply", LATER, "one: failurePolicy", "two: failurePolicy")],
    shorter,
    { ...wanted, one: { failurePolicy: "Fail" } },
  ],
  [
    "an applier changes another value, and an edit takes this one before anybody has looked",
    known,
    [
      entry(APPLIER, "Apply", LATER, "one: timeoutSeconds", "two: failurePolicy"),
      entry("kubectl-edit", "Update", LATER, "one: failurePolicy"),
    ],
    { ...ignoring, one: { failurePolicy: "Ignore", timeoutSeconds: 7 } },
    { ...wanted, one: { failurePolicy: "Fail", timeoutSeconds: 7 } },
  ],
  ["nobody declares it any more", known, [], ignoring, wanted],
  [
    "an applier adds a webhook, which an edit has not touched",
    known,
    [entry(APPLIER, "Apply", LATER, "one: failurePolicy", "one: timeoutSeconds", "two: failurePolicy", "new")],
    { ...wanted, new: {} },
    { ...wanted, new: {} },
  ],
  [
    "an edit adds a webhook",
    known,
    [...known, entry("kubectl-edit", "Update", LATER, "new")],
    { ...wanted, new: {} },
    wanted,
  ],
  ["helm changes a value", helm, [entry("helm", "Update", LATER, "one: failurePolicy")], ignoring, ignoring],
  [
    "helm changes another value, and leaves to the keeper what it has restored",
    helm,
    [
      entry("helm", "Update", LATER, "two: failurePolicy"),
      entry(FIELD_MANAGER, "Update", EARLIER, "one: failurePolicy", "one: timeoutSeconds"),
    ],
    wanted,
    wanted,
  ],
  [
    "helm takes a webhook out",
    helm,
    [entry("helm-controller", "Update", LATER), entry("helm", "Update", LATER, "one: failurePolicy")],
    { one: wanted.one },
    { one: wanted.one },
  ],
])("%s", (_name, before, managers, live, expected) => {
  expect(withOwned(form(live), form(wanted), managers, before)).toEqual(form(expected));
});

test("an object that has lost its owners stays: they owned values in it", () => {
  const fieldsV1 = { "f:metadata": { "f:labels": { ".": {}, "f:tier": {} } } };
  const before = [{ manager: APPLIER, operation: "Apply", time: EARLIER, fieldsV1 }];
  const now = [{ manager: APPLIER, operation: "Apply", time: LATER, fieldsV1: {} }];
  const base = { metadata: { name: "podseidon", labels: { tier: "a" } }, webhooks: [] };
  const live = { metadata: { name: "podseidon" }, webhooks: [] };
  expect(withOwned(live, base, now, before)).toEqual(live);
  expect(withOwned(base, base, [], before)).toEqual(base);
});

test("a declarer is known with what it owned when it wrote last, also while it owns nothing", () => {
  const altered = [
    entry(APPLIER, "Apply", EARLIER, "two: failurePolicy"),
    entry("kubectl-edit", "Update", LATER, "one"),
  ];
  expect(declarersOf(altered, known)).toEqual(known);
  expect(declarersOf([], known)).toEqual(known);
  const again = entry(APPLIER, "Apply", LATER, "two: failurePolicy");
  expect(declarersOf([again], known)).toEqual([again]);
});

test("an apply in the second of the one before adds to what its manager owned", () => {
  const both = entry(APPLIER, "Apply", EARLIER, "one: failurePolicy", "new");
  const [declarer] = declarersOf([both], [entry(APPLIER, "Apply", EARLIER, "one: failurePolicy")]);
  expect(declarer).toEqual(both);
});

test("the last writer is the latest that declares or alters, and never the project itself", () => {
  const edits = [entry("kubectl-edit", "Update", LATER), entry("kubectl-patch", "Update", EARLIER)];
  const client = entry("kubectl-client-side-apply", "Update", LATER);
  const managers = [...known, ...edits, entry(FIELD_MANAGER, "Update", LATER)];
  expect(lastWriter(managers, "altered")).toBe("kubectl-edit");
  expect(lastWriter(managers, "declared")).toBe(APPLIER);
  expect(lastWriter([...managers, client], "declared")).toBe("kubectl-client-side-apply");
  expect(lastWriter(edits, "declared")).toBe("kubectl-edit");
  expect(lastWriter([], "altered")).toBeUndefined();
});
