/**
 * The deletion of a protected workload that asks for replicas (docs/operations.md#delete-a-workload): refused by the
 * policy of the core, held by the generator's finalizer where no policy is in force, and taken back.
 */

import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { loadAll } from "js-yaml";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { deployment, PROTECTED } from "../../support/cluster/deployments.ts";
import { shellCommand } from "../../support/cluster/documented.ts";
import { ensureHelm } from "../../support/cluster/test-tools.ts";
import { eventually, GROUP, protectorPath } from "../../support/generator/generator-harness.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const run = promisify(execFile);

let environment: TestEnvironment;
let generator: Component;

beforeAll(async () => {
  environment = await TestEnvironment.start({ cells: ["cell"], single: true, settle: "40s", cell: { nodes: 1 } });
  generator = await environment.startGenerator();
});

afterAll(async () => {
  await generator?.stop();
  await environment?.stop();
});

interface Rolled {
  readonly name: string;
  readonly replicas: number;
}

const rolled = ({ name, replicas }: Rolled) =>
  deployment(name, replicas, {
    spec: { strategy: { rollingUpdate: { maxUnavailable: 1, maxSurge: 1 } } },
    podSpec: { terminationGracePeriodSeconds: 2 },
  });

/** A StatefulSet of three, two of which are promised. */
function statefulSet(namespace: string): object {
  const labels = { app: "db" };
  const spec = { terminationGracePeriodSeconds: 2, containers: [{ name: "app", image: "app:1" }] };
  return {
    apiVersion: "apps/v1",
    kind: "StatefulSet",
    metadata: { name: "db", namespace, labels: PROTECTED },
    spec: {
      replicas: 3,
      serviceName: "db",
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec },
    },
  };
}

const Conditions = v.optional(
  v.array(v.looseObject({ type: v.string(), status: v.string(), message: v.string() })),
  [],
);

function conditions(object: unknown): v.InferOutput<typeof Conditions> {
  return v.parse(Conditions, field(object, "status", "conditions"));
}

