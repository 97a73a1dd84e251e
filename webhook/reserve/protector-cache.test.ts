import { describe, expect, test } from "vitest";
import type { Labels } from "../../shared/decide/availability/selector.ts";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { LearningInformer } from "../../shared/kube/informer/informer.ts";
import { ObjectStore } from "../../shared/kube/informer/object-store.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Aggregation, PodProtector } from "../../shared/schema/podprotector.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { disruption, noncesOf, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { ProtectorStore } from "../../test/support/webhook/protector-store.ts";
import { Nonces } from "./nonces.ts";
import { Pipeline } from "./pipeline.ts";
import { ProtectorCache } from "./protector-cache.ts";
import { RecentReservations } from "./recent-reservations.ts";
import type { Verdict } from "./verdict.ts";

const SETTLE_MS = 75_000;
const KEY = "default/web";

/** A replica over one stored protector; the test drives its watch. */
class Replica {
  readonly time = new VirtualTime();
  readonly source: ObjectStore<ProtectorVersion>;
  readonly store: ProtectorStore;
  readonly core: ProtectorCache;
  readonly pipeline: Pipeline;
  readonly learned: string[] = [];
  readonly findings: string[] = [];
  confirmedSentMs: number | undefined = 0;

  constructor(object: PodProtector, selects?: (labels: Labels) => boolean) {
    const { time } = this;
    this.store = new ProtectorStore({ ports: time, object });
    this.source = new ObjectStore<ProtectorVersion>({
      uidOf: ({ uid }) => uid,
      versionOf: ({ version }) => version,
      onHandlerError: (error) => {
        throw error;
      },
    });
    const nonces = new Nonces(time.random);
    const memory = new RecentReservations({
      ports: time,
      settleMs: SETTLE_MS,
      submit: (key, pending) => this.core.submit(key, pending),
    });
    this.core = new ProtectorCache({
      name: "core",
      source: this.#confirmed(),
      client: this.store.client(),
      ports: time,
      tag: nonces.tag,
      selects,
      onEvent: (event) => {
        if (event.kind === "committed") memory.remember(event.stored.key, event.batch);
        if (event.kind !== "historyLost") return;
        const { finding, before, now } = event;
        this.findings.push(finding);
        memory.reassert(now.key, `${finding}/1`, [...before.state.cells.keys(), ...now.state.cells.keys()]);
      },
    });
    this.pipeline = new Pipeline({ cores: [this.core], ports: time, nonces, settleMs: SETTLE_MS });
    this.show();
  }

  #confirmed(): LearningInformer<ProtectorVersion> {
    const { source } = this;
    const confirmed = (): number | undefined => this.confirmedSentMs;
    return {
      get: (key) => source.get(key),
      values: () => source.values(),
      get size() {
        return source.size;
      },
      get position() {
        return source.position;
      },
      get synced() {
        return source.position !== undefined;
      },
      lastContactMs: 0,
      get confirmedSentMs() {
        return confirmed();
      },
      requestEvidence: () => undefined,
      learned: (_, version) => this.learned.push(version),
      subscribe: (handler) => source.subscribe(handler),
    };
  }

  /** The watch shows the stored object. */
  show(object: PodProtector = this.store.object): void {
    const entry = new ProtectorVersion(object, this.time.clock.monotonicMs());
    this.source.upsert(KEY, entry, entry.version);
  }

  /** A relist after a restore shows the stored object. */
  relist(): void {
    this.core.restored(true);
    const entry = new ProtectorVersion(this.store.object, this.time.clock.monotonicMs());
    this.source.swap(new Map([[KEY, entry]]), entry.version, true);
    this.core.restored(false);
  }

  delete(name: string): Promise<Verdict> {
    const nowMs = this.time.clock.monotonicMs();
    const asked = disruption(pod(name), { arrivedMs: nowMs, deadlineMs: nowMs + 9_500 });
    return this.time.result(this.pipeline.decide(asked));
  }

  get hold(): string | undefined {
    return this.store.object.status?.cells[0]?.aggregation?.hold;
  }
}

const generated = (aggregation: Partial<Aggregation> = {}): PodProtector => {
  const object = protector(5, { aggregation });
  return { ...object, metadata: { ...object.metadata, finalizers: [GENERATOR_FINALIZER] } };
};

