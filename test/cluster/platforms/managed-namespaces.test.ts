/**
 * A platform that leaves its own namespaces out of mutating webhooks, as GKE Autopilot does: evictions there are not
 * bound to the UIDs of their pods.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE, type Cluster } from "../../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { ask, messageOf, verdictOf } from "../../support/cluster/ask.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector } from "../../support/cluster/protectors.ts";

const namespace = "kube-system";
const BINDING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/podseidon";

let environment: TestEnvironment;
let cluster: Cluster;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1, aggregators: false, cell: BARE },
    webhookArgs: ["--require-bound-evictions"],
  });
  cluster = environment.core;
  const matchExpressions = [{ key: "kubernetes.io/metadata.name", operator: "NotIn", values: [namespace] }];
  const webhooks = items(await cluster.admin.get(BINDING), "webhooks").map((one) => ({
    ...Object(one),
    namespaceSelector: { matchExpressions },
  }));
  await cluster.admin.call("PATCH", BINDING, { webhooks });
  for (const app of ["free", "needed"])
    await createReadyPods(cluster, { namespace, prefix: app, count: 1, labels: { app } });
  const selector = { matchLabels: { app: "needed" } };
  await createProtector(cluster, namespace, "needed", { minAvailable: 0, selector });
});

afterAll(() => environment?.stop());

test("there a pod that no protector covers can be evicted, and another one only by its UID", async () => {
  const evict = (name: string, uid?: string) =>
    ask(cluster, "POST", `/api/v1/namespaces/${namespace}/pods/${name}/eviction`, {
      ...{ apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace } },
      ...(uid === undefined ? {} : { deleteOptions: { preconditions: { uid } } }),
    });
  // The apiserver may bind evictions until it knows of the change.
  await cluster.waitFor("evictions that are not bound", async () => {
    const answer = await cluster.admin.request(
      "POST",
      `/api/v1/namespaces/${namespace}/pods/needed-0/eviction?dryRun=All`,
      { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: "needed-0", namespace } },
    );
    return messageOf(answer).includes("is not bound to the pod's UID");
  });
  expect(verdictOf(await evict("free-0"))).toBe("allow");
  expect(verdictOf(await evict("needed-0"))).toBe("denial");
  const path = `/api/v1/namespaces/${namespace}/pods/needed-0`;
  const uid = String(field(await cluster.admin.get(path), "metadata", "uid"));
  expect(verdictOf(await evict("needed-0", uid))).toBe("allow");
});
