/** Components patch lists by position: each reaches what it is about in every place. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { load, loadAll } from "js-yaml";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { root } from "./root.ts";

const Registration = v.object({ kind: v.string(), webhooks: v.array(v.object({ name: v.string() })) });
const Component = v.object({
  patches: v.array(v.object({ target: v.object({ kind: v.string() }), patch: v.string() })),
});
const Operations = v.array(v.object({ op: v.string(), path: v.string() }));

const manifest = (path: string): string => readFileSync(join(root, "manifests", path), "utf8");
const registrations = loadAll(manifest("base/webhook-configuration/webhook-configuration.yaml")).map((one) =>
  v.parse(Registration, one),
);

/** The positions of a registration's webhooks whose `field` a component sets. */
function patched(component: string, kind: string, field: string): readonly number[] {
  const { patches } = v.parse(Component, load(manifest(`components/${component}/kustomization.yaml`)));
  return patches
    .filter(({ target }) => target.kind === kind)
    .flatMap(({ patch }) => v.parse(Operations, load(patch)))
    .filter(({ op, path }) => op !== "test" && path.endsWith(`/${field}`))
    .map(({ path }) => Number(path.split("/")[2]));
}

describe.each(registrations)("of the $kind every webhook", ({ kind, webhooks }) => {
  const all = webhooks.map((_, position) => position);

  test.each(["enforced-namespaces", "marked-namespaces", "selected-namespaces"])(
    "asks in %s only; nodes have none",
    (component) => {
      const selected = patched(component, kind, "matchLabels");
      const nodes = all.filter((position) => webhooks[position]?.name === "nodes.podseidon.kubewharf.io");
      expect([...selected, ...nodes].sort()).toEqual(all);
    },
  );

  test("lets pass what it can't be asked about, in the first", () => {
    expect(patched("ignore-failures", kind, "failurePolicy")).toEqual(all);
  });
});

/** What a step of the roll-out denies, the least first: by its components. */
const DENIES: readonly (readonly [component: string | undefined, denies: string])[] = [
  ["dry-run", "nothing"],
  ["enforced-namespaces", "in namespaces with a label"],
  [undefined, "everywhere"],
];
const Step = v.object({ components: v.optional(v.array(v.string()), []) });

