import { describe, expect, test } from "vitest";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { ApiResult } from "../../kube/client/api-result.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION, RESTORED_ANNOTATION } from "../../schema/annotations.ts";
import type { PodProtector } from "../../schema/podprotector.ts";
import { BackupRestorer } from "./backup-restorer.ts";

const HEAD_START_MS = 30_000;

function protector(metadata: Partial<PodProtector["metadata"]> = {}): PodProtector {
  const buckets = [{ startTime: "2026-01-01T00:00:00Z", podUID: "p1" }];
  return {
    metadata: {
      name: "web",
      namespace: "shop",
      uid: "u1",
      resourceVersion: "7",
      finalizers: [GENERATOR_FINALIZER],
      ...metadata,
    },
    spec: { minAvailable: 5, minReadySeconds: 0, selector: {} },
    status: {
      cells: [{ cellID: "cell-1", admissionHistory: { buckets } }],
      summary: { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 },
    },
  };
}

function rig() {
  const time = new VirtualTime();
  const told: string[] = [];
  const over: string[] = [];
  const created: unknown[] = [];
  const statuses: unknown[] = [];
  const recorded = new Set<string>();
  const present = new Set<string>();
  /** `most`: how many calls this process makes as the leader. */
  const core = { isReachable: true, refreshed: 0, most: Number.POSITIVE_INFINITY, isSlow: false };
  let answer: ApiResult<never> | undefined;
  const made = { ...protector({ uid: "u2", resourceVersion: "9" }), status: undefined };
  const lost = new BackupRestorer({
    cellID: "cell-1",
    ports: time,
    headStartMs: HEAD_START_MS,
    isRecorded: (_, { metadata }) => recorded.has(metadata.uid),
    refreshReleases: async () => {
      core.refreshed++;
      return core.isReachable;
    },
    isPresent: (_, key) => present.has(key),
    apiOf: () => ({
      create: async (_path, body, parse) => {
        created.push(body);
        if (core.isSlow) await time.advance(4_000);
        const { status: _, ...bare } = made;
        const name = Reflect.get(Object(Reflect.get(Object(body), "metadata")), "name");
        return answer ?? { kind: "ok", object: parse({ ...bare, metadata: { ...bare.metadata, name } }) };
      },
      putPodProtectorStatus: async (identity, status) => {
        statuses.push([identity, status]);
        return { kind: "ok", object: protector() };
      },
      getPodProtector: async () => ({ kind: "gone" }),
    }),
    onEnded: ({ object }) => over.push(object.metadata.uid),
    timeoutMs: 1_000,
    mayWrite: () => created.length < core.most,
    onEvent: ({ kind }) => told.push(kind),
  });
  const work = async (afterMs: number): Promise<void> => {
    await time.advance(afterMs);
    lost.endPresent();
    await lost.restoreDue("core", new AbortController().signal);
  };
  const add = (object = protector(), isRestored = false): boolean => lost.add({ core: "core", object }, isRestored);
  return {
    lost,
    time,
    told,
    over,
    created,
    statuses,
    recorded,
    present,
    core,
    add,
    work,
    answerWith: (result: ApiResult<never>) => {
      answer = result;
    },
  };
}

// Its generator restores it at once, and between two rounds of this cell it is lost again.
test.each([["first"], ["last"]])(
  "of two lost protectors of one name, the younger added %s, that one is restored",
  async (when) => {
    const { add, created, work } = rig();
    const of = (uid: string, second: number, minAvailable: number): PodProtector => {
      const one = protector({ uid, creationTimestamp: `2026-01-01T00:00:0${second}Z` });
      return { ...one, spec: { ...one.spec, minAvailable } };
    };
    const both = [of("u1", 1, 2), of("u2", 5, 5)];
    for (const one of when === "first" ? both.toReversed() : both) add(one);
    await work(HEAD_START_MS);
    expect(created).toMatchObject([{ spec: { minAvailable: 5 } }]);
  },
);

// A quota of protectors in their namespace refuses their restore, and the room for others that their client makes.
test("lost protectors that can't be restored are bounded: a namespace that has most gives way to others", () => {
  const { add, lost, over, told } = rig();
  const of = (namespace: string, name: string): PodProtector => protector({ namespace, name, uid: name });
  for (let one = 0; one < 50_000; one++) add(of("tenant", `web-${one}`));
  expect(add(of("tenant", "beyond"))).toBe(false);
  expect(add(of("shop", "db"))).toBe(true);
  expect([lost.size, lost.has("db"), lost.has("web-0")]).toEqual([50_000, true, false]);
  // Their backups end, too.
  expect(over).toEqual(["beyond", "web-0"]);
  expect(told).toHaveLength(50_001);
});

