/**
 * Each permission in the manifests is one that its component uses: a token that is stolen has no other. The table names
 * the place in the code of each, which has to be part of the component's bundle.
 */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { loadAll } from "js-yaml";
import * as v from "valibot";
import { expect, test } from "vitest";
import { root } from "./root.ts";

const POLLED = "controllers/generator/budgets/polled-scales.ts: api.get(path, aboutIfNamed(namespace, name, ";
const Role = v.object({
  kind: v.picklist(["Role", "ClusterRole"]),
  metadata: v.object({ name: v.string() }),
  rules: v.array(
    v.object({ apiGroups: v.array(v.string()), resources: v.array(v.string()), verbs: v.array(v.string()) }),
  ),
});

/** Roles for people and for other programs. */
const NOT_OURS = ["podseidon-view", "podseidon-bypass", "podseidon-metrics-reader"];

type Uses = Readonly<Record<string, Readonly<Record<string, string>>>>;

const ELECTION: Uses = {
  "coordination.k8s.io/leases": {
    get: "shared/kube/election/lease.ts: api.get(this.#path",
    create: "shared/kube/election/lease.ts: api.create(this.#collection",
    update: "shared/kube/election/lease.ts: api.update(this.#path",
  },
};
const EVENTS: Uses = {
  "/events": {
    create: 'shared/observe/event-recorder.ts: api.create(corePath("events", namespace)',
    patch: "shared/observe/event-recorder.ts: api.patch(sent.path",
  },
};
const CORE_TOKEN: Uses = { "/secrets": { patch: "shared/kube/credentials/token-renewer.ts: cell.patch(secret" } };
const STATUS: Uses = {
  "podseidon.kubewharf.io/podprotectors/status": {
    update: 'shared/kube/client/api-client.ts: podProtectorPath(namespace, name, "status")',
  },
};

const informer = (place: string): Readonly<Record<string, string>> => ({ list: place, watch: place });
const kinds = (...resources: readonly string[]): Uses =>
  Object.fromEntries(
    resources.map((resource) => [
      resource,
      {
        ...informer("controllers/generator/sources/kind-watch.ts: path: collectionPath(kind)"),
        patch: "controllers/generator/protectors/steps.ts: calls.api.patch(path",
      },
    ]),
  );
const expectedPods = (...resources: readonly string[]): Uses =>
  Object.fromEntries(
    resources.map((resource) => [resource, informer("controllers/aggregator/counting/expected-pods.ts: plural}`")]),
  );

const REGISTER = "shared/recovery/register/release-register.ts: path: configMapPath(namespace)";
const CONFIGURATION = {
  ...informer("controllers/aggregator/webhook-configuration/configuration-watch.ts: path: configurationPath(resource)"),
  get: "controllers/aggregator/webhook-configuration/configuration-keeper.ts: api.get(configurationPath(",
  create: "controllers/aggregator/webhook-configuration/configuration-keeper.ts: api.create(path",
  update: "controllers/aggregator/webhook-configuration/configuration-keeper.ts: api.update(path",
  patch: "controllers/aggregator/webhook-configuration/ca-injector.ts: api.patch(path",
};
const BUDGETS = "controllers/generator/cluster-budgets/merger.ts";
const CERTIFICATES = {
  get: "controllers/certificates/keeper.ts: api.get(this.#path(resource, name)",
  update: "controllers/certificates/keeper.ts: api.update(this.#path(resource, name)",
};

