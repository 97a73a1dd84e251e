/**
 * A cluster whose own admission refuses, changes or fails what podseidon writes: the plugins that OpenShift and others
 * enable, quotas, policies, and a webhook that is down.
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { loadAll } from "js-yaml";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { newTriggerPod } from "../../../controllers/update-trigger/trigger-pod.ts";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { root } from "../../../scripts/root.ts";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { createHttpsTransport } from "../../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { loadClusterAccess } from "../../../shared/kube/credentials/kubeconfig.ts";
import type { EventOutcome } from "../../../shared/observe/event-outcome.ts";
import { EventRecorder } from "../../../shared/observe/event-recorder.ts";
import { restore, restoredObject } from "../../../shared/recovery/restore-protector.ts";
import { systemPorts as ports } from "../../../shared/runtime/system-ports.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { createProtectorClient } from "../../../webhook/reserve/protector-client.ts";
import type { ProtectorEvent } from "../../../webhook/reserve/protector-event.ts";
import { ProtectorWriter } from "../../../webhook/reserve/protector-writer.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { createUnderQuota } from "../../support/cluster/quotas.ts";
import {
  eventually,
  GROUP,
  protectorPath,
  type RunningGenerator,
  startGenerator,
} from "../../support/generator/generator-harness.ts";
import { pod } from "../../support/webhook/fixtures.ts";
import { ask } from "../../support/webhook/writer-harness.ts";

const manifests = join(root, "manifests");
const SYSTEM = "podseidon-system";
const TRIGGER = "podseidon-update-trigger";
const PLUGINS = [
  ...["AlwaysPullImages", "DefaultTolerationSeconds", "EventRateLimit", "ExtendedResourceToleration"],
  ...["NodeRestriction", "OwnerReferencesPermissionEnforcement", "PodTolerationRestriction"],
];
/** One Event a second, from all clients together. */
const CONFIGURATION = {
  apiVersion: "apiserver.config.k8s.io/v1",
  kind: "AdmissionConfiguration",
  plugins: [
    {
      name: "EventRateLimit",
      configuration: {
        apiVersion: "eventratelimit.admission.k8s.io/v1alpha1",
        kind: "Configuration",
        limits: [{ type: "Server", qps: 1, burst: 1 }],
      },
    },
  ],
};
const HARD = { "requests.cpu": "50", "limits.cpu": "50", "requests.memory": "50Gi", "limits.memory": "50Gi" };

let cluster: Cluster;
let objects: unknown[];
const transports = new Map<string, Transport>();
const running: RunningGenerator[] = [];

beforeAll(async () => {
  const flags = {
    "enable-admission-plugins": PLUGINS.join(","),
    "admission-control-config-file": "$FILES/admission.json",
  };
  const files = { "admission.json": JSON.stringify(CONFIGURATION) };
  cluster = await Cluster.start({ ...BARE, flags: { "kube-apiserver": flags }, files });
  objects = loadAll(await rendered());
  const isKind =
    (...kinds: string[]) =>
    (object: unknown) =>
      kinds.includes(String(field(object, "kind")));
  // Namespaces and the CRD first, as `kubectl apply --kustomize` sorts them; the webhook itself does not run here.
  const isLeftOut = isKind("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration");
  await cluster.apply(objects.filter((object) => !isLeftOut(object)));
  for (const account of ["generator", "aggregator", "webhook"]) {
    const access = await loadClusterAccess(
      await cluster.kubeconfigFor({ serviceAccount: { namespace: SYSTEM, name: `podseidon-${account}` } }),
    );
    transports.set(account, createHttpsTransport(access, { ports, userAgent: account }));
  }
});

afterAll(async () => {
  await Promise.all(running.map((one) => one.stop()));
  for (const transport of transports.values()) transport.close();
  await cluster?.stop();
});

/** The overlay of one cluster, with the component that has a Deployment more. */
async function rendered(): Promise<string> {
  const directory = join(cluster.directory, "around");
  mkdirSync(directory);
  const path = (...parts: string[]): string => relative(directory, join(manifests, ...parts));
  const kustomization = {
    apiVersion: "kustomize.config.k8s.io/v1beta1",
    kind: "Kustomization",
    resources: [path("overlays/single-cluster")],
    components: [path("components/eviction-retry")],
  };
  writeFileSync(join(directory, "kustomization.yaml"), JSON.stringify(kustomization));
  const { code, stdout, stderr } = await cluster.kubectl(["kustomize", directory]);
  if (code !== 0) throw new Error(stderr);
  return stdout;
}

