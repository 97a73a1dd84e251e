import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anyLabels, anySelector } from "../../../test/support/kube/selector-arbitraries.ts";
import { compileSelector, type Unreadable } from "../../decide/availability/selector.ts";
import type { LabelSelector } from "../../schema/podprotector.ts";
import { SelectorIndex } from "./set-trie.ts";

const expression = (key: string, operator: string, ...values: string[]): LabelSelector => ({
  matchExpressions: [{ key, operator, values }],
});

describe("selector index: what a selector matches", () => {
  it.each<{ selector: LabelSelector; labels: Record<string, string>; matches: boolean }>([
    { selector: {}, labels: {}, matches: true },
    { selector: {}, labels: { a: "1" }, matches: true },
    { selector: { matchLabels: {} }, labels: { a: "1" }, matches: true },
    { selector: { matchLabels: { a: "1" } }, labels: { a: "1", b: "2" }, matches: true },
    { selector: { matchLabels: { a: "1" } }, labels: { a: "2" }, matches: false },
    { selector: { matchLabels: { a: "1" } }, labels: { b: "1" }, matches: false },
    { selector: { matchLabels: { a: "" } }, labels: { a: "" }, matches: true },
    { selector: { matchLabels: { a: "" } }, labels: {}, matches: false },
    { selector: { matchLabels: { a: "1", b: "2" } }, labels: { a: "1" }, matches: false },
    { selector: expression("a", "In", "1"), labels: { a: "1" }, matches: true },
    { selector: expression("a", "In", "1", "2"), labels: { a: "2" }, matches: true },
    { selector: expression("a", "In", "1", "2", "1"), labels: { a: "1" }, matches: true },
    { selector: expression("a", "In", "1", "2"), labels: { a: "3" }, matches: false },
    { selector: expression("a", "In", "1", "2"), labels: {}, matches: false },
    { selector: expression("a", "NotIn", "1"), labels: { a: "2" }, matches: true },
    { selector: expression("a", "NotIn", "1"), labels: {}, matches: true },
    { selector: expression("a", "NotIn", "1", "2"), labels: { a: "2" }, matches: false },
    { selector: expression("a", "Exists"), labels: { a: "x" }, matches: true },
    { selector: expression("a", "Exists"), labels: { b: "x" }, matches: false },
    { selector: expression("a", "DoesNotExist"), labels: { b: "x" }, matches: true },
    { selector: expression("a", "DoesNotExist"), labels: { a: "x" }, matches: false },
    {
      selector: { matchLabels: { a: "1" }, matchExpressions: [{ key: "a", operator: "In", values: ["1", "2"] }] },
      labels: { a: "1" },
      matches: true,
    },
    {
      selector: { matchLabels: { a: "1" }, matchExpressions: [{ key: "a", operator: "In", values: ["2"] }] },
      labels: { a: "1" },
      matches: false,
    },
    {
      selector: {
        matchLabels: { a: "1" },
        matchExpressions: [
          { key: "a", operator: "Exists" },
          { key: "b", operator: "DoesNotExist" },
        ],
      },
      labels: { a: "1" },
      matches: true,
    },
    {
      selector: expression("a", "In", ...Array.from({ length: 100 }, (_, index) => `${index}`)),
      labels: { a: "99" },
      matches: true,
    },
    {
      selector: expression("a", "In", ...Array.from({ length: 100 }, (_, index) => `${index}`)),
      labels: { a: "100" },
      matches: false,
    },
    { selector: { matchLabels: { constructor: "x" } }, labels: {}, matches: false },
    { selector: expression("toString", "DoesNotExist"), labels: {}, matches: true },
    { selector: expression("toString", "Exists"), labels: {}, matches: false },
  ])("$selector on $labels: $matches", ({ selector, labels, matches }) => {
    const index = new SelectorIndex<string>();
    expect(index.set("p", "ns", selector)).toEqual([]);
    expect(index.match("ns", labels)).toEqual(matches ? ["p"] : []);
    expect(index.match("other", labels)).toEqual([]);
  });

  it.each<{ name: string; selector: LabelSelector; labels: Record<string, string>; matches: boolean }>([
    { name: "an unknown operator", selector: expression("a", "Near", "1"), labels: {}, matches: true },
    { name: "an In without values", selector: expression("a", "In"), labels: {}, matches: true },
    { name: "a NotIn without values", selector: expression("a", "NotIn"), labels: { a: "1" }, matches: true },
    {
      name: "values null",
      selector: { matchExpressions: [{ key: "a", operator: "In", values: null }] },
      labels: {},
      matches: true,
    },
    {
      name: "an unknown operator beside a readable part that holds",
      selector: { matchLabels: { b: "1" }, matchExpressions: [{ key: "a", operator: "Near", values: ["1"] }] },
      labels: { b: "1" },
      matches: true,
    },
    {
      name: "an unknown operator beside a readable part that does not hold",
      selector: { matchLabels: { b: "1" }, matchExpressions: [{ key: "a", operator: "Near", values: ["1"] }] },
      labels: { b: "2" },
      matches: false,
    },
  ])("enforces the readable requirements of $name, and reports the others", ({ selector, labels, matches }) => {
    const protects = new SelectorIndex<string>();
    expect(protects.set("p", "ns", selector)).toHaveLength(1);
    expect(protects.set("p", "ns", selector)).toHaveLength(1);
    expect(protects.match("ns", labels)).toEqual(matches ? ["p"] : []);
    const counts = new SelectorIndex<string>("fails");
    expect(counts.set("p", "ns", selector)).toHaveLength(1);
    expect(counts.match("ns", labels)).toEqual([]);
    counts.delete("p");
    expect(counts.stats()).toEqual({ nodes: 0, tokens: 0, namespaces: 0 });
  });
});