/** By component: by group and resource: by verb. */
const USED: Readonly<Record<string, { readonly entry: string; readonly uses: Uses }>> = {
  webhook: {
    entry: "webhook/main.ts",
    uses: {
      ...{ ...EVENTS, ...CORE_TOKEN, ...STATUS },
      "/pods": {
        get: "webhook/request/cell-client.ts: api.getPod(",
        list: 'webhook/request/node-deletion.ts: api.get(withQuery("/api/v1/pods"',
        patch: "webhook/respond/pending-mark.ts: api.patch(path",
      },
      "/configmaps": informer(REGISTER),
      "podseidon.kubewharf.io/podprotectors": {
        ...informer("webhook/assemble.ts: path: PODPROTECTORS_PATH"),
        get: "webhook/reserve/protector-client.ts: api.getPodProtector(",
      },
      "authorization.k8s.io/subjectaccessreviews": { create: "webhook/request/bypass-permission.ts: api.create(PATH" },
    },
  },
  aggregator: {
    entry: "controllers/aggregator/main.ts",
    uses: {
      ...{ ...ELECTION, ...EVENTS, ...CORE_TOKEN, ...STATUS },
      ...expectedPods("/replicationcontrollers", "apps/deployments", "apps/statefulsets", "apps/replicasets"),
      ...expectedPods("apps/daemonsets"),
      "/pods": {
        ...informer("controllers/aggregator/informers.ts: path: podPath(namespace)"),
        get: "controllers/aggregator/settling/alive-evidence.ts: client.getPod(",
        patch: "controllers/aggregator/aggregator.ts: cellClient.patch(podPath(namespace, name, subresource)",
      },
      "/pods/status": {
        patch: "controllers/aggregator/aggregator.ts: cellClient.patch(podPath(namespace, name, subresource)",
      },
      "/namespaces": {
        ...informer('controllers/aggregator/counting/namespace-marker.ts: path: "/api/v1/namespaces"'),
        patch: "controllers/aggregator/counting/namespace-marker.ts: api.patch(path",
      },
      "/configmaps": {
        ...informer(REGISTER),
        get: "controllers/aggregator/webhook-configuration/ca-injector.ts: PUBLISHED_CONFIG_MAP)",
        create: "shared/kube/client/config-maps.ts: api.create(configMapPath(",
        patch: "shared/kube/client/config-maps.ts: api.patch(path",
      },
      "podseidon.kubewharf.io/podprotectors": {
        ...informer("controllers/aggregator/informers.ts: path: PODPROTECTORS_PATH"),
        get: "controllers/aggregator/settling/status-writer.ts: getPodProtector(",
        create: "shared/recovery/restore-protector.ts: api.create(podProtectorPath(",
      },
      "admissionregistration.k8s.io/validatingwebhookconfigurations": CONFIGURATION,
      "admissionregistration.k8s.io/mutatingwebhookconfigurations": CONFIGURATION,
    },
  },
  generator: {
    entry: "controllers/generator/main.ts",
    uses: {
      ...{ ...ELECTION, ...EVENTS, ...STATUS },
      ...kinds("apps/deployments", "apps/statefulsets", "apps/replicasets", "/replicationcontrollers"),
      ...kinds("policy/poddisruptionbudgets"),
      "apps/daemonsets": {
        ...kinds("apps/daemonsets")["apps/daemonsets"],
        get: `${POLLED}parseDaemonSet`,
      },
      "apps.kruise.io/daemonsets": {
        get: `${POLLED}parseDaemonSet`,
      },
      "batch/jobs": informer("controllers/generator/sources/kind-watch.ts: path: collectionPath(kind)"),
      "batch/cronjobs": informer("controllers/generator/sources/kind-watch.ts: path: collectionPath(kind)"),
      "policy.kruise.io/podunavailablebudgets": {
        ...kinds("budgets").budgets,
        get: "controllers/generator/protectors/budget-status-writer.ts: api.get(path",
      },
      "policy.kruise.io/podunavailablebudgets/status": {
        update: "controllers/generator/protectors/budget-status-writer.ts: /status`, body",
      },
      "x-pdb.form3.tech/xpoddisruptionbudgets": {
        ...kinds("budgets").budgets,
        create: `${BUDGETS}: api.create(budgetPath(namespace)`,
        delete: `${BUDGETS}: api.delete(budgetPath(namespace, name)`,
      },
      "/pods": informer('controllers/generator/budgets/budget-pods.ts: path: "/api/v1/pods"'),
      "*/*/scale": {
        get: `${POLLED}parseScale`,
      },
      "/namespaces": informer('controllers/generator/sources/namespace-enforcement.ts: path: "/api/v1/namespaces"'),
      "/configmaps": {
        ...informer(REGISTER),
        get: "shared/recovery/register/register-writer.ts: api.get(configMapPath(namespace, ACKNOWLEDGEMENTS)",
        create: "shared/kube/client/config-maps.ts: api.create(configMapPath(",
        patch: "shared/kube/client/config-maps.ts: api.patch(path",
        delete: "shared/recovery/register/register-writer.ts: api.delete(configMapPath(namespace, name)",
      },
      "podseidon.kubewharf.io/podprotectors": {
        ...informer("controllers/generator/generator.ts: path: PODPROTECTORS_PATH"),
        get: "controllers/generator/protectors/release.ts: api.getPodProtector(",
        create: "controllers/generator/protectors/steps.ts: api.create(podProtectorPath(namespace)",
        update: "controllers/generator/protectors/calls.ts: api.update(podProtectorPath(",
        patch: "controllers/generator/protectors/repair.ts: api.patch(path",
        delete: "controllers/generator/protectors/release.ts: api.delete(podProtectorPath(",
      },
    },
  },
  budgets: {
    entry: "controllers/generator/main.ts",
    uses: { "x-pdb.form3.tech/xpoddisruptionbudgets": informer(`${BUDGETS}: path: COLLECTION`) },
  },
  "update-trigger": {
    entry: "controllers/update-trigger/main.ts",
    uses: {
      ...ELECTION,
      "/pods": {
        ...informer("controllers/update-trigger/bookmarks.ts: path: podPath(namespace)"),
        get: "controllers/update-trigger/trigger.ts: client.getPod(",
        create: "controllers/update-trigger/trigger.ts: client.create(path, newTriggerPod(",
        patch: "controllers/update-trigger/trigger.ts: client.patch(path",
      },
      "/pods/status": { patch: "controllers/update-trigger/trigger.ts: podPath(namespace, name)}/status`" },
    },
  },
  certificates: {
    entry: "controllers/certificates/main.ts",
    uses: { "/secrets": CERTIFICATES, "/configmaps": CERTIFICATES },
  },
  "eviction-retry": {
    entry: "controllers/eviction-retry/main.ts",
    uses: {
      ...{ ...ELECTION, ...EVENTS },
      "/nodes": informer('controllers/eviction-retry/controller.ts: path: "/api/v1/nodes"'),
      "/pods": { list: 'controllers/eviction-retry/eviction-retrier.ts: api.get(withQuery(podPath("")' },
      "/pods/eviction": {
        create: 'controllers/eviction-retry/eviction-retrier.ts: podPath(namespace, name, "eviction")',
      },
    },
  },
};