function transportOf(account: string): Transport {
  const found = transports.get(account);
  if (found === undefined) throw new Error(`no transport of ${account}`);
  return found;
}

function generate(): RunningGenerator {
  const one = startGenerator(transportOf("generator"));
  running.push(one);
  return one;
}

async function createNamespace(name: string): Promise<void> {
  await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name } }]);
}

async function createDeployment(namespace: string): Promise<void> {
  await cluster.apply([deployment("web", 4, { namespace })]);
}

async function told(one: RunningGenerator, kind: string, namespace: string): Promise<unknown> {
  const find = () =>
    one.events.find(
      (event) => event.kind === kind && "source" in event && event.source === `deployment/${namespace}/web`,
    );
  await cluster.waitFor(`the event ${kind}`, async () => find() !== undefined);
  return find();
}

const protectorOf = (namespace: string): string => protectorPath(namespace, "deployment-web");

describe("pods of podseidon", () => {
  beforeAll(async () => {
    await cluster.apply([
      ...[SYSTEM, TRIGGER].map((namespace) => ({
        ...{
          apiVersion: "v1",
          kind: "ResourceQuota",
          metadata: { name: "everything", namespace },
          spec: { hard: HARD },
        },
      })),
      {
        apiVersion: "v1",
        kind: "LimitRange",
        metadata: { name: "defaults", namespace: SYSTEM },
        spec: { limits: [{ type: "Container", default: { cpu: "1" } }] },
      },
    ]);
    // What the quota controller of a whole cluster writes.
    const quotas = await cluster.admin.get("/api/v1/resourcequotas");
    for (const quota of field(quotas, "items") as unknown[]) {
      const hard = field(quota, "spec", "hard") as Record<string, string>;
      const path = `/api/v1/namespaces/${field(quota, "metadata", "namespace")}/resourcequotas`;
      const used = Object.fromEntries(Object.keys(hard).map((resource) => [resource, "0"]));
      await cluster.admin.call("PATCH", `${path}/${field(quota, "metadata", "name")}/status`, {
        status: { hard, used },
      });
    }
  });

  test("are admitted where pod security, quotas and limits are strict, and leave the user to the cluster", async () => {
    const deployments = objects.filter((object) => field(object, "kind") === "Deployment");
    expect(deployments).toHaveLength(6);
    for (const deployment of deployments) {
      const name = String(field(deployment, "metadata", "name"));
      const template = field(deployment, "spec", "template") as { metadata: object; spec: object };
      const created = { apiVersion: "v1", kind: "Pod", ...template, metadata: { ...template.metadata, name } };
      const { status, text } = await createUnderQuota(cluster, `/api/v1/namespaces/${SYSTEM}/pods`, created);
      expect([name, status, status === 201 ? "" : text]).toEqual([name, 201, ""]);
      // A fixed user is outside of the range that OpenShift gives a namespace.
      const security = { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } };
      expect([name, field(template.spec, "securityContext")]).toEqual([name, security]);
    }
  });

  test("so is the dummy pod of the update trigger, where a quota asks for its resources", async () => {
    const touch = { mark: { counter: 0, lineage: [] }, atMs: 0, labels: {} };
    const dummy = newTriggerPod(TRIGGER, TRIGGER, touch);
    const { status, text } = await createUnderQuota(cluster, `/api/v1/namespaces/${TRIGGER}/pods`, dummy);
    expect([status, status === 201 ? "" : text]).toEqual([201, ""]);
    expect(field(dummy, "spec", "securityContext", "runAsUser")).toBeUndefined();
  });
});

