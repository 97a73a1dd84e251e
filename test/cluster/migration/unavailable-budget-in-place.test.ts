/**
 * What PodUnavailableBudget promises, on a real control plane with the manifests' webhook configuration and a budget
 * migrated by the steps of its page: the table of operations, and three scenarios of two teams with the same pods.
 */

import { readFileSync } from "node:fs";
import { loadAll } from "js-yaml";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type ApiAnswer, conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import { KWOK_ANNOTATIONS } from "../../../scripts/control-plane/kwok/annotations.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { ask } from "../../support/cluster/ask.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { shellCommand } from "../../support/cluster/documented.ts";
import { KRUISE_MANAGER, KRUISE_OBJECTS } from "../../support/cluster/foreign-kinds.ts";
import { OtherWebhook } from "../../support/cluster/other-webhook.ts";
import { readProtector, reservationCount, waitUntilSettled } from "../../support/cluster/protectors.ts";
import {
  generatorTransport,
  installCrd,
  installGenerator,
  type RunningGenerator,
  startGenerator,
} from "../../support/generator/generator-harness.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const REPLICAS = FULL ? 40 : 10;
const BUDGET = FULL ? 8 : 3;
const PODS = "/api/v1/namespaces/default/pods";
const PAGE = readFileSync(new URL("../../../docs/migration-from-podunavailablebudget.md", import.meta.url), "utf8");
const REGISTRATION = "../../../manifests/base/webhook-configuration/webhook-configuration.yaml";
const STRATEGIC = { contentType: "application/strategic-merge-patch+json" };

let environment: TestEnvironment;
let transport: Transport;
let running: RunningGenerator;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    cells: ["cell"],
    single: true,
    replicas: 0,
    settle: "8s",
    cell: { nodes: 3 },
  });
  await environment.addWebhook("webhook-dry", ["--dry-run"]);
  await registerByManifests();
  await installGenerator(environment.core);
  await installCrd(environment.core, "podunavailablebudgets.policy.kruise.io");
  transport = await generatorTransport(environment.core);
  running = startGenerator(transport);
  await deploy("web", REPLICAS, "500ms");
  await deploy("table", 4, "never");
});

afterAll(async () => {
  await running?.stop();
  transport?.close();
  await environment?.stop();
});

/** Applies the rules and matchConditions of the manifests. Only the address of the webhook differs. */
async function registerByManifests(): Promise<void> {
  const caBundle = Buffer.from(environment.core.identity.certificateAuthorityPem).toString("base64");
  const documents = loadAll(readFileSync(new URL(REGISTRATION, import.meta.url), "utf8")).map((document) => {
    const registration = Object(document);
    const webhooks = registration.webhooks.map((webhook: Readonly<Record<string, unknown>>) => {
      const path = String(field(webhook, "clientConfig", "service", "path")).replace("CELL", "cell");
      return { ...webhook, clientConfig: { url: `https://127.0.0.1:${environment.balancer.port}${path}`, caBundle } };
    });
    return { ...registration, webhooks };
  });
  await environment.core.apply(documents);
}

function budget(name: string, maxUnavailable: number): unknown {
  return {
    apiVersion: "policy.kruise.io/v1alpha1",
    kind: "PodUnavailableBudget",
    metadata: { name, namespace: "default" },
    spec: { maxUnavailable, selector: { matchLabels: { app: name } } },
  };
}

const protectorOf = (name: string): string => `podunavailablebudget-${name}`;

async function deploy(name: string, replicas: number, readyAfter: string): Promise<void> {
  const resizePolicy = [{ resourceName: "memory", restartPolicy: "RestartContainer" }];
  const resources = { requests: { cpu: "10m", memory: "16Mi" } };
  const podSpec = {
    terminationGracePeriodSeconds: 1,
    initContainers: [{ name: "migrate", image: "migrate:1" }],
    containers: [
      { name: "app", image: "app:1", resizePolicy, resources },
      { name: "envoy", image: "envoy:1" },
    ],
  };
  const podAnnotations = { [KWOK_ANNOTATIONS.readyAfter]: readyAfter };
  await environment.core.apply([deployment(name, replicas, { labels: {}, podAnnotations, podSpec })]);
}

async function settled(name: string, available: number): Promise<void> {
  await waitUntilSettled(environment.core, "default", protectorOf(name), available);
}

async function podNames(app: string): Promise<string[]> {
  const found = items(await environment.core.admin.get(`${PODS}?labelSelector=app%3D${app}`));
  return found
    .filter((pod) => field(pod, "metadata", "deletionTimestamp") === undefined)
    .map((pod) => String(field(pod, "metadata", "name")));
}

