import { describe, expect, test } from "vitest";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { ObjectStore } from "../../shared/kube/informer/object-store.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { disruption, pod, protector, unready } from "../../test/support/webhook/fixtures.ts";
import { ProtectorStore } from "../../test/support/webhook/protector-store.ts";
import type { ProbeAnswer, ProbeRequest } from "../probe/probe-request.ts";
import type { LiveRead } from "../request/cell-client.ts";
import { denyStatus } from "../respond/deny-status.ts";
import { Nonces } from "./nonces.ts";
import { type Disruption, Pipeline } from "./pipeline.ts";
import { ProtectorCache } from "./protector-cache.ts";
import type { Verdict } from "./verdict.ts";

const KEY = "default/web";

type Spec = Partial<PodProtector["spec"]>;

function generated(spec: Spec = {}): PodProtector {
  const object = protector(5, { spec });
  return { ...object, metadata: { ...object.metadata, finalizers: [GENERATOR_FINALIZER] } };
}

/** One replica whose watch shows what the test says; the core's store has the protector until the test removes it. */
class Rig {
  readonly time = new VirtualTime();
  readonly source: ObjectStore<ProtectorVersion>;
  readonly store: ProtectorStore;
  readonly core: ProtectorCache;
  readonly pipeline: Pipeline;
  readonly told: string[] = [];
  readonly lost: string[] = [];
  readonly recorded = new Set<string>();
  reachable = true;
  recovering = false;
  comebacks = 0;
  readonly requests: ProbeRequest[] = [];
  answer: ProbeAnswer["result"] = "allowed";

  constructor(object: PodProtector | undefined) {
    this.store = new ProtectorStore({ ports: this.time, object: object ?? generated() });
    this.source = new ObjectStore<ProtectorVersion>({
      uidOf: ({ uid }) => uid,
      versionOf: ({ version }) => version,
      onHandlerError: (error) => {
        throw error;
      },
    });
    const { source } = this;
    const nonces = new Nonces(this.time.random);
    this.core = new ProtectorCache({
      name: "core",
      source: {
        get: (key) => source.get(key),
        values: () => source.values(),
        get size() {
          return source.size;
        },
        get position() {
          return source.position;
        },
        synced: true,
        lastContactMs: 0,
        confirmedSentMs: 0,
        requestEvidence: () => undefined,
        learned: () => undefined,
        subscribe: (handler) => source.subscribe(handler),
      },
      client: this.store.client(),
      ports: this.time,
      tag: nonces.tag,
      isRecovering: () => this.recovering,
      assumeOutage: () => this.comebacks++,
      onEvent: (event) => {
        if (event.kind === "historyLost") this.lost.push(`${event.finding} ${event.now.key}`);
        else if (event.kind === "lost")
          this.told.push(`${event.protector.key} vanished${event.isKept ? "" : ", not kept"}`);
        else if (event.kind === "lostEnded") this.told.push(`${event.protector.key} ${event.how}`);
      },
      releases: this.recorded,
    });
    this.core.problem = () => (this.reachable ? undefined : "out of reach");
    this.pipeline = new Pipeline({
      cores: [this.core],
      ports: this.time,
      nonces,
      settleMs: 75_000,
      askOwner: async (request) => {
        this.requests.push(request);
        return { result: this.answer, message: "" };
      },
    });
    if (object !== undefined) this.show(object);
  }

  show(object: PodProtector): void {
    const entry = new ProtectorVersion(object, 0);
    this.source.upsert(KEY, entry, object.metadata.resourceVersion);
  }

  vanish(): void {
    this.source.remove(KEY, "", "90");
  }

  async ask(of: Pod, overrides: Partial<Disruption> = {}): Promise<Verdict> {
    let verdict: Verdict | undefined;
    const nowMs = this.time.clock.monotonicMs();
    const asked = disruption(of, { arrivedMs: nowMs, deadlineMs: nowMs + 9_500, ...overrides });
    void Promise.resolve(this.pipeline.decide(asked)).then((found) => {
      verdict = found;
    });
    await this.time.runUntil(() => verdict !== undefined, 20_000);
    if (verdict === undefined) throw new Error("there was no verdict");
    return verdict;
  }
}