describe("where owner references need permissions", () => {
  const namespace = "owners";

  test("an aggregator restores a protector whose backup blocks its owner", async () => {
    await createNamespace(namespace);
    const owner = { apiVersion: "apps/v1", kind: "Deployment", name: "web", uid: "gone", controller: true };
    const lost: PodProtector = parsePodProtector({
      metadata: {
        ...{ name: "lost", namespace, uid: "u", resourceVersion: "1" },
        ownerReferences: [{ ...owner, blockOwnerDeletion: true }],
      },
      spec: { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: "lost" } } },
    });
    const object = restoredObject(lost, true, "cell default: the protector before this one vanished without a release");
    const restored = await restore(new ApiClient(transportOf("aggregator")), object, lost, { timeoutMs: 10_000 });
    expect(restored).toMatchObject({ kind: "ok", object: { metadata: { ownerReferences: [owner] } } });
  });

  test("the generator makes, repairs and replaces protectors, and gives them another owner", async () => {
    const one = generate();
    await createDeployment(namespace);
    const found = await eventually(cluster, protectorOf(namespace), (object) => object !== undefined);
    await cluster.admin.call("PATCH", protectorOf(namespace), { metadata: { ownerReferences: null } });
    await eventually(
      cluster,
      protectorOf(namespace),
      (object) => field(object, "metadata", "ownerReferences") !== undefined,
    );
    await cluster.admin.call("DELETE", protectorOf(namespace));
    const uid = field(found, "metadata", "uid");
    await eventually(
      cluster,
      protectorOf(namespace),
      (object) => field(object, "metadata", "uid") !== uid && object !== undefined,
    );
    expect(one.events.filter(({ kind }) => kind === "refused")).toEqual([]);
    await one.stop();
  });
});

describe("where somebody else's policy changes protectors", () => {
  const namespace = "changed";
  const NAME = "protectors-of-the-house";

  test("the generator tells the workload that a repair has no effect, and repeats it less often", async () => {
    await createNamespace(namespace);
    const kind = { apiGroups: [GROUP], apiVersions: ["*"], resources: ["podprotectors"] };
    // Each write changes something, so each is followed by a watch event.
    const times = `has(object.metadata.annotations) && "times" in object.metadata.annotations ?
      string(int(object.metadata.annotations["times"]) + 1) : "1"`;
    const label = `"${GROUP}/source-name": "of-the-house"`;
    await cluster.apply([
      {
        apiVersion: "admissionregistration.k8s.io/v1",
        kind: "MutatingAdmissionPolicy",
        metadata: { name: NAME },
        spec: {
          failurePolicy: "Fail",
          reinvocationPolicy: "Never",
          matchConstraints: {
            namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": namespace } },
            resourceRules: [{ ...kind, operations: ["CREATE", "UPDATE"] }],
          },
          mutations: [
            {
              patchType: "ApplyConfiguration",
              applyConfiguration: {
                expression: `Object{metadata: Object.metadata{labels: {${label}}, annotations: {"times": ${times}}}}`,
              },
            },
          ],
        },
      },
      {
        apiVersion: "admissionregistration.k8s.io/v1",
        kind: "MutatingAdmissionPolicyBinding",
        metadata: { name: NAME },
        spec: { policyName: NAME },
      },
    ]);
    const probe = {
      ...{ apiVersion: `${GROUP}/v1alpha1`, kind: "PodProtector", metadata: { name: "probe", namespace } },
      spec: { minAvailable: 1, selector: { matchLabels: { app: "probe" } } },
    };
    await cluster.waitFor("the policy to be in force", async () => {
      const { body } = await cluster.admin.request("POST", `${protectorPath(namespace)}?dryRun=All`, probe);
      return field(body, "metadata", "annotations", "times") === "1";
    });
    const one = generate();
    await createDeployment(namespace);
    expect(await told(one, "undone", namespace)).toMatchObject({
      about: { kind: "Deployment", name: "web", namespace },
      why: expect.stringMatching(/source-name\] of protector deployment-web has no effect: an admission policy/),
    });
    const found = await cluster.admin.get(protectorOf(namespace));
    expect(Number(field(found, "metadata", "annotations", "times"))).toBeLessThan(8);
    await cluster.admin.call("DELETE", `/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/${NAME}`);
    await eventually(
      cluster,
      protectorOf(namespace),
      (object) => field(object, "metadata", "labels", `${GROUP}/source-name`) === "web",
    );
    await one.stop();
  });
});

