import { execFile } from "node:child_process";
import { appendFileSync, cpSync, globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import { loadAll } from "js-yaml";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { BUNDLES } from "../../../scripts/environment/component.ts";
import { root } from "../../../scripts/root.ts";
import { block } from "../../support/cluster/documented.ts";
import { FOREIGN_KINDS, foreignCrd } from "../../support/cluster/foreign-kinds.ts";
import { createUnderQuota } from "../../support/cluster/quotas.ts";

/** Every overlay is applied to a real kube-apiserver. */

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const manifests = join(root, "manifests");
let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
  // A namespace that exists only in a dry run is not there for what is created in it.
  for (const base of ["namespace", "crds", "update-trigger"])
    await kubectl("apply", "-k", join(manifests, "base", base));
  await cluster.apply(FOREIGN_KINDS.map(([group, version, kind]) => foreignCrd(group, version, kind)));
  for (const [group, version, kind] of FOREIGN_KINDS) {
    const path = `/apis/${group}/${version}/${kind.toLowerCase()}s`;
    await cluster.waitFor(
      `${kind} to be served`,
      async () => (await cluster.admin.request("GET", path)).status === 200,
    );
  }
});

const Pod = v.object({
  securityContext: v.object({ runAsNonRoot: v.literal(true) }),
  containers: v.tuple([v.object({ command: v.array(v.string()) })]),
});

/** A kustomization of one's own, as a user writes it around an overlay. */
function around(overlay: string, components: readonly string[]): string {
  const directory = join(cluster.directory, "around", overlay, components.join("-"));
  mkdirSync(directory, { recursive: true });
  const path = (...parts: string[]): string => relative(directory, join(manifests, ...parts));
  const kustomization = {
    apiVersion: "kustomize.config.k8s.io/v1beta1",
    kind: "Kustomization",
    resources: [path("overlays", overlay)],
    components: components.map((component) => path("components", component)),
  };
  writeFileSync(join(directory, "kustomization.yaml"), JSON.stringify(kustomization));
  return directory;
}

/** Objects that the server has accepted already, as text: overlays share most of theirs. */
const accepted = new Set<string>();

/** A server dry run that changes nothing and complains of nothing; of everything again in each overlay at full size. */
async function expectAccepted(directory: string): Promise<void> {
  const objects = loadAll(await kubectl("kustomize", directory)).map((object) => JSON.stringify(object));
  expect(objects.length).toBeGreaterThan(0);
  const fresh = objects.filter((object) => FULL || !accepted.has(object));
  if (fresh.length === 0) return;
  const args = ["apply", "--dry-run=server", "--validate=strict", "--filename", "-"];
  const { code, stdout, stderr } = await cluster.kubectl(args, { input: fresh.join("\n---\n") });
  expect(stderr).toBe("");
  expect(code).toBe(0);
  const lines = stdout.trim().split("\n");
  expect(lines).toHaveLength(fresh.length);
  for (const line of lines) expect(line).toMatch(/(created|unchanged|configured) \(server dry run\)$/);
  for (const object of fresh) accepted.add(object);
}

const OVERLAYS = globSync("**/kustomization.yaml", { cwd: join(manifests, "overlays") })
  .map((file) => dirname(file))
  .sort();

afterAll(() => cluster?.stop());

async function kubectl(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await cluster.kubectl(args);
  if (code !== 0) throw new Error(`kubectl ${args.join(" ")}: ${stderr}`);
  return stdout;
}