/**
 * Pods of the table become ready when a test wants it, so that a change stays in progress until then, however slow the
 * machine is.
 */
async function recovered(): Promise<void> {
  await environment.core.waitFor("every pod of the table to be ready", async () => {
    const all = items(await environment.core.admin.get(`${PODS}?labelSelector=app%3Dtable`));
    // A pod that ends may still be ready while its replacement does not exist.
    const found = all.filter((pod) => field(pod, "metadata", "deletionTimestamp") === undefined);
    for (const pod of found) {
      if (field(pod, "metadata", "annotations", KWOK_ANNOTATIONS.readyAfter) === undefined) continue;
      await annotate(String(field(pod, "metadata", "name")), { [KWOK_ANNOTATIONS.readyAfter]: null });
    }
    return found.length === 4 && found.every((pod) => conditionStatus(pod, "Ready") === "True");
  });
  await settled("table", 4);
}

async function setImage(pod: string, container: string, image: string): Promise<ApiAnswer> {
  const body = { spec: { containers: [{ name: container, image }] } };
  return ask(environment.core, "PATCH", `${PODS}/${pod}`, body, STRATEGIC);
}

async function resize(pod: string, resource: "cpu" | "memory", amount: string): Promise<ApiAnswer> {
  const body = { spec: { containers: [{ name: "app", resources: { requests: { [resource]: amount } } }] } };
  return ask(environment.core, "PATCH", `${PODS}/${pod}/resize`, body, STRATEGIC);
}

async function annotate(pod: string, annotations: Readonly<Record<string, string | null>>): Promise<ApiAnswer> {
  return ask(environment.core, "PATCH", `${PODS}/${pod}`, { metadata: { annotations } }, STRATEGIC);
}

async function evict(pod: string): Promise<ApiAnswer> {
  const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: pod, namespace: "default" } };
  return ask(environment.core, "POST", `${PODS}/${pod}/eviction`, body);
}

async function setBudget(name: string, maxUnavailable: number): Promise<void> {
  await environment.core.apply([budget(name, maxUnavailable)]);
  const owner = await environment.core.admin.get(`/apis/apps/v1/namespaces/default/deployments/${name}`);
  await environment.core.waitFor("the protector to follow", async () => {
    const { spec } = await readProtector(environment.core, "default", protectorOf(name));
    return spec.minAvailable === Number(field(owner, "spec", "replicas")) - maxUnavailable;
  });
}

describe("the migration", () => {
  it("follows the steps of its page, beside Kruise first, then alone", async () => {
    await environment.core.apply([budget("web", BUDGET), budget("table", 0)]);
    await shellCommand(environment.core, PAGE, "protect");
    await environment.core.waitFor("both protectors", async () => {
      const table = await shellCommand(environment.core, PAGE, "compare");
      return ["web", "table"].every((name) => table.includes(protectorOf(name)));
    });
    await settled("web", REPLICAS);
    await recovered();
    // As a dry run, with warnings about what would be denied.
    const [pod = ""] = await podNames("table");
    const changed = await setImage(pod, "app", "app:dry");
    expect(changed.status).toBe(200);
    expect(String(changed.headers.warning)).toMatch(/dry run: .*podunavailablebudget-table/);
    await recovered();
    // Enforced, and without Kruise.
    await environment.replaceWebhooks(["webhook-1", "webhook-2"]);
    await environment.core.apply(KRUISE_OBJECTS);
    await shellCommand(environment.core, PAGE, "retire");
    const manager = await environment.core.admin.get(
      `/apis/apps/v1/namespaces/kruise-system/deployments/${KRUISE_MANAGER}`,
    );
    expect(field(manager, "spec", "template", "spec", "containers", 0, "args")).toEqual([
      "--enable-leader-election",
      "--feature-gates=PodUnavailableBudgetDeleteGate=false,PodUnavailableBudgetUpdateGate=false",
    ]);
  });
});

