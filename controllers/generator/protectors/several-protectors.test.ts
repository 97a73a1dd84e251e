/** Sources with several protectors: each is created, repaired and released by itself. All share the finalizer. */
import { describe, expect, test } from "vitest";
import { PERHAPS_RESTORED, RESTORED } from "../../../shared/recovery/restore-protector.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import type { ProtectionSource, RequiredProtector } from "../sources/protection-source.ts";
import { alternativeName } from "./names.ts";
import { isRepair, plan } from "./plan.ts";
import { newProtector } from "./protector.ts";

const GENERATOR = "podseidon.kubewharf.io/generator";
const DELETED = "2026-01-01T00:00:00Z";
const SCALABLE = "fleet.example.com/v1/databases?name={.n}&replicas=.r&selector=.s";
const plugin = pluginNamed("databases.fleet.example.com", { scalable: [SCALABLE] });
const kind = { ...plugin.kind, kind: "Database" };
const KEY = "databases.fleet.example.com/shop/web";

function shard(name: string, minAvailable = 2): RequiredProtector {
  const spec = { minAvailable, minReadySeconds: 0, selector: { matchLabels: { shard: name } } };
  return { name: `database-web-${name}`, spec, derivation: `${name}: minAvailable ${minAvailable}` };
}

function source(shards: readonly RequiredProtector[], changes: Partial<ProtectionSource> = {}): ProtectionSource {
  return {
    ...{ namespace: "shop", name: "web", uid: "u1", resourceVersion: "7", deleting: false },
    ...{ finalizers: [GENERATOR], decision: "Protected", protectors: shards },
    ...changes,
  };
}

function present(required: RequiredProtector, changes: Partial<PodProtector["metadata"]> = {}): PodProtector {
  const { metadata, spec } = newProtector(kind, source([required]), required, required.name);
  const { ownerReferences, finalizers } = metadata;
  const stored = { uid: `p-${required.name}`, resourceVersion: "9" };
  const lists = { ownerReferences: [...ownerReferences], finalizers: [...finalizers] };
  return { metadata: { ...metadata, ...stored, ...lists, ...changes }, spec };
}

/** `kind name` of each step. */
function steps(
  of: ProtectionSource | undefined,
  own: readonly PodProtector[],
  others: readonly PodProtector[] = [],
  lost: readonly PodProtector[] = [],
): string[] {
  const identity = { plugin: plugin.name, namespace: "shop", name: "web" };
  const named = (name: string): PodProtector | undefined =>
    [...own, ...others].find((one) => one.metadata.name === name);
  return plan({ kind, plugins: [plugin], identity, source: of, protectors: own, named, lost }).map((step) => {
    if (step.kind === "create") {
      const mark = step.object.metadata.annotations["podseidon.kubewharf.io/restored"];
      return `create ${step.object.metadata.name}${mark === undefined ? "" : `, ${mark}`}`;
    }
    if ("protector" in step) return `${step.kind} ${step.protector.metadata.name}`;
    return step.kind === "restore" ? `restore ${step.lost.metadata.name}` : step.kind;
  });
}