const PRE_ACTIVITY = { "pre-activity.xpdb.form3.tech/flush": "" };
const VANISHED = { kind: "denied", decisions: [{ decision: { kind: "lost", uid: "uid-of-web" } }] };

describe("a lost protector", () => {
  test.each<[string, Spec, Pod, Partial<Disruption>, object]>([
    ["denies an available pod, whatever its quota was", { minAvailable: 1 }, pod("a"), {}, VANISHED],
    ["allows a pod of which nothing was promised", { minAvailable: 0 }, pod("a"), {}, { kind: "allowed" }],
    ["but for one with a pre-activity", { minAvailable: 0 }, pod("a", { annotations: PRE_ACTIVITY }), {}, VANISHED],
    ["denies the eviction of an available pod", {}, pod("a"), { operation: "EVICT" }, VANISHED],
    ["denies a dry run", {}, pod("a"), { dryRun: true }, VANISHED],
    ["denies a Ready pod that may not be mature", { minReadySeconds: 3600 }, pod("a"), {}, VANISHED],
    ["allows an unavailable pod", {}, unready("a"), {}, { kind: "allowed" }],
    [
      "denies an unavailable pod under IfHealthyBudget",
      { unhealthyPodPolicy: "IfHealthyBudget" },
      unready("a"),
      {},
      VANISHED,
    ],
    ["denies a pod with a pre-activity", {}, unready("a", { annotations: PRE_ACTIVITY }), {}, VANISHED],
    [
      "but for what has never run",
      {},
      pod("a", { phase: "Pending", annotations: PRE_ACTIVITY }),
      { operation: "EVICT" },
      { kind: "allowed" },
    ],
    [
      "and what its annotation forces",
      {},
      unready("a", { annotations: PRE_ACTIVITY }),
      { forced: true },
      { kind: "allowed" },
    ],
    ["allows a pod with force-delete", {}, pod("a"), { forced: true }, { kind: "allowed" }],
    ["stays suspended", { suspend: { enabled: true } }, pod("a"), {}, { kind: "allowed" }],
    ["says nothing about other pods", {}, pod("a", { labels: { app: "other" } }), {}, { kind: "allowed" }],
    [
      "says nothing about what it does not protect from",
      { protectedOperations: ["DELETE"] },
      pod("a"),
      { operation: "EVICT" },
      { kind: "allowed" },
    ],
  ])("%s", async (_name, spec, of, overrides, expected) => {
    const rig = new Rig(generated(spec));
    rig.vanish();
    expect(await rig.ask(of, overrides)).toMatchObject(expected);
    expect(rig.told).toEqual(["default/web vanished"]);
  });

  test.each<[string, Spec, Pod, Partial<Disruption>]>([
    ["Forced", {}, pod("a"), { forced: true }],
    ["Suspended", { suspend: { enabled: true } }, pod("a"), {}],
    ["NothingPromised", { minAvailable: 0 }, pod("a"), {}],
    ["Unavailable", {}, unready("a"), {}],
  ])("gives the audit log the reason of an allowed deletion: %s", async (reason, spec, of, overrides) => {
    for (const isKnown of [true, false]) {
      const rig = new Rig(generated(spec));
      if (isKnown) rig.vanish();
      else rig.store.remove();
      expect(await rig.ask(of, overrides)).toMatchObject({
        kind: "allowed",
        decisions: [{ decision: { decision: { reason } } }],
      });
    }
  });

  test.each<[ProbeAnswer["result"], Verdict["kind"]]>([
    ["allowed", "allowed"],
    ["refused", "denied"],
  ])("asks the owner before it allows: %s", async (result, kind) => {
    const rig = new Rig(generated({ probe: { endpoint: "db:1" } }));
    rig.vanish();
    rig.answer = result;
    expect(await rig.ask(unready("a"))).toMatchObject({ kind });
    expect(await rig.ask(pod("a"))).toMatchObject(VANISHED);
    expect(rig.requests).toMatchObject([{ podName: "a", budgetName: "web", probe: { endpoint: "db:1" } }]);
  });

  test("asks the owner, too, when the protector is lost during the decision", async () => {
    const spec = { probe: { endpoint: "db:1" } };
    const onHold = protector(5, { spec, aggregation: { hold: "WentBack/x" } });
    const rig = new Rig({ ...onHold, metadata: { ...onHold.metadata, finalizers: [GENERATOR_FINALIZER] } });
    rig.answer = "refused";
    rig.store.remove();
    rig.time.timers.after(0.5, () => rig.vanish());
    expect(await rig.ask(unready("a"), { operation: "EVICT" })).toMatchObject({ kind: "denied" });
    expect(rig.requests).toHaveLength(1);
  });

  test("denies while its core is out of reach, when other pods of the core get no decision", async () => {
    const rig = new Rig(generated());
    rig.vanish();
    rig.reachable = false;
    expect(await rig.ask(pod("a"))).toMatchObject(VANISHED);
    expect(await rig.ask(unready("a"))).toMatchObject({ kind: "failed" });
  });

  test("ends when the protector is restored: its quota decides again, with its history in doubt", async () => {
    const rig = new Rig(generated());
    rig.vanish();
    rig.store.put(() => ({ ...generated(), metadata: { ...generated().metadata, uid: "another" } }));
    rig.show(rig.store.object);
    expect(rig.told).toEqual(["default/web vanished", "default/web back"]);
    expect(rig.lost).toEqual(["replaced default/web"]);
    expect(await rig.ask(pod("a"))).toMatchObject({ kind: "allowed" });
  });

  test("ends when its release is recorded", async () => {
    const rig = new Rig(generated());
    rig.vanish();
    rig.recorded.add("uid-of-web");
    rig.core.dropReleased();
    expect(rig.told).toEqual(["default/web vanished", "default/web released"]);
    expect(await rig.ask(pod("a"))).toMatchObject({ kind: "allowed", decisions: [] });
  });

  test("a read that misses the protector before the watch does allows nothing", async () => {
    const rig = new Rig(generated());
    rig.store.remove();
    expect(await rig.ask(pod("a"))).toMatchObject(VANISHED);
  });

  test("says what to do", () => {
    const protector = { core: "core", namespace: "default", name: "web" };
    const denial = { protector, decision: { kind: "lost", uid: "1-2-3" } } as const;
    const { message, details } = denyStatus({ operation: "DELETE", namespace: "default", pod: "a" }, [denial], {
      ownNamespace: "podseidon-system",
      hasSeveralCores: true,
      settleMs: 75_000,
      nowMs: 0,
    });
    expect(message).toMatch(/PodProtector default\/web \(core core\) vanished without a release/);
    expect(message).toContain(
      "kubectl -n podseidon-system patch configmap " +
        "podseidon-released-by-hand --type merge -p " +
        `'{"data":{"1-2-3":"default/web"}}'`,
    );
    expect(details).not.toHaveProperty("retryAfterSeconds");
  });
});

