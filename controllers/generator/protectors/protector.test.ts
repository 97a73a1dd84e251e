import { expect, test } from "vitest";
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
