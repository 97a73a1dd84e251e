import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anyLabels, anySelector } from "../../../test/support/kube/selector-arbitraries.ts";
import { compileSelector } from "../../decide/availability/selector.ts";
import type { LabelSelector } from "../../schema/podprotector.ts";
import { LabelIndex, type Labelled } from "./label-index.ts";

const pod = (name: string, labels: Record<string, string>, namespace = "ns"): Labelled => ({ namespace, name, labels });
const names = (objects: Iterable<Labelled>): string[] => [...objects].map(({ name }) => name).sort();

describe("label index", () => {
  const index = new LabelIndex<Labelled>();
  index.add(pod("web-1", { app: "web", tier: "front", pod: "web-1" }));
  index.add(pod("web-2", { app: "web", tier: "front", pod: "web-2" }));
  index.add(pod("db-1", { app: "db", tier: "back" }));
  index.add(pod("bare", {}));
  index.add(pod("web-9", { app: "web" }, "other"));

  it.each<{ selector: LabelSelector; selects: string[] }>([
    { selector: {}, selects: ["bare", "db-1", "web-1", "web-2"] },
    { selector: { matchLabels: { app: "web" } }, selects: ["web-1", "web-2"] },
    { selector: { matchLabels: { app: "web", pod: "web-2" } }, selects: ["web-2"] },
    { selector: { matchLabels: { app: "none" } }, selects: [] },
    {
      selector: { matchExpressions: [{ key: "app", operator: "In", values: ["web", "db", "web"] }] },
      selects: ["db-1", "web-1", "web-2"],
    },
    { selector: { matchExpressions: [{ key: "app", operator: "NotIn", values: ["web"] }] }, selects: ["bare", "db-1"] },
    { selector: { matchExpressions: [{ key: "pod", operator: "Exists" }] }, selects: ["web-1", "web-2"] },
    { selector: { matchExpressions: [{ key: "pod", operator: "DoesNotExist" }] }, selects: ["bare", "db-1"] },
    { selector: { matchExpressions: [{ key: "app", operator: "Near", values: ["web"] }] }, selects: [] },
  ])("selects $selects by $selector", ({ selector, selects }) => {
    expect(names(index.select("ns", selector))).toEqual(selects);
  });

  it("takes an unreadable requirement as fulfilled where the index says so", () => {
    const lenient = new LabelIndex<Labelled>("matches");
    lenient.add(pod("a", { app: "web" }));
    expect(names(lenient.select("ns", { matchExpressions: [{ key: "x", operator: "In", values: [] }] }))).toEqual([
      "a",
    ]);
  });

  it("keeps namespaces apart and returns the newest object", () => {
    const local = new LabelIndex<Labelled>();
    const before = pod("a", { app: "web" });
    const after = pod("a", { app: "web" });
    local.update(undefined, before);
    local.update(before, after);
    expect([...local.select("ns", {})]).toEqual([after]);
    expect([...local.select("ns", {})][0]).toBe(after);
    expect(local.get("ns", "a")).toBe(after);
    expect([...local.select("elsewhere", {})]).toEqual([]);
    local.update(after, undefined);
    expect(local.size).toBe(0);
    expect(local.stats()).toEqual({ namespaces: 0, pairs: 0 });
  });

  it("follows a label whose value changed", () => {
    const local = new LabelIndex<Labelled>();
    local.add(pod("a", { app: "web" }));
    local.add(pod("b", { app: "web" }));
    local.add(pod("a", { app: "db" }));
    expect(names(local.select("ns", { matchLabels: { app: "web" } }))).toEqual(["b"]);
    expect(names(local.select("ns", { matchLabels: { app: "db" } }))).toEqual(["a"]);
    local.remove(pod("b", { app: "web" }));
    expect(local.stats()).toEqual({ namespaces: 1, pairs: 1 });
  });

  it("keeps objects of one name apart by another id", () => {
    const local = new LabelIndex<Labelled & { readonly uid: string }>("fails", ({ uid }) => uid);
    const [first, second] = ["1", "2"].map((uid) => ({ ...pod("a", { app: "web" }), uid }));
    local.update(undefined, first);
    local.update(undefined, second);
    expect([...local.select("ns", { matchLabels: { app: "web" } })]).toEqual([first, second]);
    local.update(first, undefined);
    expect([...local.select("ns", { matchLabels: { app: "web" } })]).toEqual([second]);
  });

  it("agrees with a linear scan after any updates", () => {
    const operation = fc.record({
      name: fc.constantFrom("a", "b", "c", "d", "e", "f", "g", "h"),
      namespace: fc.constantFrom("n1", "n2"),
      labels: fc.option(anyLabels, { nil: undefined, freq: 4 }),
    });
    fc.assert(
      fc.property(
        fc.array(operation, { maxLength: 80 }),
        fc.array(anySelector, { minLength: 1, maxLength: 8 }),
        (operations, selectors) => {
          const local = new LabelIndex<Labelled>();
          const model = new Map<string, Labelled>();
          for (const { name, namespace, labels } of operations) {
            const id = `${namespace}/${name}`;
            const after = labels === undefined ? undefined : { namespace, name, labels };
            local.update(model.get(id), after);
            if (after === undefined) model.delete(id);
            else model.set(id, after);
          }
          expect(local.size).toBe(model.size);
          for (const selector of selectors) {
            const { matches } = compileSelector(selector, "fails");
            for (const namespace of ["n1", "n2"]) {
              const scan = [...model.values()].filter((one) => one.namespace === namespace && matches(one.labels));
              expect(names(local.select(namespace, selector))).toEqual(names(scan));
            }
          }
          for (const object of model.values()) local.remove(object);
          expect(local.stats()).toEqual({ namespaces: 0, pairs: 0 });
        },
      ),
      { numRuns: 500 },
    );
  });
});