describe("the eviction of a pod of a lost protector, after an old live read", () => {
  const found = (of: Pod): LiveRead => ({ kind: "found", pod: of, sentMs: 0 });
  const unready = pod("a", { conditions: [] });
  test.each<[string, LiveRead, object]>([
    ["is denied when the pod is available now", found(pod("a")), VANISHED],
    ["is allowed when the pod is still unavailable", found(unready), { kind: "allowed" }],
    ["is not found when the pod is gone", { kind: "gone" }, { kind: "podGone" }],
    ["fails when the pod can't be read again", { kind: "failed", message: "no route" }, { kind: "failed" }],
  ])("%s", async (_name, live, expected) => {
    const rig = new Rig(generated());
    rig.vanish();
    const given = { operation: "EVICT" as const, podReadMs: -1_000, reread: () => Promise.resolve(live) };
    expect(await rig.ask(unready, given)).toMatchObject(expected);
  });
});

describe("a released protector allows its pods", () => {
  const marked = generated();
  test.each<[string, PodProtector, boolean]>([
    [
      "by its mark",
      { ...marked, metadata: { ...marked.metadata, annotations: { [RELEASED_ANNOTATION]: "NotRequired" } } },
      false,
    ],
    ["by the register", generated(), true],
    ["made by hand, by its deletion", protector(5), false],
  ])("%s", async (_name, object, isRecorded) => {
    const rig = new Rig(object);
    if (isRecorded) rig.recorded.add("uid-of-web");
    rig.vanish();
    expect(await rig.ask(pod("a"))).toMatchObject({ kind: "allowed", decisions: [] });
    expect(rig.told).toEqual([]);
  });
});