describe("the table of operations", () => {
  const operations: Record<string, (pod: string) => Promise<ApiAnswer>> = {
    "a deletion": (pod) => ask(environment.core, "DELETE", `${PODS}/${pod}`),
    "an eviction": evict,
    "a new image": (pod) => setImage(pod, "app", "app:2"),
    "a new image of a sidecar": (pod) => setImage(pod, "envoy", "envoy:2"),
    "a resize that restarts": (pod) => resize(pod, "memory", "32Mi"),
  };
  const free: Record<string, (pod: string) => Promise<ApiAnswer>> = {
    "an annotation": (pod) => annotate(pod, { note: "x" }),
    "a new image of an init container that has run": (pod) => {
      const spec = { initContainers: [{ name: "migrate", image: "migrate:2" }] };
      return ask(environment.core, "PATCH", `${PODS}/${pod}`, { spec }, STRATEGIC);
    },
    "a resize without a restart": (pod) => resize(pod, "cpu", "20m"),
  };

  it("denies each that makes a pod unavailable at the minimum, and neither the others nor an exempt pod", async () => {
    const [pod = ""] = await podNames("table");
    for (const [what, operation] of Object.entries(operations)) {
      const answer = await operation(pod);
      expect(answer.status, what).toBe(429);
      expect(answer.text, what).toContain(`PodProtector default/${protectorOf("table")}`);
    }
    for (const [what, operation] of Object.entries(free)) expect((await operation(pod)).status, what).toBe(200);
    expect(reservationCount(await readProtector(environment.core, "default", protectorOf("table")))).toBe(0);
    await annotate(pod, { "pub.kruise.io/no-protect": "true" });
    const gone = await operations["a deletion"]?.(pod);
    expect([gone?.status, String(gone?.headers.warning)]).toEqual([200, expect.stringContaining("no-protect")]);
    await recovered();
  });

  it("allows each once where one pod can be spared, and no second one beside it", async () => {
    await setBudget("table", 1);
    for (const [what, operation] of Object.entries(operations)) {
      const [pod = "", other = ""] = await podNames("table");
      await annotate(pod, { [KWOK_ANNOTATIONS.readyAfter]: "never" });
      expect((await operation(pod)).status, what).toBeLessThan(300);
      expect((await setImage(other, "app", "app:3")).status, `another pod beside ${what}`).toBe(429);
      await recovered();
    }
  });

  it("counts a pod once that is changed twice, and deleted", async () => {
    const [pod = "", other = ""] = await podNames("table");
    // Its new containers do not become ready, so the change stays unfinished and keeps its quota.
    await annotate(pod, { [KWOK_ANNOTATIONS.readyAfter]: "never" });
    expect((await setImage(pod, "app", "app:4")).status).toBe(200);
    expect((await setImage(other, "app", "app:4")).status).toBe(429);
    expect((await setImage(pod, "envoy", "envoy:4")).status).toBe(200);
    expect((await setImage(other, "app", "app:4")).status).toBe(429);
    await recovered();
    await annotate(pod, { [KWOK_ANNOTATIONS.readyAfter]: "never" });
    expect((await setImage(pod, "app", "app:5")).status).toBe(200);
    expect((await ask(environment.core, "DELETE", `${PODS}/${pod}`)).status).toBe(200);
    expect((await setImage(other, "app", "app:5")).status).toBe(429);
    await recovered();
  });

  it("counts a pod that gets a deadline, or an earlier one, until the pod is dead", async () => {
    const [pod = "", other = ""] = await podNames("table");
    const setDeadline = (name: string, activeDeadlineSeconds: number): Promise<ApiAnswer> =>
      ask(environment.core, "PATCH", `${PODS}/${name}`, { spec: { activeDeadlineSeconds } }, STRATEGIC);
    expect((await setDeadline(pod, 3600)).status).toBe(200);
    expect((await setDeadline(pod, 60)).status).toBe(200);
    const { status, text } = await setDeadline(other, 60);
    expect([status, text]).toEqual([429, expect.stringContaining("ended by activeDeadlineSeconds")]);
    expect((await setImage(other, "app", "app:6")).status).toBe(429);
    expect((await ask(environment.core, "DELETE", `${PODS}/${pod}`)).status).toBe(200);
    await recovered();
  });

  it("keeps the quota of a deferred resize until the resize is done", async () => {
    const [pod = "", other = ""] = await podNames("table");
    await annotate(pod, { [KWOK_ANNOTATIONS.resize]: "Deferred" });
    expect((await resize(pod, "memory", "48Mi")).status).toBe(200);
    const aggregator = environment.aggregators.get("cell");
    await environment.core.waitFor("the aggregator to say that it is deferred", async () => {
      return (await aggregator?.metric("podseidon_aggregator_deferred_resizes")) === 1;
    });
    expect((await setImage(other, "app", "app:6")).status).toBe(429);
    await annotate(pod, { [KWOK_ANNOTATIONS.resize]: null });
    await recovered();
  });

  it("returns the quota of an infeasible resize, and of a failed change, after a settle period", async () => {
    await setBudget("table", 2);
    const [resized = "", failing = "", other = ""] = await podNames("table");
    const refusing = await OtherWebhook.start(environment.core);
    const updates = { apiGroups: [""], apiVersions: ["v1"], operations: ["UPDATE"], resources: ["pods"] };
    refusing.opinion = (pod) => pod !== `default/${failing}`;
    await refusing.register(environment.core, "refuses-changes", [updates]);
    try {
      await environment.core.waitFor("any change of the pod to fail", async () => {
        return (await annotate(failing, { note: "y" })).status === 403;
      });
      expect((await setImage(failing, "app", "app:7")).status).toBe(403);
      await annotate(resized, { [KWOK_ANNOTATIONS.resize]: "Infeasible" });
      expect((await resize(resized, "memory", "64Mi")).status).toBe(200);
      expect((await setImage(other, "app", "app:7")).status).toBe(429);
      await recovered();
    } finally {
      await environment.core.kubectl(["delete", "validatingwebhookconfiguration", "refuses-changes"]);
      await refusing.stop();
    }
  });

  it("is shown by kubectl", async () => {
    await setBudget("table", 0);
    const [pod = ""] = await podNames("table");
    const page = PAGE.replaceAll("pod/web-0 app=app:2", `pod/${pod} app=app:9`);
    await expect(shellCommand(environment.core, page, "change")).rejects.toThrow(
      /may not be changed now: PodProtector/,
    );
  });
});