describe("matching", () => {
  test("a writer is forgotten with its protector", async () => {
    const replica = new Replica(protector(5));
    const writer = () => replica.core.match(pod("web-0"))[0]?.writer;
    const before = writer();
    const verdict = replica.pipeline.decide(disruption(pod("web-0")));
    expect(before?.idle).toBe(false);
    replica.source.remove(KEY, "uid-of-web", "2");
    await replica.time.advance(10_000);
    await verdict;
    expect(before?.idle).toBe(true);
    replica.show();
    expect(writer()).not.toBe(before);
  });

  test("follows the selector of the newest spec, and the object's deletion", async () => {
    const replica = new Replica(protector(10));
    const names = (): string[] => replica.core.match(pod("web-0")).map(({ name }) => name);
    expect(names()).toEqual(["web"]);
    replica.store.put((object) => ({
      ...object,
      metadata: { ...object.metadata, generation: 2 },
      spec: { ...object.spec, selector: { matchLabels: { app: "other" } } },
    }));
    replica.show();
    expect(names()).toEqual([]);
    replica.store.put((object) => ({
      ...object,
      metadata: { ...object.metadata, generation: 3 },
      spec: { ...object.spec, selector: { matchLabels: { app: "web" } } },
    }));
    replica.show();
    expect(names()).toEqual(["web"]);
    replica.source.remove(KEY, "uid-of-web", "9");
    expect(names()).toEqual([]);
  });

  test("a protector with other labels than asked for decides nothing, and is not lost", async () => {
    const labelled = (fleet: string) => (object: PodProtector) => ({
      ...object,
      metadata: { ...object.metadata, labels: { fleet } },
    });
    const replica = new Replica(labelled("blue")(generated()), ({ fleet }) => fleet === "blue");
    const found = (): number[] => [
      replica.core.match(pod("web-0")).length,
      replica.core.covering("default", pod("web-0").labels).length,
    ];
    expect([...found(), replica.core.leftOut, replica.core.lostCount]).toEqual([1, 1, 0, 0]);
    replica.store.put(labelled("green"));
    replica.show();
    expect([...found(), replica.core.leftOut, replica.core.lostCount]).toEqual([0, 0, 1, 0]);
    replica.source.remove(KEY, "uid-of-web", "9");
    expect([...found(), replica.core.lostCount]).toEqual([0, 0, 1]);
  });

  test("pods of other namespaces are not covered", () => {
    expect(new Replica(protector(10)).core.match(pod("web-0", { namespace: "other" }))).toEqual([]);
  });
});

describe("the age of the cache", () => {
  test.each([
    ["confirmed a moment ago", 1_000, undefined],
    ["confirmed within the bound", 14_999, undefined],
    ["not confirmed for the bound", 15_000, /not confirmed its protectors for 15 s/],
  ])("%s", (_name, ageMs, expected) => {
    const replica = new Replica(protector(10));
    const problem = replica.core.problem(ageMs);
    if (expected === undefined) expect(problem).toBeUndefined();
    else expect(problem).toMatch(expected);
  });

  test("never confirmed", () => {
    const replica = new Replica(protector(10));
    replica.confirmedSentMs = undefined;
    expect(replica.core.problem(0)).toMatch(/has not confirmed its protectors yet/);
  });
});