describe("kubectl apply -k accepts, in full and without a warning,", () => {
  test.each(OVERLAYS)("overlays/%s", async (overlay) => {
    await expectAccepted(join(manifests, "overlays", overlay));
  });

  test.each([
    ["single-cluster", "cert-manager"],
    ["worker", "cert-manager"],
    ["single-cluster", "provided-certificate"],
    ["worker", "client-certificates"],
    ["worker", "caller-tokens"],
    ["worker", "metrics-auth"],
    ["worker", "secret-path"],
    ["worker", "secret-path-required"],
    ["worker", "relabelled-pods"],
    ["worker", "scale-by-reviews"],
    ["single-cluster", "prometheus-operator"],
    ["single-cluster", "bypass-permission"],
    ["worker", "counted-gate"],
    ["single-cluster", "pre-activities"],
    ["single-cluster", "second-core"],
    ["core", "without-workload-deletions"],
    ["worker", "enforced-namespaces"],
    ["worker", "mark-namespaces"],
    ["single-cluster", "marked-namespaces"],
    ["core", "cluster-budgets"],
    ["worker", "void-reservations"],
    ["worker", "without-node-deletions"],
    ["worker", "without-system-namespaces"],
    ["worker", "without-status-writes"],
    ["single-cluster", "eviction-retry"],
    ["worker", "eviction-retry"],
  ])("overlays/%s with components/%s", async (overlay, component) => {
    await expectAccepted(around(overlay, [component]));
  });
});