/** What the roles of one component grant together, as `verb group/resource`. */
function granted(component: string): readonly string[] {
  const rights = new Set<string>();
  for (const path of globSync("manifests/{base,components}/**/*.yaml", { cwd: root }))
    for (const object of loadAll(readFileSync(join(root, path), "utf8"))) {
      const role = v.safeParse(Role, object);
      if (!role.success || NOT_OURS.includes(role.output.metadata.name)) continue;
      const name = role.output.metadata.name.replace(/^podseidon-/, "");
      const owner = Object.keys(USED).find((one) => name === one || name.startsWith(`${one}-`));
      if (owner === undefined) expect.fail(`${path}: whose role is ${name}?`);
      if (owner !== component) continue;
      for (const { apiGroups, resources, verbs } of role.output.rules)
        for (const group of apiGroups)
          for (const resource of resources) for (const verb of verbs) rights.add(`${verb} ${group}/${resource}`);
    }
  return [...rights].sort();
}

test.each(Object.entries(USED))(
  "the roles of the %s grant what its code does, and nothing else",
  async (name, part) => {
    const { entry, uses } = part;
    const { metafile } = await build({
      ...{ absWorkingDir: root, entryPoints: [entry], bundle: true, write: false, metafile: true },
      ...{ format: "esm", platform: "node", packages: "external", outdir: "unused", logLevel: "error" },
    });
    const used = Object.entries(uses).flatMap(([resource, verbs]) =>
      Object.keys(verbs).map((verb) => `${verb} ${resource}`),
    );
    expect(granted(name)).toEqual(used.sort());
    for (const place of Object.values(uses).flatMap((verbs) => Object.values(verbs))) {
      const [path = "", ...text] = place.split(": ");
      expect(Object.keys(metafile.inputs)).toContain(path);
      expect(readFileSync(join(root, path), "utf8"), place).toContain(text.join(": "));
    }
  },
);