describe("a source of two protectors", () => {
  const [a, b] = [shard("a"), shard("b")];
  const both = [present(a), present(b)];

  test("is held before the first of them is created", () => {
    expect(steps(source([a, b], { finalizers: [] }), [])).toEqual([
      "addSourceFinalizer",
      "create database-web-a",
      "create database-web-b",
    ]);
  });

  test("has nothing to do while both are as they should be", () => {
    expect(steps(source([a, b]), both)).toEqual([]);
  });

  test("repairs and replaces one of them without the other", () => {
    expect(steps(source([shard("a", 5), b]), both)).toEqual(["update database-web-a"]);
    expect(steps(source([a, b]), [present(a), present(b, { deletionTimestamp: DELETED })])).toEqual([
      "replace database-web-b",
    ]);
    expect(steps(source([a, b]), [present(a)])).toEqual([`create database-web-b, ${PERHAPS_RESTORED}`]);
    expect(steps(source([a, b]), [present(a)], [], [present(b)])).toEqual(["restore database-web-b"]);
    expect(steps(source([a]), [])).toEqual([`create database-web-a, ${RESTORED}`]);
  });

  test("releases the one that it requires no more, and stays held by the other", () => {
    expect(steps(source([b]), both)).toEqual(["release database-web-a"]);
  });

  test("is let go when both are released", () => {
    const gone = source([], { deleting: true, decision: "Deleting" });
    expect(steps(gone, both)).toEqual(["release database-web-a", "release database-web-b", "removeSourceFinalizer"]);
  });

  test("keeps both when it vanishes", () => {
    expect(steps(undefined, both).filter((step) => !step.includes("ource"))).toEqual([]);
    expect(steps(undefined, [present(a)], [], [present(b)])).toContain("restore database-web-b");
    expect(steps(undefined, both, [], [present(b)])).not.toContain("restore database-web-b");
    const identity = { plugin: plugin.name, namespace: "shop", name: "web" };
    const facts = { kind, plugins: [plugin], identity, source: undefined, protectors: both, lost: [] };
    expect(plan({ ...facts, named: () => undefined, waits: isRepair })).toEqual([]);
  });

  test("of which one is lost gets it back with the labels that an operator has set", () => {
    const lost = present(b, { labels: { team: "data", ...present(b).metadata.labels } });
    const identity = { plugin: plugin.name, namespace: "shop", name: "web" };
    const facts = { kind, plugins: [plugin], identity, source: source([a, b]), protectors: [present(a)], lost: [lost] };
    const object = { ...newProtector(kind, source([b]), b, b.name), metadata: { labels: lost.metadata.labels } };
    expect(plan({ ...facts, named: () => undefined })).toMatchObject([{ kind: "restore", object }]);
  });

  test("keeps them apart where both names are taken, however long they are", () => {
    const long = "x".repeat(200);
    const [one, two] = ["a", "b"].map((end) => ({ ...a, name: `database-${long}-${"y".repeat(40)}-${end}` }));
    if (one === undefined || two === undefined) throw new Error("two are needed");
    const others = [one, two].map((of) => present(of, { ownerReferences: [{ ...owner("other"), uid: "u2" }] }));
    const created = steps(source([one, two], { finalizers: [] }), [], others).slice(1);
    expect(created).toHaveLength(2);
    expect(new Set(created).size).toBe(2);
  });

  test("of which one is lost gets it back as it is required now, with what an operator has set", () => {
    const { metadata, spec } = present(b);
    const before = { enforcement: "Warn", ignoredPodSelector: {}, suspend: { enabled: true } } as const;
    const lost: PodProtector = { metadata, spec: { ...spec, ...before } };
    const identity = { plugin: plugin.name, namespace: "shop", name: "web" };
    const facts = { kind, plugins: [plugin], identity, source: source([a, b]), protectors: [present(a)], lost: [lost] };
    const [step] = plan({ ...facts, named: () => undefined });
    expect(step).toHaveProperty(["object", "spec"], { ...spec, suspend: { enabled: true } });
  });

  test("leaves a name to the source that has it", () => {
    const others = present(b, { ownerReferences: [{ ...owner("web-b"), uid: "u2" }] });
    const second = alternativeName("database-web-b", KEY);
    expect(steps(source([a, b]), [present(a)], [others])).toEqual([`create ${second}, ${PERHAPS_RESTORED}`]);
    const own = [present(a), present({ ...b, name: second })];
    expect(steps(source([a, b]), own, [others])).toEqual([]);
    expect(steps(source([a, b]), [...own, present(b)])).toEqual([`release ${second}`]);
  });
});

function owner(name: string) {
  return { apiVersion: "fleet.example.com/v1", kind: "Database", name, uid: "u1", controller: true };
}
