import { describe, expect, test, vi } from "vitest";
import type { InformerHandler } from "../../../shared/kube/informer/informer.ts";
import { SelectorIndex } from "../../../shared/kube/selectors/set-trie.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import { FakeCell, FakeCore } from "../../../test/support/aggregator/fake-clusters.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { Membership, type TrackedProtector } from "./membership.ts";

function harness(): {
  time: VirtualTime;
  cell: FakeCell;
  core: FakeCore;
  membership: Membership;
  notified: string[];
  members(name: string): string[];
} {
  const time = new VirtualTime();
  const cell = new FakeCell();
  const core = new FakeCore("core", time);
  const membership = new Membership(cell, time);
  membership.followProtectors("core", core.protectors);
  const notified: string[] = [];
  membership.listen({
    podChanged: (tracked: TrackedProtector) => notified.push(`${tracked.id.name} pod`),
    protectorChanged: (tracked: TrackedProtector) => notified.push(`${tracked.id.name} changed`),
    protectorGone: (tracked: TrackedProtector) => notified.push(`${tracked.id.name} gone`),
    podSeen: () => {},
  });
  cell.sync();
  core.sync();
  const members = (name: string): string[] =>
    [...(membership.protector("core", `ns/${name}`)?.pods.values() ?? [])]
      .map((pod) => `${pod.name}@${pod.resourceVersion}`)
      .sort();
  return { time, cell, core, membership, notified, members };
}

describe("members", () => {
  test("are found in either order of pod and protector", () => {
    const { cell, core, members } = harness();
    cell.put("a");
    core.put("p");
    cell.put("b");
    expect(members("p")).toEqual(["a@101", "b@102"]);
  });

  test("are the newest objects, also after changes that left the labels alone", () => {
    const { cell, core, members } = harness();
    cell.put("a");
    cell.unready("a");
    core.put("p");
    expect(members("p")).toEqual(["a@102"]);
  });

  test("are in the namespace of the protector", () => {
    const { cell, core, members } = harness();
    cell.pods.store.upsert("other/a", { ...cell.pod("a"), namespace: "other" }, "101");
    core.put("p");
    expect(members("p")).toEqual([]);
  });

  test("match the aggregation selector where there is one", () => {
    const { cell, core, members } = harness();
    cell.put("a", { labels: { app: "p", track: "canary" } });
    cell.put("b", { labels: { app: "p" } });
    core.put("p", {
      selector: { matchLabels: { app: "p", track: "canary" } },
      aggregationSelector: { matchLabels: { app: "p" } },
    });
    expect(members("p")).toEqual(["a@101", "b@102"]);
  });

  test.each<[string, Record<string, string>, Record<string, string>, string[]]>([
    ["gains a label", { app: "p" }, { app: "p", out: "" }, []],
    ["loses a label", { app: "p", out: "" }, { app: "p" }, ["a@102"]],
    ["changes one label of two", { app: "p", tier: "x" }, { app: "q", tier: "x" }, []],
    ["changes the other label of two", { app: "p", tier: "x" }, { app: "p", tier: "y" }, ["a@102"]],
  ])("change with a pod that %s", (_, before, after, expected) => {
    const { cell, core, members } = harness();
    core.put("p", {
      selector: { matchLabels: { app: "p" }, matchExpressions: [{ key: "out", operator: "DoesNotExist" }] },
    });
    cell.put("a", { labels: before });
    cell.put("a", { labels: after });
    expect(members("p")).toEqual(expected);
  });

  test("of a protector whose selector has become unreadable are none, even among later pods", () => {
    const { cell, core, members } = harness();
    core.put("p");
    cell.put("a");
    core.put("p", { selector: { matchExpressions: [{ key: "app", operator: "Almost", values: ["p"] }] } });
    cell.put("b");
    expect(members("p")).toEqual([]);
  });

  test("a change of a pod notifies its protectors alone, once", () => {
    const { cell, core, notified } = harness();
    core.put("p");
    core.put("q");
    notified.length = 0;
    cell.put("a");
    cell.unready("a");
    cell.put("a", { labels: { app: "q" } });
    cell.remove("a");
    expect(notified).toEqual(["p pod", "p pod", "p pod", "q pod", "q pod"]);
  });

  test("a new pod of the same name replaces the old one", () => {
    const { cell, core, members } = harness();
    core.put("p");
    const first = cell.put("a", { uid: "first" });
    const second = cell.putUnseen("a", { uid: "second" });
    // As from two shards: the addition comes first.
    cell.pods.store.upsert("ns/a", second, second.resourceVersion);
    expect(members("p")).toEqual(["a@102"]);
    expect(first.uid).not.toBe(second.uid);
    core.put("late", { selector: { matchLabels: { app: "p" } } });
    expect(members("late")).toEqual(["a@102"]);
  });
});