describe.each(["single-cluster", "worker"])("the ladder of a roll-out (%s)", (overlay) => {
  const steps = globSync(`overlays/rollout/*/${overlay}/kustomization.yaml`, { cwd: join(root, "manifests") })
    .filter((path) => !path.includes("3-selected-namespaces"))
    .sort()
    .map((path) => v.parse(Step, load(manifest(path))).components.map((one) => one.replace(/.*\//, "")));

  test("narrows what may pass at each step, and widens it at none", () => {
    const ranks = steps.map((step) => DENIES.findIndex(([one]) => one === undefined || step.includes(one)));
    expect(ranks.map((rank) => DENIES[rank]?.[1])).toEqual([
      "nothing",
      "nothing",
      "in namespaces with a label",
      "everywhere",
    ]);
    expect([...ranks].sort()).toEqual(ranks);
    expect(steps.map((step) => step.includes("ignore-failures"))).toEqual([true, false, false, false]);
    expect(steps.flat().sort()).toEqual(["dry-run", "dry-run", "enforced-namespaces", "ignore-failures"]);
  });
});

test("a core, whose policy decides about workloads, denies in no step in which its workers deny nothing", () => {
  const steps = globSync("overlays/rollout/*/core/kustomization.yaml", { cwd: join(root, "manifests") }).sort();
  const components = steps.map((path) => v.parse(Step, load(manifest(path))).components);
  const warns = ["../../../../components/dry-run"];
  expect(components).toEqual([warns, warns, [], []]);
});

test("the component that asks about labels asks about all that the base asks about", () => {
  const base = /expression: >-\n\s+(oldObject\.spec\.containers[\s\S]*?)\n\s+rules:/.exec(
    manifest("base/webhook-configuration/webhook-configuration.yaml"),
  )?.[1];
  const oneLine = (text = ""): string => text.replaceAll(/\s+/g, " ");
  expect(oneLine(base)).toContain("activeDeadlineSeconds");
  expect(oneLine(manifest("components/relabelled-pods/kustomization.yaml"))).toContain(`${oneLine(base)} || (has(`);
});

test("what a status write changes of the metadata is asked about: finalizers of nodes, and labels of pods", () => {
  for (const path of ["base/webhook-configuration/webhook-configuration.yaml", "static-admission/validating.yaml"])
    expect(manifest(path)).toContain("resources: [nodes, nodes/status]");
  expect(manifest("components/relabelled-pods/kustomization.yaml")).toContain("resources/-, value: pods/status");
});

test("a webhook joins its Service when it knows the cores, and stays there when one of them is silent", () => {
  const deployment = manifest("base/webhook/deployment.yaml");
  const probed = (probe: string): string | undefined =>
    new RegExp(`${probe}:\\s+httpGet:\\s+path: (\\S+)`).exec(deployment)?.[1];
  expect([probed("startupProbe"), probed("readinessProbe")]).toEqual(["/readyz", "/readyz?exclude=cores"]);
  // The checks that readiness leaves out are those of this part.
  expect(readFileSync(join(root, "webhook/run.ts"), "utf8")).toMatch(/name: "cores",\s+start: [^\n]+\s+ready: /);
});

test("the mark of a namespace is kept in each write that can change the labels of a namespace", () => {
  expect(manifest("components/mark-namespaces/policy.yaml")).toContain(
    "resources: [namespaces, namespaces/status, namespaces/finalize]",
  );
});

test("no pod of the project waits for its image on a node that is not Linux", () => {
  const Deployment = v.object({
    spec: v.object({ template: v.object({ spec: v.object({ nodeSelector: v.unknown() }) }) }),
  });
  const files = globSync(["base/*/deployment.yaml", "components/*/deployment.yaml"], { cwd: join(root, "manifests") });
  expect(files).toHaveLength(DEPLOYMENTS.length);
  const selectors = files.map((path) => v.parse(Deployment, load(manifest(path))).spec.template.spec.nodeSelector);
  expect(selectors).toEqual(files.map(() => ({ "kubernetes.io/os": "linux" })));
});

/** The lists of a Deployment that components add to. */
const LIST = /^\/spec\/template\/spec\/(?:volumes|containers\/0\/(?:args|env|volumeMounts))$/;
const Patches = v.object({
  patches: v.optional(
    v.array(
      v.object({ target: v.optional(v.object({ kind: v.string(), name: v.optional(v.string()) })), patch: v.string() }),
    ),
    [],
  ),
});
const DEPLOYMENTS = ["webhook", "aggregator", "generator", "certificates", "update-trigger", "eviction-retry"];

interface WholeList {
  readonly component: string;
  readonly op: string;
  readonly list: string;
}

/** Where a component sets or removes such a list as a whole. */
function wholeLists(component: string): readonly WholeList[] {
  const { patches } = v.parse(Patches, load(manifest(`components/${component}/kustomization.yaml`)));
  return patches.flatMap(({ target, patch }) => {
    const operations = v.safeParse(Operations, load(patch));
    if (target === undefined || !new RegExp(`^${target.kind}$`).test("Deployment") || !operations.success) return [];
    const names = DEPLOYMENTS.filter((name) => new RegExp(`^${target.name ?? ".*"}$`).test(`podseidon-${name}`));
    return operations.output
      .filter(({ path }) => LIST.test(path))
      .flatMap(({ op, path }) => names.map((name) => ({ component, op, list: `${name}${path}` })));
  });
}

test("the webhook reaches the ports of kube-apiservers wherever they run, and of metadata services nowhere", () => {
  const Egress = v.object({
    to: v.optional(v.array(v.unknown())),
    ports: v.optional(v.array(v.object({ port: v.number(), protocol: v.string() }))),
  });
  const [, policy] = loadAll(manifest("base/namespace/network-policy.yaml"));
  const { egress } = v.parse(v.object({ egress: v.array(Egress) }), Reflect.get(Object(policy), "spec"));
  // An ipBlock selects no node under Cilium: https://github.com/cilium/cilium/issues/20550.
  const anywhere = egress.filter(({ to }) => to === undefined).flatMap(({ ports = [] }) => ports);
  expect(anywhere.filter(({ port }) => port !== 53).map(({ port }) => port)).toEqual([443, 6443, 8443]);
  expect(egress.filter(({ to }) => to !== undefined)).toEqual([{ to: [{ namespaceSelector: {} }] }]);
});

describe("components that are listed together", () => {
  const whole = globSync("components/*/kustomization.yaml", { cwd: join(root, "manifests") })
    .map((path) => path.split(/[\\/]/)[1] ?? "")
    .sort()
    .flatMap(wholeLists);

  test("take no list away that another one appends to", () => {
    expect(whole.filter(({ op }) => op === "remove")).toEqual([]);
  });

  test("do not replace what another one has put into a list", () => {
    const lists = [...new Set(whole.map(({ list }) => list))];
    const setBy = lists.map((list) => whole.filter((one) => one.list === list).map(({ component }) => component));
    expect(setBy.filter((components) => components.length > 1)).toEqual([]);
  });
});

const BUDGETS = globSync("base/*/disruption-budget.yaml", { cwd: join(root, "manifests") });

test.each(BUDGETS)("%s keeps no node from being drained for a pod that is not ready", (path) => {
  const Budget = v.object({ spec: v.object({ unhealthyPodEvictionPolicy: v.optional(v.string()) }) });
  expect(v.parse(Budget, load(manifest(path))).spec.unhealthyPodEvictionPolicy).toBe("AlwaysAllow");
});

test("who goes back to an earlier version leaves the CRD out, and nothing else", () => {
  const Labelled = v.object({
    kind: v.string(),
    metadata: v.object({ labels: v.optional(v.record(v.string(), v.string()), {}) }),
  });
  const [, label = "", value = ""] =
    /--selector '([^!]+)!=([^']+)'/.exec(readFileSync(join(root, "docs/operations.md"), "utf8")) ?? [];
  const files = globSync(["manifests/base/*/*.yaml", "crds/podseidon*.yaml"], { cwd: root });
  const objects = files
    .filter((path) => !path.endsWith("kustomization.yaml"))
    .flatMap((path) => loadAll(readFileSync(join(root, path), "utf8")))
    .map((object) => v.parse(Labelled, object));
  const left = objects.filter(({ metadata }) => metadata.labels[label] === value);
  expect(left.map(({ kind }) => kind)).toEqual(["CustomResourceDefinition"]);
});

test("Flux leaves in the register what people release by kubectl", () => {
  const annotations = v.object({ "kustomize.toolkit.fluxcd.io/ssa": v.literal("Merge") });
  const register = v.object({ metadata: v.object({ name: v.literal("podseidon-released-by-hand"), annotations }) });
  expect(v.is(register, load(manifest("base/generator/register.yaml")))).toBe(true);
});
