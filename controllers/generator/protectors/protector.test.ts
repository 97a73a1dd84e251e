import { describe, expect, test } from "vitest";
import { GENERATOR_FINALIZER } from "../../../shared/schema/annotations.ts";
import type { ObjectMeta, PodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { plugins } from "../sources/plugins.ts";
import type { ProtectionSource } from "../sources/protection-source.ts";
import { labelValue } from "./names.ts";
import { newProtector, repairedProtector, sourceOf } from "./protector.ts";

test("a kind whose group is longer than a label value is found by its label", () => {
  const group = `${"platform.".repeat(7)}example.com`;
  const plugin = pluginNamed(`rollouts.${group}`, { scalable: [`${group}/v1/rollouts`] });
  const served = { ...plugin.kind, kind: "Rollout" };
  const required = {
    name: "rollout-web",
    spec: { minAvailable: 8, minReadySeconds: 0, selector: { matchLabels: { app: "web" } } },
    derivation: "",
  };
  const source: ProtectionSource = {
    namespace: "shop",
    name: "web",
    uid: "u1",
    resourceVersion: "7",
    finalizers: [],
    deleting: false,
    decision: "Protected",
    protectors: [required],
  };
  const { metadata, spec } = newProtector(served, source, required, "rollout-web");
  for (const value of Object.values(metadata.labels)) expect(value).toBe(labelValue(value));
  const { labels, name, namespace } = metadata;
  const withoutOwner = { metadata: { labels, name, namespace, uid: "p1", resourceVersion: "9" }, spec };
  expect(sourceOf(withoutOwner, [plugin])).toEqual({ plugin: plugin.name, namespace: "shop", name: "web" });
  const owned = {
    ...withoutOwner,
    metadata: { ...withoutOwner.metadata, ownerReferences: [...metadata.ownerReferences] },
  };
  expect(sourceOf(owned, [plugin])).toEqual({ plugin: plugin.name, namespace: "shop", name: "web" });
});

test("the source of a protector is of the kind that its owner has, or its labels say", () => {
  const all = plugins({ protectSelector: "", protectNonZero: true, scalable: ["a.example/v1/deployments"] });
  const metadata = { namespace: "shop", name: "web", uid: "u1", resourceVersion: "7" };
  const required = { name: "p", spec: { minAvailable: 1, minReadySeconds: 0, selector: {} }, derivation: "" };
  const source: ProtectionSource = {
    ...{ ...metadata, finalizers: [], deleting: false, decision: "Protected", protectors: [required] },
  };
  for (const plugin of all) {
    const kind = { ...plugin.kind, kind: plugin.kind.kind || "Deployment" };
    const { metadata: made, spec } = newProtector(kind, source, required, "p");
    const whole = { ...made, ...{ uid: "p1", resourceVersion: "9", finalizers: [] } };
    const owned = [...made.ownerReferences];
    const forms = [
      { labels: made.labels, ownerReferences: owned },
      { labels: made.labels },
      { ownerReferences: owned },
    ];
    // A kind that only discovery knows is found by the labels alone.
    for (const form of plugin.kind.kind === "" ? forms.slice(0, 2) : forms)
      expect(sourceOf({ metadata: { ...whole, labels: {}, ownerReferences: [], ...form }, spec }, all)?.plugin).toBe(
        plugin.name,
      );
  }
});

test("an owner that does not control a protector, or that no object is, does not name its source", () => {
  const plugin = pluginNamed("deployment");
  const required = { name: "p", spec: { minAvailable: 1, minReadySeconds: 0, selector: {} }, derivation: "" };
  const identity = { name: "web", namespace: "shop", uid: "u1", resourceVersion: "7" };
  const source: ProtectionSource = {
    ...{ ...identity, finalizers: [], deleting: false, decision: "Protected", protectors: [required] },
  };
  const { metadata, spec } = newProtector(plugin.kind, source, required, "p");
  for (const changes of [{ name: "other", controller: false }, { name: "a/b" }]) {
    const ownerReferences = metadata.ownerReferences.map((owner) => ({ ...owner, ...changes }));
    const present = { ...metadata, uid: "p1", resourceVersion: "9", finalizers: [], ownerReferences };
    expect(sourceOf({ metadata: present, spec }, [plugin])).toMatchObject({ name: "web" });
  }
});

test("a budget says where to probe; how the owner's server is trusted, and how long it may take, stays", () => {
  const { kind } = pluginNamed("xpoddisruptionbudget");
  const metadata = { name: "web", namespace: "shop", uid: "u1", resourceVersion: "7" };
  const source = pluginNamed("xpoddisruptionbudget").interpret({ metadata, spec: {} });
  const spec = { minAvailable: 1, minReadySeconds: 0, selector: {}, probe: { endpoint: "a:1", protocol: "GRPC" } };
  const required = { name: "x-web", spec, derivation: "", owns: ["probe"] as const };
  const probe = { endpoint: "b:2", caBundle: "QQ==", timeoutMillis: 500, insecure: true };
  const repaired = repairedProtector({ metadata, spec: { ...spec, probe } }, kind, source, required);
  expect(repaired?.spec.probe).toEqual({ endpoint: "a:1", protocol: "GRPC", caBundle: "QQ==", timeoutMillis: 500 });
});

test("what a workload states is not repeated beyond what an annotation can hold", () => {
  const plugin = pluginNamed("deployment");
  const labels = { "podseidon.kubewharf.io/protect": "true" };
  // Where it is cut, a character is cut in half.
  const annotations = { "podseidon.kubewharf.io/min-available": `.${"\u{1F600}".repeat(65_000)}` };
  const metadata = { name: "web", namespace: "shop", uid: "u1", resourceVersion: "7", labels, annotations };
  const source = plugin.interpret({ metadata, spec: { replicas: 4, selector: { matchLabels: { app: "web" } } } });
  const [required] = source.protectors;
  if (required === undefined) throw new Error("it has no protector");
  const made = newProtector(plugin.kind, source, required, required.name);
  const [derivation = ""] = Object.values(made.metadata.annotations);
  expect([required.spec.minAvailable, derivation.length]).toEqual([4, 4096]);
  // As kube-apiserver stores it.
  expect(Buffer.from(derivation).toString()).toBe(derivation);
  const stored = { ...made, metadata: { ...made.metadata, uid: "p1", resourceVersion: "9", labels: {} } };
  expect(repairedProtector(stored, plugin.kind, source, required)?.metadata.annotations).toEqual(
    made.metadata.annotations,
  );
});

describe("the repair of a protector", () => {
  const { kind } = pluginNamed("deployment");
  const spec = { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: "web" } } };
  const required = { name: "deployment-web", spec, derivation: "" };
  const source: ProtectionSource = {
    ...{ namespace: "shop", name: "web", uid: "u1", resourceVersion: "7", finalizers: [GENERATOR_FINALIZER] },
    ...{ deleting: false, decision: "Protected", protectors: [required] },
  };
  const own = { apiVersion: "apps/v1", kind: "Deployment", name: "web", uid: "u1", controller: true };
  const other = { apiVersion: "example.com/v1", kind: "App", name: "shop", uid: "u2" };
  const status = {
    cells: [],
    summary: { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 },
  };
  const repaired = (changes: Partial<ObjectMeta>, of: Partial<ProtectionSource> = {}): PodProtector | undefined => {
    const { metadata, ...rest } = newProtector(kind, source, required, required.name);
    const stored = { ...metadata, uid: "p1", resourceVersion: "9", finalizers: [GENERATOR_FINALIZER] };
    const present = { ...rest, metadata: { ...stored, ownerReferences: [own], ...changes }, status };
    return repairedProtector(present, kind, { ...source, ...of }, required);
  };

  test.each<[string, ObjectMeta["ownerReferences"], Partial<ProtectionSource>, ObjectMeta["ownerReferences"]]>([
    ["gets its owner", [], {}, [own]],
    ["keeps others beside it", [other], {}, [other, own]],
    ["changes no order", [own, other], {}, undefined],
    ["takes it from another controller", [{ ...own, uid: "u3" }, other], {}, [other, own]],
    ["corrects its name", [{ ...own, name: "old" }], {}, [own]],
    ["gets none while its source is deleted", [other], { deleting: true }, undefined],
    ["loses it to a deletion that leaves the pods", [own, other], { deleting: true, leavesPods: true }, [other]],
    ["in any form", [{ ...own, controller: false }, other], { deleting: true, leavesPods: true }, [other]],
  ])("%s", (_, ownerReferences, of, expected) => {
    expect(repaired({ ownerReferences }, of)?.metadata.ownerReferences).toEqual(expected);
  });

  test("keeps the finalizers of others, and its status", () => {
    const finalizers = ["example.com/audit"];
    expect(repaired({ finalizers })).toMatchObject({
      ...{ metadata: { finalizers: [...finalizers, GENERATOR_FINALIZER] }, status },
    });
    const deletionTimestamp = "2026-01-01T00:00:00Z";
    expect(repaired({ finalizers, deletionTimestamp })).toBeUndefined();
  });

  test("follows the enforcement of its source", () => {
    expect(repaired({}, { enforcement: "Warn" })?.spec.enforcement).toBe("Warn");
    expect(repaired({})).toBeUndefined();
  });
});