test("a protector that is created while a shard lags counts both pods of one name, each in its own shard", () => {
  const time = new VirtualTime();
  const [cell, core] = [new FakeCell(), new FakeCore("core", time)];
  const pods = ["first", "second"].map((uid) => cell.pod("a", { uid, labels: { app: "p" } }));
  const handlers = new Set<InformerHandler<Pod>>();
  const held = [...pods];
  const membership = new Membership(
    {
      podByUid: (wanted) => held.find(({ uid }) => uid === wanted),
      pods: {
        subscribe: (handler) => {
          handlers.add(handler);
          return () => handlers.delete(handler);
        },
      },
    },
    time,
  );
  const notified = (before: Pod | undefined, after: Pod | undefined): void => {
    for (const handler of handlers) handler.changed?.(before, after, false);
  };
  for (const pod of pods) notified(undefined, pod);
  membership.followProtectors("core", core.protectors);
  core.sync();
  core.put("p");
  const members = (): string[] => [...(membership.protector("core", "ns/p")?.pods.keys() ?? [])];
  expect(members()).toEqual(["first", "second"]);
  held.shift();
  notified(pods[0], undefined);
  expect(members()).toEqual(["second"]);
});

test("protectors that count the same pod know of each other, until they share none", () => {
  const { cell, core, membership } = harness();
  const sharers = (name: string): string[] => {
    const tracked = membership.protector("core", `ns/${name}`);
    if (tracked === undefined) throw new Error(`there is no ${name}`);
    return [...membership.sharersOf(tracked)].map(({ id }) => id.name).sort();
  };
  core.put("p");
  core.put("all", { selector: {} });
  core.put("none", { selector: { matchLabels: { app: "none" } } });
  expect(sharers("p")).toEqual([]);
  cell.put("a");
  expect([sharers("p"), sharers("all"), sharers("none")]).toEqual([["all"], ["p"], []]);
  core.put("also", { selector: { matchLabels: { app: "p" } } });
  expect([sharers("p"), sharers("all")]).toEqual([
    ["all", "also"],
    ["also", "p"],
  ]);
  cell.put("a", { labels: { app: "none" } });
  expect([sharers("p"), sharers("all"), sharers("none")]).toEqual([[], ["none"], ["all"]]);
  cell.remove("a");
  expect([sharers("all"), sharers("none")]).toEqual([[], []]);
  cell.put("b", { labels: { app: "none" } });
  core.remove("none");
  expect(sharers("all")).toEqual([]);
});

test("a namespace is known while a core has a protector in it, and later protectors know only of each other", () => {
  const { cell, core, membership } = harness();
  const sharers = (name: string): string[] => {
    const tracked = membership.protector("core", `ns/${name}`);
    return tracked === undefined ? [] : [...membership.sharersOf(tracked)].map(({ id }) => id.name);
  };
  cell.put("a");
  for (const round of ["first", "second"]) {
    expect(membership.hasProtectors("ns")).toBe(false);
    core.put(`${round}-one`, { selector: { matchLabels: { app: "p" } } });
    core.put(`${round}-two`, { selector: {} });
    core.put(`${round}-two`, { selector: { matchLabels: { app: "p" } } });
    expect(membership.hasProtectors("ns")).toBe(true);
    expect([sharers(`${round}-one`), sharers(`${round}-two`)]).toEqual([[`${round}-two`], [`${round}-one`]]);
    core.remove(`${round}-one`);
    expect(membership.hasProtectors("ns")).toBe(true);
    core.remove(`${round}-two`);
  }
  expect(membership.hasProtectors("ns")).toBe(false);
});