describe("a lost protector", () => {
  test("is restored after the generator's head start, marked, with its history but no other status", async () => {
    const { add, work, created, statuses, told } = rig();
    expect(add()).toBe(true);
    await work(HEAD_START_MS - 1);
    expect(created).toEqual([]);
    await work(1);
    expect(created).toMatchObject([
      {
        metadata: { name: "web", annotations: { [RESTORED_ANNOTATION]: expect.stringMatching(/^cell cell-1: /) } },
        spec: { minAvailable: 5 },
      },
    ]);
    expect(created[0]).not.toHaveProperty("metadata.uid");
    expect(statuses).toMatchObject([
      [{ uid: "u2" }, { cells: [{ cellID: "cell-1", admissionHistory: { buckets: [{ podUID: "p1" }] } }] }],
    ]);
    expect(told).toEqual(["vanished", "recreated"]);
  });

  test("does not block its owner, which needs a permission in some clusters", async () => {
    const { add, created, work } = rig();
    const owner = { apiVersion: "apps/v1", kind: "Deployment", name: "web", uid: "d1", controller: true };
    add(protector({ ownerReferences: [{ ...owner, blockOwnerDeletion: true }] }));
    await work(HEAD_START_MS);
    expect(created).toMatchObject([{ metadata: { ownerReferences: [owner] } }]);
    expect(JSON.stringify(created)).not.toContain("blockOwnerDeletion");
  });

  test("is not restored when it exists again before that", async () => {
    const { add, work, created, present, over, lost } = rig();
    add();
    present.add("shop/web");
    await work(HEAD_START_MS);
    expect(created).toEqual([]);
    expect(over).toEqual(["u1"]);
    expect(lost.size).toBe(0);
  });

  test("is not restored when its release is recorded before that", async () => {
    const { add, work, created, recorded, over } = rig();
    add();
    recorded.add("u1");
    await work(HEAD_START_MS);
    expect([created, over]).toEqual([[], ["u1"]]);
  });

  test("is tried again until the core accepts it", async () => {
    const { add, work, created, answerWith, told } = rig();
    add();
    answerWith({ kind: "unavailable", error: new Error("not served"), sent: false, status: 404 });
    await work(HEAD_START_MS);
    await work(1_000);
    await work(15_000);
    expect(created).toHaveLength(2);
    expect(told).toEqual(["vanished", "recreateFailed", "recreateFailed"]);
  });

  test("a conflict with another cell is no failure", async () => {
    const { add, work, answerWith, told } = rig();
    add();
    answerWith({ kind: "conflict", message: "exists" });
    await work(HEAD_START_MS);
    expect(told).toEqual(["vanished"]);
  });
});

describe("many protectors that were lost", () => {
  type Rig = ReturnType<typeof rig>;
  const away = { kind: "unavailable", error: new Error("no"), sent: true } as const;
  const named = (created: readonly unknown[]): number[] =>
    created.map((body) => Number(String(Reflect.get(Object(Reflect.get(Object(body), "metadata")), "name")).slice(1)));

  test.each<[string, (it: Rig) => void, number[]]>([
    ["in the order in which they vanished, 200 at once", () => {}, [200, 50]],
    ["and none before the release register is read", ({ core }) => Object.assign(core, { isReachable: false }), [0, 0]],
    ["as long as this process leads", ({ core }) => Object.assign(core, { most: 7 }), [7, 0]],
    ["for ten seconds", ({ core }) => Object.assign(core, { isSlow: true }), [3, 3]],
    ["until the core gives no answer", ({ answerWith }) => answerWith(away), [1, 1]],
    ["and go on where it answers with a failure", ({ answerWith }) => answerWith({ ...away, status: 500 }), [200, 50]],
  ])("are restored %s", async (_, given, expected) => {
    const it = rig();
    for (let number = 249; number >= 0; number--) {
      it.add(protector({ name: `p${number}`, uid: `u${number}` }));
      await it.time.advance(1);
    }
    // This one was there again meanwhile.
    it.add(protector({ name: "p249", uid: "u249" }));
    given(it);
    await it.work(HEAD_START_MS);
    const first = it.created.length;
    await it.work(1);
    expect([first, it.created.length - first]).toEqual(expected);
    const order = Array.from({ length: 250 }, (_, index) => (index < 249 ? 248 - index : 249));
    expect(named(it.created)).toEqual(order.slice(0, it.created.length));
    expect(it.told.filter((kind) => kind === "vanished")).toHaveLength(250);
  });

  test("of which none is due are not asked about", async () => {
    const { add, work, core } = rig();
    add();
    await work(HEAD_START_MS - 1);
    expect(core.refreshed).toBe(0);
  });

  test("are restored no more once this process stops", async () => {
    const { add, lost, time, created } = rig();
    add();
    await time.advance(HEAD_START_MS);
    await lost.restoreDue("core", AbortSignal.abort());
    expect(created).toEqual([]);
  });
});

describe("a released protector is not lost", () => {
  test.each<[string, PodProtector, boolean, boolean]>([
    ["marked as released", protector({ annotations: { [RELEASED_ANNOTATION]: "x" } }), false, false],
    ["marked, even in a restored core", protector({ annotations: { [RELEASED_ANNOTATION]: "x" } }), true, false],
    ["made by hand and deleted", protector({ finalizers: [] }), false, false],
    ["but a protector made by hand is lost in a restored core", protector({ finalizers: [] }), true, true],
  ])("%s", (_name, object, isRestored, expected) => {
    expect(rig().add(object, isRestored)).toBe(expected);
  });
});