describe("selector index: upkeep", () => {
  it("follows a changed selector and a changed namespace", () => {
    const index = new SelectorIndex<string>();
    index.set("p", "ns", { matchLabels: { a: "1" } });
    index.set("p", "ns", { matchLabels: { a: "2" } });
    expect(index.match("ns", { a: "1" })).toEqual([]);
    expect(index.match("ns", { a: "2" })).toEqual(["p"]);
    index.set("p", "other", { matchLabels: { a: "2" } });
    expect(index.match("ns", { a: "2" })).toEqual([]);
    expect(index.match("other", { a: "2" })).toEqual(["p"]);
    expect(index.size).toBe(1);
  });

  it("shares the nodes of a common path and splits only full ones", () => {
    const index = new SelectorIndex<number>();
    for (let key = 0; key < 8; key += 1) index.set(key, "ns", { matchLabels: { app: `app-${key}` } });
    expect(index.stats().nodes).toBe(1);
    for (let key = 8; key < 1000; key += 1) index.set(key, "ns", { matchLabels: { app: `app-${key}`, tier: "web" } });
    // One node for each rarest label; the shared label adds no node.
    expect(index.stats().nodes).toBe(1001);
    expect(index.match("ns", { app: "app-999", tier: "web" })).toEqual([999]);
  });

  it("keeps identical selectors apart", () => {
    const index = new SelectorIndex<number>();
    const keys = Array.from({ length: 100 }, (_, key) => key);
    for (const key of keys) index.set(key, "ns", { matchLabels: { a: "1", b: "2" } });
    expect(index.match("ns", { a: "1", b: "2" }).sort((a, b) => a - b)).toEqual(keys);
    for (const key of keys.filter((one) => one % 2 === 0)) index.delete(key);
    expect(index.match("ns", { a: "1", b: "2" }).sort((a, b) => a - b)).toEqual(keys.filter((one) => one % 2 === 1));
  });

  it("forgets labels that no selector needs any more", () => {
    const index = new SelectorIndex<number>();
    for (let key = 0; key < 100; key += 1) index.set(key, "ns", { matchLabels: { app: `app-${key}`, tier: "web" } });
    for (let key = 1; key < 100; key += 1) index.delete(key);
    expect(index.stats().tokens).toBe(2);
    expect(index.stats().nodes).toBeLessThanOrEqual(2);
  });

  it("ignores the deletion of an unknown key", () => {
    const index = new SelectorIndex<string>();
    index.delete("p");
    index.set("p", "ns", {});
    index.delete("p");
    index.delete("p");
    expect(index.size).toBe(0);
  });
});

type Operation = { readonly key: number; readonly namespace: string; readonly selector: LabelSelector | undefined };