test("a new pod of many protectors is matched once, and the pods that they share already are not", () => {
  const { cell, core, membership } = harness();
  for (let pod = 0; pod < 40; pod++) cell.put(`pod-${pod}`, { labels: { app: "p", name: `pod-${pod}` } });
  for (let one = 0; one < 10; one++) core.put(`p-${one}`, { selector: { matchLabels: { app: "p" } } });
  const sharers = (): number[] => [...membership.protectors("core")].map((one) => membership.sharersOf(one).size);
  expect(sharers()).toEqual(Array.from({ length: 10 }, () => 9));
  const match = vi.spyOn(SelectorIndex.prototype, "match");
  cell.put("new", { labels: { app: "p", name: "new" } });
  expect(sharers()).toEqual(Array.from({ length: 10 }, () => 9));
  expect(match.mock.calls.length).toBeLessThanOrEqual(2);
  match.mockRestore();
});

describe("a long list", () => {
  test("is applied in slices, and later changes after it in their order", async () => {
    const { time, cell, core, membership, members } = harness();
    core.put("p");
    for (let index = 0; index < 5_000; index++) cell.putUnseen(`pod-${index}`);
    cell.sync();
    expect(membership.whenCurrent()).toBeDefined();
    expect(members("p").length).toBeLessThan(5_000);
    let settled = false;
    void membership.whenCurrent()?.then(() => {
      settled = true;
    });
    cell.remove("pod-4999");
    cell.put("pod-0", { labels: { app: "other" } });
    core.put("late", { selector: { matchLabels: { app: "p" } } });
    await time.advance(10);
    expect(settled).toBe(true);
    expect(membership.whenCurrent()).toBeUndefined();
    expect(members("p")).toHaveLength(4_998);
    expect(members("late")).toEqual(members("p"));
    // Of an earlier list, nothing is applied again with the next one.
    cell.remove("pod-1");
    for (let index = 1_000; index < 1_300; index++) cell.live.delete(`pod-${index}`);
    cell.version++;
    cell.sync();
    await time.advance(10);
    expect(members("p")).toHaveLength(4_997 - 300);
    expect(members("late")).toEqual(members("p"));
  });

  test("is applied before a change that comes between two slices of it", async () => {
    const { time, cell, core, members } = harness();
    core.put("p");
    for (let index = 0; index < 5_000; index++) cell.putUnseen(`pod-${index}`);
    cell.sync();
    time.timers.after(0, () => {
      expect(members("p").length).toBeLessThan(5_000);
      cell.remove("pod-4999");
    });
    await time.advance(10);
    expect(members("p")).toHaveLength(4_999);
  });

  test("a protector that is created meanwhile skips a pod of other labels that reuses a name", async () => {
    const { time, cell, core, membership, members } = harness();
    for (let index = 0; index < 50; index++) cell.put(`pod-${index}`);
    await time.advance(10);
    for (let round = 0; round < 3; round++) for (let index = 0; index < 50; index++) cell.unready(`pod-${index}`);
    cell.remove("pod-7");
    cell.put("pod-7", { uid: "next", labels: { app: "other" } });
    expect(membership.whenCurrent()).toBeDefined();
    core.put("late", { selector: { matchLabels: { app: "p" } } });
    await time.advance(10);
    expect(membership.whenCurrent()).toBeUndefined();
    expect(members("late")).toHaveLength(49);
    cell.remove("pod-7");
    expect(members("late")).toHaveLength(49);
  });

  test("does not begin with a few changes, which are applied at once", () => {
    const { cell, core, membership, members } = harness();
    core.put("p");
    for (let index = 0; index < 50; index++) cell.put(`pod-${index}`);
    expect(membership.whenCurrent()).toBeUndefined();
    expect(members("p")).toHaveLength(50);
  });
});