describe("lost history", () => {
  test("after a version went back, own reservations are written again and every cell is on hold, once", async () => {
    const replica = new Replica(generated());
    const before = replica.store.object;
    expect(await replica.delete("web-0")).toMatchObject({ kind: "allowed" });
    replica.show();
    const nonces = noncesOf(replica.store.object).get("uid-web-0");
    replica.store.put(() => before, "1");
    replica.relist();
    await replica.time.advance(1_000);
    expect(replica.findings).toEqual(["wentBack"]);
    expect(noncesOf(replica.store.object).get("uid-web-0")).toEqual(nonces);
    expect(replica.hold).toMatch(/^wentBack\/\S+$/);
    replica.show();
    expect(await replica.delete("web-1")).toMatchObject({
      kind: "denied",
      decisions: [{ decision: { decision: { cause: "OnHold" } } }],
    });
    expect(replica.findings).toHaveLength(1);
  });

  test("a restored object that another writer wrote first is newer, and lacks an own reservation", async () => {
    const replica = new Replica(generated({ heartbeatTime: "2026-01-01T00:00:00.000000Z" }));
    const before = replica.store.object;
    await replica.delete("web-0");
    replica.show();
    replica.store.put(() => before);
    replica.show();
    await replica.time.advance(1_000);
    expect(replica.findings).toEqual(["wentBack"]);
    expect(noncesOf(replica.store.object).has("uid-web-0")).toBe(true);
    expect(replica.hold).toMatch(/^wentBack\/\S+$/);
  });

  test("a lost version whose number was reused is noticed in the list after a restore", async () => {
    const replica = new Replica(generated());
    const before = replica.store.object;
    await replica.delete("web-0");
    replica.show();
    const { version } = { version: replica.store.object.metadata.resourceVersion };
    replica.store.put(() => before, version);
    replica.relist();
    await replica.time.advance(1_000);
    expect(replica.findings).toEqual(["wentBack"]);
    expect(noncesOf(replica.store.object).has("uid-web-0")).toBe(true);
  });

  test("an own write that was lost before the watch showed it is noticed in the list after a restore", async () => {
    const replica = new Replica(generated());
    const before = replica.store.object;
    await replica.delete("web-0");
    expect(replica.learned).toEqual([replica.store.object.metadata.resourceVersion]);
    replica.store.put(() => before, before.metadata.resourceVersion);
    replica.relist();
    await replica.time.advance(1_000);
    expect(replica.findings).toEqual(["wentBack"]);
    expect(noncesOf(replica.store.object).has("uid-web-0")).toBe(true);
  });

  test.each<[string, string, boolean]>([
    ["an older version", "5", false],
    ["another version in the list after a restore", "99", true],
  ])("where nobody has reserved, the watch notices %s", (_name, version, isRestored) => {
    const replica = new Replica(generated());
    replica.store.put((object) => object, "20");
    replica.show();
    expect(replica.findings).toEqual([]);
    replica.store.put((object) => object, version);
    if (isRestored) replica.relist();
    else replica.source.swap(new Map([[KEY, new ProtectorVersion(replica.store.object, 0)]]), version, false);
    expect(replica.findings).toEqual(["wentBack"]);
  });

  test("a list after a restore that shows the same object is no loss", async () => {
    const replica = new Replica(generated());
    await replica.delete("web-0");
    replica.show();
    replica.relist();
    await replica.time.advance(1_000);
    expect(replica.findings).toEqual([]);
  });

  test("a conflict whose read shows an older version is noticed before the watch does", async () => {
    const replica = new Replica(generated());
    const before = replica.store.object;
    await replica.delete("web-0");
    replica.show();
    await replica.time.advance(10);
    replica.store.put(() => before, "0");
    const verdict = await replica.delete("web-1");
    await replica.time.advance(1_000);
    expect(verdict.kind).toBe("denied");
    expect(replica.findings).toEqual(["wentBack"]);
    expect(noncesOf(replica.store.object).has("uid-web-0")).toBe(true);
    expect(replica.hold).toBeDefined();
  });

  test("settled reservations are not written again", async () => {
    const replica = new Replica(generated());
    const before = replica.store.object;
    await replica.delete("web-0");
    await replica.time.advance(2 * SETTLE_MS + 1);
    replica.show();
    replica.store.put(() => before, "1");
    replica.relist();
    await replica.time.advance(1_000);
    expect(noncesOf(replica.store.object).has("uid-web-0")).toBe(false);
    expect(replica.hold).toBeDefined();
  });

  test.each<[string, (object: PodProtector) => PodProtector, string[]]>([
    ["was lost: its successor is put on hold", (object) => object, ["replaced"]],
    [
      "was released: its successor has no hold",
      (object) => ({ ...object, metadata: { ...object.metadata, annotations: { [RELEASED_ANNOTATION]: "x" } } }),
      [],
    ],
    [
      "was made by hand and deleted: its successor has no hold",
      (object) => ({ ...object, metadata: { ...object.metadata, finalizers: [] } }),
      [],
    ],
  ])("a protector that %s", async (_name, last, findings) => {
    const replica = new Replica(generated());
    replica.store.put(last);
    replica.show();
    replica.source.remove(KEY, "uid-of-web", "20");
    replica.store.put(() => protector(5, { uid: "another" }), "21");
    replica.show();
    await replica.time.advance(1_000);
    expect(replica.findings).toEqual(findings);
    expect(replica.hold === undefined).toBe(findings.length === 0);
  });
});

test("the selector counts when a restored core gives the generation of a lost spec to another one", async () => {
  const replica = new Replica(protector(10, { spec: { selector: { matchLabels: { app: "other" } } } }));
  expect(await replica.delete("web-0")).toMatchObject({ kind: "allowed", decisions: [] });
  replica.store.put((object) => ({ ...object, spec: { ...object.spec, selector: { matchLabels: { app: "web" } } } }));
  expect(replica.store.object.metadata.generation).toBe(1);
  replica.relist();
  expect(await replica.delete("web-1")).toMatchObject({ kind: "denied" });
});