describe("where somebody else's webhook is down", () => {
  const namespace = "blocked";
  const NAME = "policy.example.com";

  beforeAll(async () => {
    await createNamespace(namespace);
    await cluster.apply([
      {
        ...{ apiVersion: `${GROUP}/v1alpha1`, kind: "PodProtector", metadata: { name: "present", namespace } },
        spec: { minAvailable: 0, selector: { matchLabels: { app: "present" } } },
      },
      {
        apiVersion: "admissionregistration.k8s.io/v1",
        kind: "ValidatingWebhookConfiguration",
        metadata: { name: "policies" },
        webhooks: [
          {
            ...{ name: NAME, admissionReviewVersions: ["v1"], sideEffects: "None", failurePolicy: "Fail" },
            clientConfig: { url: "https://127.0.0.1:1/" },
            namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": namespace } },
            rules: [
              {
                ...{ apiGroups: [GROUP], apiVersions: ["*"], operations: ["*"] },
                resources: ["podprotectors", "podprotectors/status"],
              },
            ],
          },
        ],
      },
    ]);
    const path = protectorPath(namespace, "present");
    await cluster.waitFor("the webhook to be asked", async () => {
      const { status } = await cluster.admin.request("PATCH", `${path}?dryRun=All`, {
        metadata: { labels: { a: "b" } },
      });
      return status === 500;
    });
  });

  test("the generator tells the workload whose webhook keeps it from being protected", async () => {
    const one = generate();
    await createDeployment(namespace);
    expect(await told(one, "refused", namespace)).toMatchObject({
      why: expect.stringContaining(`the apiserver can't call the admission webhook ${NAME}, and makes no such write`),
    });
    await one.stop();
  });

  test("the webhook knows that nothing was written, names the cause, and asks the core less often", async () => {
    let events: ProtectorEvent[] = [];
    let decision: unknown;
    const isAnswered = async (): Promise<boolean> => {
      events = [];
      const writer = new ProtectorWriter({
        ...{ namespace, name: "present", ports, tag: "self" },
        client: createProtectorClient(new ApiClient(transportOf("webhook"))),
        watched: () => undefined,
        onEvent: (event) => events.push(event),
      });
      const deadlineMs = ports.clock.monotonicMs() + 1_500;
      const asked = ask({ clock: ports.clock, elapsedMs: 0 }, writer, pod("web-0"), { deadlineMs });
      await cluster.waitFor("a decision", async () => asked.decision !== undefined);
      decision = asked.decision;
      // On a busy machine a call is under way at the deadline, and nobody knows whether it writes.
      return field(decision, "tag") !== "deadline";
    };
    await cluster.waitFor("a decision by an answer", isAnswered);
    expect(decision).toMatchObject({
      kind: "failed",
      tag: "core-unavailable",
      message: expect.stringContaining(`failed calling webhook "${NAME}"`),
    });
    const writes = events.filter(({ kind }) => kind === "wrote");
    // Pauses of 15, 45, 135, 405 and 1,215 ms at least.
    expect(writes.length).toBeLessThanOrEqual(6);
    for (const write of writes) expect(write).toMatchObject({ result: "unavailable" });
  });
});

test("Events that the cluster limits come late, or not at all, and harm nothing", async () => {
  const outcomes: EventOutcome[] = [];
  const recorder = new EventRecorder({
    ...{ transport: transportOf("generator"), ports, component: "podseidon-generator" },
    onOutcome: (outcome) => outcomes.push(outcome),
  });
  let told = 0;
  await cluster.waitFor("Events faster than the limit, on a machine that may be slower", async () => {
    for (const name of ["a", "b", "c"].map((letter) => `${letter}-${++told}`)) {
      const regarding = { apiVersion: "apps/v1", kind: "Deployment", namespace: "default", name, uid: name };
      recorder.record({ regarding, type: "Warning", reason: "NotProtected", message: "denied" });
    }
    await cluster.waitFor("an outcome of each", async () => outcomes.length === told);
    const { text: metrics } = await cluster.admin.request("GET", "/metrics");
    return /apiserver_request_total\{code="429".*resource="events"/.test(metrics);
  });
  await recorder.stop(0);
});