describe("two teams with the same pods at once", () => {
  /** One team changes every pod of the Deployment, and retries until each is changed. */
  async function upgrade(container: string, image: string): Promise<number> {
    let refused = 0;
    await environment.core.waitFor(`every pod to run ${image}`, async () => {
      const found = items(await environment.core.admin.get(`${PODS}?labelSelector=app%3Dweb`));
      const left = found.filter((pod) => {
        const containers = field(pod, "spec", "containers");
        const mine = Array.isArray(containers) ? containers.find((one) => field(one, "name") === container) : undefined;
        return field(pod, "metadata", "deletionTimestamp") === undefined && field(mine, "image") !== image;
      });
      const statuses = await Promise.all(
        left.map((pod) => setImage(String(field(pod, "metadata", "name")), container, image)),
      );
      refused += statuses.filter(({ status }) => status === 429).length;
      return left.length === 0;
    });
    return refused;
  }

  async function judged(what: string, least: number, work: () => Promise<unknown>): Promise<void> {
    const availability = await AvailabilityJudge.watch([environment.core], "default", "app=web");
    try {
      await availability.catchUp();
      availability.from();
      const startedMs = performance.now();
      await work();
      await availability.catchUp();
      const { lowest } = availability;
      process.stdout.write(
        `${what}: lowest ${lowest} available with ${least} promised, ${Math.round(performance.now() - startedMs)} ms\n`,
      );
      expect(lowest).toBeGreaterThanOrEqual(least);
    } finally {
      await availability.stop();
    }
  }

  async function rolledOut(replicas: number): Promise<void> {
    const { code, stderr } = await environment.core.kubectl(["rollout", "status", "deployment/web", "--timeout=300s"]);
    expect(stderr).toBe("");
    expect(code).toBe(0);
    await settled("web", replicas);
  }

  it("change the application and its sidecar in place", async () => {
    await judged("two in-place upgrades", REPLICAS - BUDGET, async () => {
      const refused = await Promise.all([upgrade("app", "app:blue"), upgrade("envoy", "envoy:blue")]);
      process.stdout.write(`refusals of the two teams: ${refused.join(" and ")}\n`);
    });
    await settled("web", REPLICAS);
  });

  it("roll out the Deployment and drain a node", async () => {
    await judged("rollout and drain", REPLICAS - BUDGET, async () => {
      const image = environment.core.kubectl(["set", "image", "deployment/web", "app=app:green"]);
      const flags = ["--ignore-daemonsets", "--pod-selector=app=web", "--timeout=300s"];
      const drain = environment.core.kubectl(["drain", "node-1", ...flags]);
      expect((await image).code).toBe(0);
      expect((await drain).code).toBe(0);
      await rolledOut(REPLICAS);
    });
    await environment.core.kubectl(["uncordon", "node-1"]);
  });

  it("upgrade the sidecar in place and scale down", async () => {
    const fewer = REPLICAS - 2;
    await judged("sidecar upgrade and scale-down", fewer - BUDGET, async () => {
      const upgrading = upgrade("envoy", "envoy:violet");
      await environment.core.kubectl(["scale", "deployment/web", `--replicas=${fewer}`]);
      await upgrading;
      await rolledOut(fewer);
    });
  });
});