describe("the deletion of a protected workload that asks for replicas", () => {
  /** A namespace for two tests: a protector that comes back under its name puts its cell on hold. */
  let shop = "market";
  const GUIDE = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
  const POLICY = "podseidon-workload-deletions";
  const web: Rolled = { name: "web", replicas: 3 };
  const inShop = (change: object = {}, of: Rolled = web): object => {
    const { metadata, ...rest } = rolled(of);
    return { ...rest, metadata: { ...metadata, namespace: shop, ...change } };
  };
  const path = (name = "web"): string => `/apis/apps/v1/namespaces/${shop}/deployments/${name}`;
  const protector = (): string => protectorPath(shop, "deployment-web");
  const kubectl = (...args: string[]): ReturnType<Cluster["kubectl"]> =>
    environment.core.kubectl([...args, "--namespace", shop]);
  const scale = (replicas: number): Promise<unknown> =>
    environment.core.admin.call("PATCH", path(), { spec: { replicas } });
  const gone = (where: string): Promise<unknown> => eventually(environment.core, where, (one) => one === undefined);
  const hasCondition = (object: unknown, wanted: string): boolean =>
    conditions(object).some(({ type, status }) => type === wanted && status === "True");

  async function podUids(): Promise<string[]> {
    const pods = items(await environment.core.admin.get(`/api/v1/namespaces/${shop}/pods`));
    return pods
      .filter((pod) => field(pod, "metadata", "deletionTimestamp") === undefined)
      .map((pod) => String(field(pod, "metadata", "uid")))
      .sort();
  }

  /** Applies the workload, and waits until its pods are counted. */
  async function protectedShop(): Promise<unknown> {
    await environment.core.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: shop } }, inShop()]);
    return await eventually(
      environment.core,
      protector(),
      (one) => field(one, "status", "summary", "estimatedAvailableReplicas") === web.replicas,
    );
  }

  async function refusal(name = "web"): Promise<string> {
    const { code, stderr } = await kubectl("delete", "deployment", name, "--dry-run=server");
    return code === 0 ? "" : stderr;
  }

  /** Applies the policy of the core's overlay; resolves once the apiserver enforces it. */
  async function installPolicy(): Promise<void> {
    const { stdout } = await environment.core.kubectl(["kustomize", join(root, "manifests/overlays/core")]);
    await environment.core.apply(loadAll(stdout).filter((one) => field(one, "metadata", "name") === POLICY));
    await environment.core.waitFor("the policy to be enforced", async () => (await refusal()).includes(POLICY));
  }

  test("is refused, says what to do, and leaves the workload whole", async () => {
    await protectedShop();
    await installPolicy();
    const { code, stderr } = await kubectl("delete", "deployment", "web", "--wait=false");
    process.stdout.write(`$ kubectl delete deployment web\n${stderr}`);
    expect(code).toBe(1);
    expect(stderr).toContain("it is protected and asks for 3 replicas");
    expect(stderr).toContain("kubectl scale deployments.apps web --namespace market --replicas=0");
    expect(field(await environment.core.admin.get(path()), "metadata", "deletionTimestamp")).toBeUndefined();
    const metrics = await environment.core.admin.request("GET", "/metrics");
    const counted = metrics.text.split("\n").filter((line) => line.includes(`policy="${POLICY}"`));
    expect(counted).toContainEqual(
      expect.stringMatching(/^apiserver_validating_admission_policy_check_total\{.*enforcement_action="deny"/),
    );
    const idle = { ...web, name: "idle", replicas: 0 };
    await environment.core.apply([inShop({}, idle)]);
    await eventually(environment.core, path("idle"), (one) => field(one, "metadata", "finalizers") !== undefined);
    expect(await refusal("idle")).toBe("");
  });

  test("leaves the pods to the next workload of that name, as operators recreate one: the promise stays", async () => {
    const recreated = statefulSet(shop);
    const [own, its] = [`/apis/apps/v1/namespaces/${shop}/statefulsets/db`, protectorPath(shop, "statefulset-db")];
    const isCounted = (one: unknown): boolean => field(one, "status", "summary", "estimatedAvailableReplicas") === 3;
    await environment.core.apply([recreated]);
    const before = await eventually(environment.core, its, isCounted);
    const pods = await podUids();
    const uid = field(await environment.core.admin.get(own), "metadata", "uid");
    await environment.core.admin.call("DELETE", own, { propagationPolicy: "Orphan", preconditions: { uid } });
    await gone(own);
    const left = await eventually(environment.core, its, (one) => hasCondition(one, "SourceVanished"));
    expect([field(left, "metadata", "uid"), field(left, "spec", "minAvailable")]).toEqual([
      field(before, "metadata", "uid"),
      2,
    ]);
    await environment.core.apply([recreated]);
    const next = field(await environment.core.admin.get(own), "metadata", "uid");
    const isAdopted = (one: unknown): boolean =>
      field(one, "metadata", "ownerReferences", 0, "uid") === next && !hasCondition(one, "SourceVanished");
    const after = await eventually(environment.core, its, (one) => isAdopted(one) && isCounted(one));
    expect(field(after, "metadata", "uid")).toBe(field(before, "metadata", "uid"));
    expect(await podUids()).toEqual(pods);
    await kubectl("scale", "statefulset", "db", "--replicas=0");
    await kubectl("delete", "statefulset", "db");
    await gone(its);
  });

  test.runIf(FULL)("by helm uninstall fails and can be rolled back; helm upgrade does not tell of it", async () => {
    const directory = join(environment.core.directory, "chart");
    mkdirSync(join(directory, "templates"), { recursive: true });
    const released: Rolled = { name: "released", replicas: 2 };
    writeFileSync(join(directory, "Chart.yaml"), "apiVersion: v2\nname: released\nversion: 0.1.0\n");
    writeFileSync(join(directory, "templates/deployment.yaml"), JSON.stringify(inShop({}, released)));
    const binary = await ensureHelm();
    const helm = (...args: readonly string[]): ReturnType<typeof run> =>
      run(binary, [...args, "--namespace", shop, "--kubeconfig", environment.core.kubeconfig]);
    await helm("install", "released", directory);
    const isHeld = (one: unknown): boolean => field(one, "metadata", "finalizers") !== undefined;
    await eventually(environment.core, path("released"), isHeld);
    const isKept = async (): Promise<void> => {
      const kept = await environment.core.admin.get(path("released"));
      expect(field(kept, "metadata", "deletionTimestamp")).toBeUndefined();
    };
    renameSync(join(directory, "templates"), join(directory, "left-out"));
    const upgrade = ["upgrade", "released", directory];
    expect((await helm(...upgrade)).stdout).toContain("has been upgraded");
    await isKept();
    await helm("rollback", "released", "1");
    renameSync(join(directory, "left-out"), join(directory, "templates"));
    const uninstall = ["uninstall", "released", "--wait", "--timeout=2m", "--debug"];
    await expect(helm(...uninstall)).rejects.toThrow("it is protected and asks for 2 replicas");
    await expect(helm("uninstall", "released")).rejects.toThrow("failed to delete release: released");
    await isKept();
    await expect(helm(...upgrade)).rejects.toThrow("has no deployed releases");
    // Without a revision, a rollback goes to the one before.
    await helm("rollback", "released", "3");
    await helm(...upgrade);
    await isKept();
    await kubectl("scale", "deployment", "released", "--replicas=0");
    await helm(...uninstall);
    await gone(path("released"));
    await gone(protectorPath(shop, "deployment-released"));
  });

  test("by the deletion of its owner or its namespace waits, and goes on once its protection is given up", async () => {
    await protectedShop();
    const config = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "owner", namespace: shop } };
    await environment.core.apply([config]);
    const uid = field(
      await environment.core.admin.get(`/api/v1/namespaces/${shop}/configmaps/owner`),
      "metadata",
      "uid",
    );
    const owned = { metadata: { ownerReferences: [{ apiVersion: "v1", kind: "ConfigMap", name: "owner", uid }] } };
    await environment.core.admin.call("PATCH", path(), owned);
    await environment.core.admin.call("DELETE", `/api/v1/namespaces/${shop}/configmaps/owner`);
    await kubectl("delete", "namespace", shop, "--wait=false");
    const isRefused = (one: unknown): boolean =>
      conditions(one).some(({ message, status }) => status === "True" && message.includes(POLICY));
    await eventually(environment.core, `/api/v1/namespaces/${shop}`, isRefused);
    expect(field(await environment.core.admin.get(path()), "metadata", "deletionTimestamp")).toBeUndefined();
    expect((await podUids()).length).toBeGreaterThanOrEqual(web.replicas - 1);
    await kubectl("annotate", "deployment", "web", `${GROUP}/protect=false`);
    await gone(`/api/v1/namespaces/${shop}`);
    shop = "shop";
  });

  test("without the policy is held, says so, and can be taken back: no pod is replaced", async () => {
    const before = await protectedShop();
    await environment.core.kubectl(["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", POLICY]);
    await environment.core.waitFor("the policy to be out of force", async () => (await refusal()) === "");
    const pods = await podUids();
    await kubectl("delete", "deployment", "web", "--wait=false");
    await eventually(environment.core, protector(), (one) => hasCondition(one, "SourceDeleting"));
    for (const kind of ["Deployment", "PodProtector"]) {
      const events = `/api/v1/namespaces/${shop}/events?fieldSelector=reason=DeletionHeld,involvedObject.kind=${kind}`;
      await eventually(environment.core, events, (list) => items(list).length > 0);
    }
    await shellCommand(environment.core, GUIDE, "take a deletion back");
    await eventually(environment.core, protector(), (one) => hasCondition(one, "SourceVanished"));
    await environment.core.apply([inShop()]);
    const uid = field(await environment.core.admin.get(path()), "metadata", "uid");
    const after = await eventually(
      environment.core,
      protector(),
      (one) => field(one, "metadata", "ownerReferences", 0, "uid") === uid && !hasCondition(one, "SourceVanished"),
    );
    expect(field(after, "metadata", "uid")).toBe(field(before, "metadata", "uid"));
    await eventually(
      environment.core,
      path(),
      (one) =>
        field(one, "status", "observedGeneration") === field(one, "metadata", "generation") &&
        field(one, "status", "availableReplicas") === web.replicas,
    );
    expect(await podUids()).toEqual(pods);
  });

  test("and a workload that is back without the label stays protected until somebody says otherwise", async () => {
    await protectedShop();
    await environment.core.etcd.deleteKey(`/registry/deployments/${shop}/web`);
    await eventually(environment.core, protector(), (one) => hasCondition(one, "SourceVanished"));
    await environment.core.apply([inShop({ labels: {} })]);
    const annotation = ["metadata", "annotations", `${GROUP}/protect`];
    const back = await eventually(environment.core, path(), (one) => field(one, ...annotation) === "adopted");
    const uid = field(back, "metadata", "uid");
    const isOwned = (one: unknown): boolean => field(one, "metadata", "ownerReferences", 0, "uid") === uid;
    await eventually(environment.core, protector(), isOwned);
    for (const kind of ["Deployment", "PodProtector"]) {
      const events = `/api/v1/namespaces/${shop}/events?fieldSelector=reason=Adopted,involvedObject.kind=${kind}`;
      await eventually(environment.core, events, (list) => items(list).length > 0);
    }
    await scale(5);
    await eventually(environment.core, protector(), (one) => field(one, "spec", "minAvailable") === 4);
    await kubectl("label", "deployment", "web", `${GROUP}/protect=false`);
    await gone(protector());
  });
});
