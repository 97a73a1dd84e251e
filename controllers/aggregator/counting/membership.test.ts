import { describe, expect, test } from "vitest";
import type { InformerHandler } from "../../../shared/kube/informer/informer.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import { FakeCell, FakeCore } from "../../../test/support/aggregator/fake-clusters.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { Membership, type TrackedProtector } from "./membership.ts";

function rig(): {
  time: VirtualTime;
  cell: FakeCell;
  core: FakeCore;
  membership: Membership;
  told: string[];
  members(name: string): string[];
} {
  const time = new VirtualTime();
  const cell = new FakeCell();
  const core = new FakeCore("core", time);
  const membership = new Membership(cell, time);
  membership.followProtectors("core", core.protectors);
  const told: string[] = [];
  membership.listen({
    podChanged: (entry: TrackedProtector) => told.push(`${entry.id.name} pod`),
    protectorChanged: (entry: TrackedProtector) => told.push(`${entry.id.name} changed`),
    protectorGone: (entry: TrackedProtector) => told.push(`${entry.id.name} gone`),
    podSeen: () => {},
  });
  cell.sync();
  core.sync();
  const members = (name: string): string[] =>
    [...(membership.protector("core", `ns/${name}`)?.pods.values() ?? [])]
      .map((pod) => `${pod.name}@${pod.resourceVersion}`)
      .sort();
  return { time, cell, core, membership, told, members };
}

describe("members", () => {
  test("are found whichever came first, pod or protector", () => {
    const { cell, core, members } = rig();
    cell.put("a");
    core.put("p");
    cell.put("b");
    expect(members("p")).toEqual(["a@101", "b@102"]);
  });

  test("are the newest objects, also for a protector that comes after changes that moved no label", () => {
    const { cell, core, members } = rig();
    cell.put("a");
    cell.unready("a");
    core.put("p");
    expect(members("p")).toEqual(["a@102"]);
  });

  test("of another namespace are none", () => {
    const { cell, core, members } = rig();
    cell.pods.store.upsert("other/a", { ...cell.pod("a"), namespace: "other" }, "101");
    core.put("p");
    expect(members("p")).toEqual([]);
  });

  test("are those of the aggregation selector where there is one", () => {
    const { cell, core, members } = rig();
    cell.put("a", { labels: { app: "p", track: "canary" } });
    cell.put("b", { labels: { app: "p" } });
    core.put("p", {
      selector: { matchLabels: { app: "p", track: "canary" } },
      aggregationSelector: { matchLabels: { app: "p" } },
    });
    expect(members("p")).toEqual(["a@101", "b@102"]);
  });

  test("a pod's change is told to its protectors alone, a change without effect on labels once", () => {
    const { cell, core, told } = rig();
    core.put("p");
    core.put("q");
    told.length = 0;
    cell.put("a");
    cell.unready("a");
    cell.put("a", { labels: { app: "q" } });
    cell.remove("a");
    expect(told).toEqual(["p pod", "p pod", "p pod", "q pod", "q pod"]);
  });

  test("a name that is used again by another pod leaves the new one", () => {
    const { cell, core, members } = rig();
    core.put("p");
    const first = cell.put("a", { uid: "first" });
    const second = cell.putUnseen("a", { uid: "second" });
    // As two shards tell it: the addition first.
    cell.pods.store.upsert("ns/a", second, second.resourceVersion);
    expect(members("p")).toEqual(["a@102"]);
    expect(first.uid).not.toBe(second.uid);
    core.put("late", { selector: { matchLabels: { app: "p" } } });
    expect(members("late")).toEqual(["a@102"]);
  });
});

test("members of one name, each in a shard of its own, are both counted by a protector that comes while the first shard is behind", () => {
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
  const told = (before: Pod | undefined, after: Pod | undefined): void => {
    for (const handler of handlers) handler.changed?.(before, after);
  };
  for (const pod of pods) told(undefined, pod);
  membership.followProtectors("core", core.protectors);
  core.sync();
  core.put("p");
  const members = (): string[] => [...(membership.protector("core", "ns/p")?.pods.keys() ?? [])];
  expect(members()).toEqual(["first", "second"]);
  held.shift();
  told(pods[0], undefined);
  expect(members()).toEqual(["second"]);
});

describe("a long list", () => {
  test("is worked in slice by slice, and what comes meanwhile is worked in in its order", async () => {
    const { time, cell, core, membership, members } = rig();
    core.put("p");
    for (let index = 0; index < 5_000; index++) cell.putUnseen(`pod-${index}`);
    cell.sync();
    expect(membership.whenCurrent()).toBeDefined();
    expect(members("p").length).toBeLessThan(5_000);
    cell.remove("pod-4999");
    cell.put("pod-0", { labels: { app: "other" } });
    core.put("late", { selector: { matchLabels: { app: "p" } } });
    let settled = false;
    void membership.whenCurrent()?.then(() => {
      settled = true;
    });
    await time.advance(10);
    expect(settled).toBe(true);
    expect(membership.whenCurrent()).toBeUndefined();
    expect(members("p")).toHaveLength(4_998);
    expect(members("late")).toEqual(members("p"));
  });

  test("a protector that comes meanwhile does not count the next pod of a name, of other labels, that is not worked in yet", async () => {
    const { time, cell, core, membership, members } = rig();
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

  test("a few changes are worked in at once", () => {
    const { cell, core, membership, members } = rig();
    core.put("p");
    for (let index = 0; index < 50; index++) cell.put(`pod-${index}`);
    expect(membership.whenCurrent()).toBeUndefined();
    expect(members("p")).toHaveLength(50);
  });
});