describe("what a component is for", () => {
  const rendered = (overlay: string, component: string): Promise<string> =>
    kubectl("kustomize", around(overlay, [component]));

  test.each(["single-cluster", "worker"])(
    "cert-manager in %s: nothing of the project's own certificates is left",
    async (overlay) => {
      const text = await rendered(overlay, "cert-manager");
      expect(text).not.toContain("podseidon-certificates");
      expect(text).not.toContain("--ca-cluster");
      expect(text.match(/cert-manager.io\/inject-ca-from: podseidon-system\/podseidon-webhook/g)).toHaveLength(2);
    },
  );

  test("metrics-auth beside remote-core: the generator has the token by which it asks its own cluster", async () => {
    const text = await kubectl("kustomize", around("core", ["remote-core", "metrics-auth"]));
    const isGenerator = (one: unknown): boolean => field(one, "kind") === "Deployment";
    const pod = field(loadAll(text).find(isGenerator), "spec", "template", "spec");
    expect(JSON.stringify(pod)).toContain("PODSEIDON_METRICS_AUTH");
    expect(field(pod, "automountServiceAccountToken")).toBe(true);
  });

  test("a worker cluster's own folder, as docs/install.md has it: its cell everywhere, on each step", async () => {
    const page = readFileSync(new URL("../../../docs/install.md", import.meta.url), "utf8");
    const own = block(page, "a worker cluster of its own");
    const copy = join(cluster.directory, "manifests");
    cpSync(manifests, copy, { recursive: true });
    const directory = join(copy, "overlays", "own");
    mkdirSync(directory);
    for (const step of ["rollout/1-ignore/worker", "rollout/3-enforced-namespaces/worker", "worker"]) {
      writeFileSync(join(directory, "kustomization.yaml"), own.replace("rollout/1-ignore/worker", step));
      const text = await kubectl("kustomize", directory);
      // One id, and the paths of seven webhooks. Nobody is asked about nodes where namespaces are selected.
      const named = step === "rollout/3-enforced-namespaces/worker" ? 7 : 8;
      expect([text.match(/worker-2/g)?.length, text.match(/worker-1|CELL\b/g)]).toEqual([named, null]);
    }
  });

  test.each([
    ["the core of one webhook", ["--cell=worker-2=/etc/podseidon/cells/worker-2", "--dns-name=webhook.example.com"]],
    ["a cell of one webhook", ["url: https://webhook.example.com:443/webhook/worker-2/mutate", "--ca-cluster=core"]],
    ["a cell of two cores", ["--core=second=/etc/podseidon/second-core/kubeconfig", "id: worker-2"]],
    [
      "a cell by namespace",
      [
        "kubernetes.io/metadata.name: shop",
        "path: /webhook/worker-2-shop/mutate",
        "- podseidon-aggregator-worker-2-shop",
      ],
    ],
  ])("%s, as docs/topologies.md has it", async (name, expected) => {
    const page = readFileSync(new URL("../../../docs/topologies.md", import.meta.url), "utf8");
    const copy = join(cluster.directory, "topologies", "manifests");
    cpSync(manifests, copy, { recursive: true });
    cpSync(join(root, "crds"), join(cluster.directory, "topologies", "crds"), { recursive: true });
    const directory = join(copy, "overlays", "own");
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, "kustomization.yaml"), block(page, name));
    // Named first, where docs/install.md says.
    const image = block(readFileSync(new URL("../../../docs/install.md", import.meta.url), "utf8"), "the image");
    for (const one of ["core", "worker"]) appendFileSync(join(copy, "overlays", one, "kustomization.yaml"), image);
    const text = await kubectl("kustomize", directory);
    expect(text).not.toMatch(/image: podseidon$/m);
    for (const one of expected) expect(text).toContain(one);
    await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: "shop" } }]);
    expect(text).not.toMatch(/WEBHOOK|[/-]CELL\b|: NAMESPACE$/m);
    if (name === "a cell of one webhook") expect(text).not.toMatch(/podseidon-certificates|webhook\.mjs|service:/);
    await expectAccepted(directory);
  });

  test("topologies go together in the order of the page, in the first step of a roll-out", async () => {
    const page = readFileSync(new URL("../../../docs/topologies.md", import.meta.url), "utf8");
    const copy = join(cluster.directory, "together", "manifests");
    cpSync(manifests, copy, { recursive: true });
    const directory = join(copy, "overlays", "own");
    mkdirSync(directory, { recursive: true });
    const order = ["cell", "ignore-failures", "dry-run", "webhook-url", "shared-core-account", "second-core"];
    const permissions = ["pre-activities", "bypass-permission"];
    const components = [...order, ...permissions, "namespace-cell"].map((one) => `../../components/${one}`).join(", ");
    const own = block(page, "a cell by namespace")
      .replace(/^components: .*$/m, `components: [${components}]`)
      .replace("namespace=shop]", 'namespace=shop, "webhook=webhook.example.com"]');
    writeFileSync(join(directory, "kustomization.yaml"), own);
    const text = await kubectl("kustomize", directory);
    // Five webhooks that decide, and the one that binds evictions.
    const count = (found: RegExp): number => text.match(found)?.length ?? 0;
    expect(count(/url: https:\/\/webhook\.example\.com\/webhook\/worker-2-shop/g)).toBe(6);
    // The policies on what aggregator (two), update trigger and pre-activities write stay as they are.
    expect([count(/failurePolicy: Ignore/g), count(/failurePolicy: Fail/g)]).toEqual([6, 4]);
    expect(count(/kubernetes.io\/metadata.name: shop/g)).toBe(6);
    // What the webhook needs here, wherever it runs.
    for (const role of ["pre-activities", "permissions"]) expect(text).toContain(`name: podseidon-webhook-${role}\n`);
  });

  test.each([
    ["without-node-deletions", "nodes"],
    ["without-status-writes", "statuses"],
  ])("%s: nobody is asked about them", async (component, webhook) => {
    expect(await rendered("worker", component)).not.toContain(`name: ${webhook}.podseidon.kubewharf.io`);
  });

  test("the steps of a roll-out: what is refused, and where", async () => {
    const step = async (name: string): Promise<readonly [string[], boolean, number]> => {
      const text = await kubectl("kustomize", join(manifests, "overlays/rollout", name, "worker"));
      const called = loadAll(text).filter((object) => String(field(object, "kind")).endsWith("WebhookConfiguration"));
      const webhooks = called.flatMap((object) => Object(object).webhooks);
      const policies = [...new Set(webhooks.map((webhook) => String(field(webhook, "failurePolicy"))))];
      const selected = [...text.matchAll(/podseidon.kubewharf.io\/enforced-namespace: "true"/g)].length;
      return [policies, text.includes("--dry-run"), selected];
    };
    expect(await step("1-ignore")).toEqual([["Ignore"], true, 0]);
    expect(await step("2-dry-run")).toEqual([["Fail"], true, 0]);
    // Every webhook of both registrations, except the one for nodes.
    expect(await step("3-enforced-namespaces")).toEqual([["Fail"], false, 6]);
    expect(await step("4-fail")).toEqual([["Fail"], false, 0]);
  });
});