test("a restored core has deleted nothing, not even a protector made by hand", async () => {
  const rig = new Rig(protector(5));
  rig.core.restored(true);
  rig.source.swap(new Map(), "7", true);
  rig.core.restored(false);
  expect(await rig.ask(pod("a"))).toMatchObject(VANISHED);
});

test("nor has a core that a read finds empty right after an outage, before the relist", async () => {
  const rig = new Rig(protector(10));
  rig.store.remove();
  rig.recovering = true;
  expect(await rig.ask(pod("a"))).toMatchObject(VANISHED);
  // Nothing was restored: the watch has seen its deletion.
  rig.vanish();
  expect(await rig.ask(pod("a"))).toMatchObject({ kind: "allowed" });
});

describe("the backups of the cells, at the start", () => {
  const version = (object: PodProtector): ProtectorVersion => new ProtectorVersion(object, 0);

  test("a protector in neither the core nor the register is lost", async () => {
    const rig = new Rig(undefined);
    rig.source.swap(new Map(), "90", false);
    rig.core.adopt({ entries: [version(generated())], versions: ["80"] });
    expect(rig.core.lostCount).toBe(1);
    expect(await rig.ask(pod("a"))).toMatchObject(VANISHED);
    expect(rig.lost).toEqual([]);
  });

  test.each<[string, PodProtector, readonly string[], number]>([
    ["a recorded protector", generated(), ["uid-of-web"], 0],
    ["a protector made by hand", protector(5), [], 0],
  ])("%s is not lost", (_name, object, recorded, lostCount) => {
    const rig = new Rig(undefined);
    rig.source.swap(new Map(), "90", false);
    for (const uid of recorded) rig.recorded.add(uid);
    rig.core.adopt({ entries: [version(object)], versions: [] });
    expect(rig.core.lostCount).toBe(lostCount);
  });

  test.each(["the older first", "the younger first"])(
    "of two of one name the younger is in force: %s",
    async (order) => {
      const rig = new Rig(undefined);
      rig.source.swap(new Map(), "90", false);
      const of = (uid: string, creationTimestamp: string, app: string): ProtectorVersion => {
        const { metadata, spec, ...rest } = generated();
        const selector = { matchLabels: { app } };
        return version({ ...rest, metadata: { ...metadata, uid, creationTimestamp }, spec: { ...spec, selector } });
      };
      const entries = [of("old", "2026-01-01T00:00:00Z", "other"), of("young", "2026-01-01T00:01:00Z", "web")];
      if (order === "the younger first") entries.reverse();
      for (const entry of entries) rig.core.adopt({ entries: [entry], versions: [] });
      expect(await rig.ask(pod("a"))).toMatchObject({ decisions: [{ decision: { kind: "lost", uid: "young" } }] });
    },
  );

  describe("of two of one object, which differ, both are in force", () => {
    function bothAdopted(recorded: readonly string[] = []): Rig {
      const rig = new Rig(undefined);
      rig.source.swap(new Map(), "90", false);
      for (const uid of recorded) rig.recorded.add(uid);
      for (const matchLabels of [{ app: "other" }, { app: "web" }, { app: "web" }])
        rig.core.adopt({ entries: [version(generated({ selector: { matchLabels } }))], versions: [] });
      return rig;
    }
    const other: Pod = { ...pod("b"), labels: { app: "other" } };

    test("whichever was read first", async () => {
      const rig = bothAdopted();
      expect(rig.core.lostCount).toBe(1);
      expect(rig.told).toEqual(["default/web vanished"]);
      expect(await rig.ask(pod("a"))).toMatchObject(VANISHED);
      expect(await rig.ask(other)).toMatchObject(VANISHED);
    });

    test("and a pod that both cover is denied once", async () => {
      const rig = bothAdopted();
      const spec = { selector: { matchLabels: { app: "web" } }, minAvailable: 0 };
      rig.core.adopt({ entries: [version(generated(spec))], versions: [] });
      const verdict = await rig.ask(pod("a"));
      expect(verdict).toMatchObject({ kind: "denied", decisions: [{ decision: { kind: "lost" } }] });
      expect(verdict.kind === "denied" && verdict.decisions).toHaveLength(1);
    });

    test("until the protector is back", async () => {
      const rig = bothAdopted();
      rig.show(generated());
      expect(await rig.ask(pod("a"))).toMatchObject({ kind: "allowed" });
      expect(await rig.ask(other)).toEqual({ kind: "allowed", decisions: [] });
      rig.vanish();
      expect(await rig.ask(pod("a"))).toMatchObject(VANISHED);
      expect(await rig.ask(other)).toEqual({ kind: "allowed", decisions: [] });
    });

    test("until it is released", async () => {
      const rig = bothAdopted();
      rig.recorded.add("uid-of-web");
      rig.core.dropReleased();
      expect(rig.core.isEmpty).toBe(true);
      for (const of of [pod("a"), other]) expect(await rig.ask(of)).toEqual({ kind: "allowed", decisions: [] });
    });

    test("unless its release was known before", () => {
      expect(bothAdopted(["uid-of-web"]).core.isEmpty).toBe(true);
    });

    test("or a younger object of the name was lost", async () => {
      const rig = bothAdopted();
      const { metadata, ...rest } = generated();
      const creationTimestamp = "2036-01-01T00:00:00Z";
      rig.core.adopt({
        entries: [version({ ...rest, metadata: { ...metadata, uid: "young", creationTimestamp } })],
        versions: [],
      });
      expect(await rig.ask(pod("a"))).toMatchObject({ decisions: [{ decision: { kind: "lost", uid: "young" } }] });
      expect(await rig.ask(other)).toEqual({ kind: "allowed", decisions: [] });
    });
  });

  test("a protector that exists is not lost", async () => {
    const rig = new Rig(generated());
    rig.core.adopt({ entries: [version(generated())], versions: [] });
    expect(rig.core.lostCount).toBe(0);
    expect(await rig.ask(pod("a"))).toMatchObject({ kind: "allowed" });
  });

  test("a core older than its highest version has lost history, and protectors made by hand", async () => {
    const rig = new Rig(generated());
    const other = protector(5, { name: "other" });
    rig.core.adopt({ entries: [version(other)], versions: ["1000"] });
    expect(rig.lost).toEqual(["wentBack default/web"]);
    expect(rig.told).toEqual(["default/other vanished"]);
  });

  test.each<[string, string, readonly string[], number]>([
    ["went on by writes", "900000080", ["81"], 0],
    ["went on by what a restore adds", "1000000070", ["80"], 1],
    ["was not seen before", "1000000070", [], 0],
    ["has versions that are no numbers", "x", ["80"], 0],
  ])("a core whose version %s", (_name, position, versions, comebacks) => {
    const rig = new Rig(undefined);
    rig.source.swap(new Map(), position, false);
    rig.core.adopt({ entries: [], versions });
    expect(rig.comebacks).toBe(comebacks);
  });
});