describe("selector index against a linear scan", () => {
  const operation: fc.Arbitrary<Operation> = fc.record({
    key: fc.integer({ min: 0, max: 60 }),
    namespace: fc.constantFrom("n1", "n2"),
    selector: fc.option(anySelector, { nil: undefined, freq: 3 }),
  });

  it.each<{ unreadable: Unreadable }>([{ unreadable: "matches" }, { unreadable: "fails" }])(
    "agrees after any updates ($unreadable)",
    ({ unreadable }) => {
      fc.assert(
        fc.property(
          fc.array(operation, { maxLength: 150 }),
          fc.array(anyLabels, { minLength: 1, maxLength: 10 }),
          (operations, pods) => {
            const index = new SelectorIndex<number>(unreadable);
            const model = new Map<number, { namespace: string; selector: LabelSelector }>();
            for (const { key, namespace, selector } of operations) {
              if (selector === undefined) {
                index.delete(key);
                model.delete(key);
              } else {
                expect(index.set(key, namespace, selector)).toEqual(compileSelector(selector, unreadable).problems);
                model.set(key, { namespace, selector });
              }
            }
            for (const labels of pods) {
              for (const namespace of ["n1", "n2"]) {
                const scan = [...model].filter(
                  ([, one]) => one.namespace === namespace && compileSelector(one.selector, unreadable).matches(labels),
                );
                expect(index.match(namespace, labels).sort((a, b) => a - b)).toEqual(
                  scan.map(([key]) => key).sort((a, b) => a - b),
                );
              }
            }
            for (const key of model.keys()) index.delete(key);
            expect(index.stats()).toEqual({ nodes: 0, tokens: 0, namespaces: 0 });
          },
        ),
        { numRuns: 500 },
      );
    },
  );
});

describe("selector index: ignored labels", () => {
  it("are not matched, however many requirements say which; an empty selector ignores none", () => {
    fc.assert(
      fc.property(anySelector, anySelector, anyLabels, (selector, ignored, labels) => {
        const index = new SelectorIndex<string>();
        index.set("k", "n", selector, ignored);
        const { matchLabels = {}, matchExpressions = [] } = ignored;
        const isEmpty = Object.keys(matchLabels).length + matchExpressions.length === 0;
        const isIgnored = !isEmpty && compileSelector(ignored, "fails").matches(labels);
        const expected = compileSelector(selector, "matches").matches(labels) && !isIgnored;
        expect(index.match("n", labels)).toEqual(expected ? ["k"] : []);
      }),
    );
  });

  it("follow a change of the ignored labels alone", () => {
    const index = new SelectorIndex<string>();
    const web = { matchLabels: { app: "web" } };
    index.set("k", "n", web);
    index.set("k", "n", web, { matchLabels: { canary: "yes" } });
    expect(index.match("n", { app: "web", canary: "yes" })).toEqual([]);
    index.set("k", "n", web);
    expect(index.match("n", { app: "web", canary: "yes" })).toEqual(["k"]);
  });
});

describe("selector index: what a match costs", () => {
  /** Entries of maps that `act` looks at. */
  function entriesRead(act: () => void): number {
    const { get, [Symbol.iterator]: iterate } = Map.prototype;
    let entries = 0;
    Map.prototype.get = function (key) {
      entries += 1;
      return get.call(this, key);
    };
    Map.prototype[Symbol.iterator] = function () {
      entries += this.size;
      return iterate.call(this);
    };
    try {
      act();
    } finally {
      Map.prototype.get = get;
      Map.prototype[Symbol.iterator] = iterate;
    }
    return entries;
  }

  /** Each nine selectors ask for 20 labels of their own, which the pod has, and for one that it does not have. */
  function costOf(groups: number): number {
    const index = new SelectorIndex<string>();
    const labels: Record<string, string> = {};
    for (let group = 0; group < groups; group++) {
      const matchLabels: Record<string, string> = {};
      for (let label = 0; label < 20; label++) matchLabels[`k${group}-${label}`] = "v";
      Object.assign(labels, matchLabels);
      for (let one = 0; one < 9; one++) index.set(`${group}/${one}`, "n", { matchLabels: { ...matchLabels, z: "no" } });
    }
    return entriesRead(() => expect(index.match("n", labels)).toEqual([]));
  }

  it("does not grow with the product of the pod's labels and the nodes on its paths", () => {
    expect(costOf(40)).toBeLessThan(3 * costOf(20));
  });
});