test("every pod of the project meets the restricted standard, and has a metrics port and a priority", async () => {
  const { stdout } = await cluster.kubectl(["kustomize", around("single-cluster", ["eviction-retry"])]);
  const deployments = loadAll(stdout).filter((object) => field(object, "kind") === "Deployment");
  expect(deployments).toHaveLength(6);
  // No controller manager counts here what the quota permits.
  const quota = "/api/v1/namespaces/podseidon-system/resourcequotas/podseidon-critical/status";
  await cluster.admin.call("PATCH", quota, { status: { hard: { pods: "1" }, used: { pods: "0" } } });
  for (const deployment of deployments) {
    const template = field(deployment, "spec", "template");
    const pod = { apiVersion: "v1", kind: "Pod", ...(template as object) };
    const name = String(field(deployment, "metadata", "name"));
    const metadata = { name, namespace: "podseidon-system", annotations: field(template, "metadata", "annotations") };
    // The namespace enforces the level `restricted`: a pod that is not would be refused here.
    const pods = "/api/v1/namespaces/podseidon-system/pods";
    const answer = await createUnderQuota(cluster, pods, { ...pod, metadata });
    expect([name, answer.status, answer.text]).toEqual([name, 201, answer.text]);
    expect(field(answer.body, "spec", "priority")).toBe(2_000_000_000);
    expect(field(answer.body, "metadata", "annotations", "prometheus.io/scrape")).toBe("true");
    expect(field(answer.body, "spec", "containers", 0, "securityContext", "readOnlyRootFilesystem")).toBe(true);
  }
});

describe("what names the project's pods by their labels and ports finds them:", () => {
  const Named = v.object({ name: v.string() });
  const Labels = v.record(v.string(), v.string());
  const Workload = v.object({
    metadata: Named,
    spec: v.object({
      replicas: v.optional(v.number()),
      template: v.object({
        metadata: v.object({ labels: Labels }),
        spec: v.object({ containers: v.tuple([v.object({ ports: v.array(Named), resources: v.unknown() })]) }),
      }),
    }),
  });
  let objects: readonly unknown[];
  let workloads: readonly v.InferOutput<typeof Workload>[];

  beforeAll(async () => {
    const directory = around("single-cluster", ["prometheus-operator", "scale-by-reviews", "eviction-retry"]);
    objects = loadAll(await kubectl("kustomize", directory));
    workloads = of("Deployment").map((object) => v.parse(Workload, object));
    expect(workloads).toHaveLength(6);
  });

  const of = (kind: string): readonly unknown[] => objects.filter((object) => field(object, "kind") === kind);
  const selects = (selector: unknown, labels: v.InferOutput<typeof Labels>): boolean =>
    Object.entries(v.parse(Labels, selector ?? {})).every(([key, value]) => labels[key] === value);
  /** Names of Deployments. */
  const selected = (selector: unknown): readonly string[] =>
    workloads
      .filter(({ spec }) => selects(selector, spec.template.metadata.labels))
      .map(({ metadata }) => metadata.name)
      .sort();
  const portsOf = (name: string): readonly string[] =>
    workloads
      .filter(({ metadata }) => metadata.name === name)
      .flatMap(({ spec }) => spec.template.spec.containers[0].ports.map((port) => port.name));
  const all = (): readonly string[] => selected({});

  test("NetworkPolicies", () => {
    const open = of("NetworkPolicy").flatMap((policy) =>
      selected(field(policy, "spec", "podSelector", "matchLabels")).flatMap((name) =>
        v
          .parse(
            v.array(v.object({ ports: v.array(v.object({ port: v.string() })) })),
            field(policy, "spec", "ingress"),
          )
          .flatMap(({ ports }) => ports.map(({ port }) => `${name} ${port}`)),
      ),
    );
    // Probes come from the node; nothing else of a pod is open.
    expect(open.sort()).toEqual([...all().map((name) => `${name} metrics`), "podseidon-webhook webhook"].sort());
    for (const name of all()) expect(portsOf(name)).toContain("metrics");
  });

  test("Services and the ServiceMonitor", () => {
    const service = (name: string): unknown => of("Service").find((one) => field(one, "metadata", "name") === name);
    for (const [name, names, port] of [
      ["podseidon-webhook", ["podseidon-webhook"], "webhook"],
      ["podseidon-metrics", all(), "metrics"],
    ] as const) {
      expect(selected(field(service(name), "spec", "selector"))).toEqual(names);
      expect(field(service(name), "spec", "ports", 0, "targetPort")).toBe(port);
      for (const one of names) expect(portsOf(one)).toContain(port);
    }
    const [monitor] = of("ServiceMonitor");
    const labels = v.parse(Labels, field(service("podseidon-metrics"), "metadata", "labels"));
    expect(selects(field(monitor, "spec", "selector", "matchLabels"), labels)).toBe(true);
    const port = field(service("podseidon-metrics"), "spec", "ports", 0, "name");
    expect(field(monitor, "spec", "endpoints", 0, "port")).toBe(port);
  });

  test("a PodDisruptionBudget of each part that has several replicas, and the autoscaler", () => {
    const [scaler] = of("HorizontalPodAutoscaler");
    const scaled = String(field(scaler, "spec", "scaleTargetRef", "name"));
    const several = workloads.filter(({ spec, metadata }) => (spec.replicas ?? 1) > 1 || metadata.name === scaled);
    const budgets = of("PodDisruptionBudget").flatMap((one) => selected(field(one, "spec", "selector", "matchLabels")));
    expect([...budgets].sort()).toEqual(several.map(({ metadata }) => metadata.name).sort());
    expect([scaled, field(scaler, "spec", "minReplicas")]).toEqual(["podseidon-webhook", 3]);
    const metrics = v.parse(v.array(v.object({ type: v.string() })), field(scaler, "spec", "metrics"));
    expect(metrics.map(({ type }) => type)).toEqual(["Resource", "Pods"]);
    // A share of what is requested: without a request there would be none.
    const [webhook] = workloads.filter(({ metadata }) => metadata.name === scaled);
    expect(field(webhook?.spec.template.spec.containers[0].resources, "requests", "cpu")).toBe("100m");
  });
});

test("the image has what every Deployment starts, and needs nothing else", async () => {
  const containerfile = readFileSync(join(root, "Containerfile"), "utf8");
  expect(containerfile).toMatch(/^COPY --from=build \/src\/dist \/podseidon$/m);
  const image = join(cluster.directory, "image");
  cpSync(BUNDLES, image, { recursive: true });
  const { stdout } = await cluster.kubectl(["kustomize", around("single-cluster", ["eviction-retry"])]);
  const deployments = loadAll(stdout).filter((object) => field(object, "kind") === "Deployment");
  for (const deployment of deployments) {
    const pod = v.parse(Pod, field(deployment, "spec", "template", "spec"));
    // A kubelet knows a user that is no root only by its number.
    expect([pod.securityContext.runAsNonRoot, containerfile]).toEqual([
      true,
      expect.stringMatching(/^USER [1-9]\d+:/m),
    ]);
    const [node, ...words] = pod.containers[0].command;
    const bundle = words.pop() ?? "";
    expect([node, dirname(bundle)]).toEqual(["node", "/podseidon"]);
    const help = [...words, join(image, basename(bundle)), "--help"];
    const { stdout: text } = await promisify(execFile)(process.execPath, help, { cwd: "/", env: {} });
    expect(text).toContain("--");
  }
});

test("each overlay registers its own cell in every path", async () => {
  for (const [overlay, cell, gates] of [
    ["worker", "worker-1", []],
    ["single-cluster", "default", []],
    ["demo/worker-2", "worker-2", ["/gate", "/gate/all"]],
  ] as const) {
    const rendered = await kubectl("kustomize", join(manifests, "overlays", overlay));
    const paths = [...rendered.matchAll(/(?:path: |url: https:\/\/localhost:8443)(\/webhook\/.*)/g)]
      .map(([, path]) => path)
      .sort();
    // Deletions, evictions, changes of a pod and its resizing; what binds an eviction to its pod is the mutating one.
    const own = `/webhook/${cell}`;
    const others = [...gates, "/mutate"].map((path) => `${own}${path}`);
    expect(paths).toEqual([own, own, own, own, own, own, ...others]);
  }
});
