/**
 * Loss of the webhook configuration itself (docs/design.md#webhook-configuration): without it the apiserver calls no
 * webhook. The cell's aggregator restores a missing or altered one. One in files on the apiserver's host (Kubernetes
 * 1.36 and later) can't be removed by any API call.
 */

import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { registrations } from "../../../scripts/environment/webhook-configuration.ts";
import { root } from "../../../scripts/root.ts";
import { ask } from "../../support/cluster/ask.ts";
import { createReadyPods, setReady } from "../../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { ensureHelm } from "../../support/cluster/test-tools.ts";
import { temporaryDirectory } from "../../support/runtime/temporary-directory.ts";

const PODS = 3;
const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const RESOURCES = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] as const;
const files = temporaryDirectory();
const read = (name: string): string => readFileSync(join(root, "manifests/static-admission", name), "utf8");

let environment: TestEnvironment;

const path = (resource: string): string => `/apis/admissionregistration.k8s.io/v1/${resource}/podseidon`;
const live = async (resource: string): Promise<unknown> => {
  const { status, body } = await environment.core.admin.request("GET", path(resource));
  return status === 200 ? body : undefined;
};

beforeAll(async () => {
  for (const folder of ["validating", "mutating"]) mkdirSync(join(files, folder));
  const admission = read("admission-configuration.yaml").replaceAll("/etc/kubernetes/podseidon", files);
  environment = await TestEnvironment.start({
    cells: ["east"],
    single: true,
    replicas: 1,
    cell: {
      ...BARE,
      files: { "admission.yaml": admission },
      flags: {
        "kube-apiserver": {
          "feature-gates": "ManifestBasedAdmissionControlConfig=true",
          "admission-control-config-file": "$FILES/admission.yaml",
        },
      },
    },
  });
  const labels = { app: "web" };
  await createProtector(environment.core, "default", "web", { minAvailable: PODS, selector: { matchLabels: labels } });
  await createReadyPods(environment.core, { namespace: "default", prefix: "web", count: PODS, labels });
  await waitUntilSettled(environment.core, "default", "web", PODS);
});

afterAll(async () => {
  await environment?.stop();
});

async function untilRestored(resource: string, before: unknown): Promise<void> {
  await environment.core.waitFor(`${resource} to be put back`, async () => {
    const now = await live(resource);
    return JSON.stringify(field(now, "webhooks")) === JSON.stringify(field(before, "webhooks"));
  });
}

async function deletePod(query = "", name = "web-0"): Promise<number> {
  return (await environment.core.admin.request("DELETE", `/api/v1/namespaces/default/pods/${name}${query}`)).status;
}

async function allowed(): Promise<number> {
  const labels = { kind: "delete", outcome: "allowed" };
  return (await environment.webhooks[0]?.component.metric("podseidon_webhook_reviews_total", labels)) ?? 0;
}

/** The apiserver sees a webhook configuration a moment later. Dry runs show when it does, and delete nothing. */
async function untilAsked(): Promise<void> {
  await environment.core.waitFor("the webhook to be asked", async () => (await deletePod("?dryRun=All")) === 429);
  expect(await deletePod()).toBe(429);
}

async function evictPod(name = "web-0"): Promise<number> {
  const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: "default" } };
  const { status } = await environment.core.admin.request(
    "POST",
    `/api/v1/namespaces/default/pods/${name}/eviction`,
    eviction,
  );
  return status;
}

/**
 * Waits for denials. No pod is deleted meanwhile; the webhook may need a moment, because its core was restarted, too.
 */
async function untilRefused(): Promise<void> {
  await environment.core.waitFor("both to be refused by the protector", async () => {
    const answers = [await deletePod(), await evictPod()];
    expect(Math.min(...answers)).toBeGreaterThanOrEqual(400);
    return answers.every((status) => status === 429);
  });
}

async function untilEvent(reason: string, message: string): Promise<void> {
  await environment.core.waitFor(`the Event ${reason}`, async () => {
    const found = items(await environment.core.admin.get("/api/v1/namespaces/default/events"));
    return found.some(
      (event) => field(event, "reason") === reason && String(field(event, "message")).includes(message),
    );
  });
}

const restores = async (why: string): Promise<number> =>
  (await environment.aggregators.get("east")?.metric("podseidon_registration_restores_total", { why })) ?? 0;

const events = async (): Promise<number> =>
  (await environment.aggregators.get("east")?.metric("podseidon_kubernetes_events_total", { outcome: "created" })) ?? 0;

describe("a cell's aggregator", () => {
  it.each(RESOURCES)("restores %s with its authorities after a deletion, and reports it", async (resource) => {
    await environment.core.waitFor("the record", async () => {
      const at = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-registration";
      return Object.keys(Object(field((await environment.core.admin.request("GET", at)).body, "data"))).length === 2;
    });
    const before = await live(resource);
    const count = await restores("missing");
    await environment.core.admin.call("DELETE", path(resource));
    await untilRestored(resource, before);
    expect(field(await live(resource), "metadata", "uid")).not.toBe(field(before, "metadata", "uid"));
    await environment.core.waitFor("the metric", async () => (await restores("missing")) === count + 1);
    await environment.core.waitFor("an Event", async () => {
      const { text } = await environment.core.admin.request("GET", "/api/v1/namespaces/default/events");
      return text.includes('"RegistrationMissing"');
    });
    await environment.core.waitFor("the Event to be counted", async () => (await events()) > 0);
  });

  it.each<[string, unknown]>([
    ["failurePolicy", { failurePolicy: "Ignore" }],
    ["rules", { rules: [] }],
    ["an objectSelector", { objectSelector: { matchLabels: { never: "matches" } } }],
    ["a condition", { matchConditions: [{ name: "never", expression: "false" }] }],
  ])("puts it back when somebody alters %s", async (_, change) => {
    const before = await live(RESOURCES[0]);
    const webhooks = [{ ...Object(field(before, "webhooks", 0)), ...Object(change) }];
    const count = await restores("altered");
    await environment.core.admin.call("PATCH", path(RESOURCES[0]), { webhooks });
    await environment.core.waitFor("the metric", async () => (await restores("altered")) === count + 1);
    await untilRestored(RESOURCES[0], before);
    await untilEvent("RegistrationAltered", "was altered by ");
    await untilAsked();
  });

  it("leaves alone what AKS's admissions enforcer adds, once and for all", async () => {
    const own = { key: "kubernetes.io/metadata.name", operator: "NotIn", values: ["kube-node-lease"] };
    const added = [
      { key: "control-plane", operator: "NotIn", values: ["true"] },
      { key: "kubernetes.azure.com/managedby", operator: "NotIn", values: ["aks"] },
    ];
    const before = await live(RESOURCES[0]);
    const enforce = async (matchExpressions: readonly unknown[]): Promise<void> => {
      const webhooks = items(before, "webhooks").map((one) => ({
        ...Object(one),
        namespaceSelector: { matchExpressions },
      }));
      await environment.core.admin.call("PATCH", path(RESOURCES[0]), { webhooks });
    };
    const expressions = async (): Promise<unknown> =>
      field(await live(RESOURCES[0]), "webhooks", 0, "namespaceSelector", "matchExpressions");
    const restored = await restores("altered");
    await enforce(added);
    // The next alteration is put back, and with it what AKS added: the keeper has seen that by then, and left it alone.
    await enforce([...added, own]);
    await environment.core.waitFor("the metric", async () => (await restores("altered")) === restored + 1);
    await untilRestored(RESOURCES[0], before);
    await enforce(added);
    await environment.core.waitFor("the keeper to have looked", async () => {
      const kept = await environment.aggregators.get("east")?.metric("podseidon_registration_kept");
      return kept === 1 && JSON.stringify(await expressions()) === JSON.stringify(added);
    });
    expect(await expressions()).toEqual(added);
    expect(await restores("altered")).toBe(restored + 1);
    await environment.core.admin.call("PATCH", path(RESOURCES[0]), { webhooks: items(before, "webhooks") });
  });

  it("keeps a change that an operator applies", async () => {
    const url = `https://127.0.0.1:${environment.balancer.port}`;
    const caPem = environment.core.identity.certificateAuthorityPem;
    const count = await restores("altered");
    await environment.core.apply(registrations({ cell: "east", url, caPem, timeoutSeconds: 7 }));
    await environment.core.waitFor("the new form on record", async () => {
      const at = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-registration";
      const text = field(await environment.core.admin.get(at), "data", "MutatingWebhookConfiguration");
      return String(text).includes('"timeoutSeconds":7');
    });
    expect(field(await live(RESOURCES[0]), "webhooks", 0, "timeoutSeconds")).toBe(7);
    expect(await restores("altered")).toBe(count);
    await untilEvent("RegistrationChanged", "timeoutSeconds of pods.podseidon.kubewharf.io is 7");
  });

  describe("with what is applied on the server", () => {
    const MANAGER = "argocd-controller";
    const extra = "extra.podseidon.kubewharf.io";
    const [validating] = RESOURCES;
    const shipped = (): readonly object[] => {
      const url = `https://127.0.0.1:${environment.balancer.port}`;
      const caPem = environment.core.identity.certificateAuthorityPem;
      return items(registrations({ cell: "east", url, caPem })[0], "webhooks").map(Object);
    };
    const apply = async (webhooks: readonly object[]): Promise<void> => {
      const { apiVersion, kind, metadata } = Object(registrations({ cell: "east", url: "https://x", caPem: "" })[0]);
      const input = JSON.stringify({ apiVersion, kind, metadata, webhooks });
      const args = ["apply", "--server-side", "--force-conflicts", `--field-manager=${MANAGER}`, "--filename=-"];
      expect(await environment.core.kubectl(args, { input })).toMatchObject({ code: 0 });
    };
    const recorded = async (): Promise<string> => {
      const at = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-registration";
      return String(field(await environment.core.admin.get(at), "data", "ValidatingWebhookConfiguration"));
    };
    const untilRecorded = (text: string): Promise<void> =>
      environment.core.waitFor(`${text} on record`, async () => (await recorded()).includes(text));
    const alter = async (change: (webhooks: readonly object[]) => readonly object[]): Promise<void> => {
      const webhooks = change(items(await live(validating), "webhooks").map(Object));
      await environment.core.admin.call("PATCH", path(validating), { webhooks });
    };
    const names = async (): Promise<unknown[]> =>
      items(await live(validating), "webhooks").map((one) => field(one, "name"));

    it("keeps a change, says who made it, and puts back what another client alters of it", async () => {
      const count = await restores("altered");
      for (const [failurePolicy, timeoutSeconds] of [
        ["Ignore", 8],
        ["Fail", 9],
      ] as const) {
        await apply(shipped().map((one) => ({ ...one, failurePolicy, timeoutSeconds })));
        await untilRecorded(`"timeoutSeconds":${timeoutSeconds}`);
        expect(field(await live(validating), "webhooks", 0, "failurePolicy")).toBe(failurePolicy);
      }
      await untilEvent("RegistrationWeakened", `was declared differently by ${MANAGER}: `);
      await untilEvent("RegistrationChanged", `was declared differently by ${MANAGER}: `);
      expect(await restores("altered")).toBe(count);
      const before = await live(validating);
      await alter((webhooks) => webhooks.map((one) => ({ ...one, timeoutSeconds: 3 })));
      await untilRestored(validating, before);
      await environment.core.waitFor("the metric", async () => (await restores("altered")) === count + 1);
      await untilEvent("RegistrationAltered", "is 3, it was 9");
      await untilAsked();
    });

    it.runIf(FULL)("keeps a change that helm makes", async () => {
      const chart = join(files, "chart");
      mkdirSync(join(chart, "templates"), { recursive: true });
      writeFileSync(join(chart, "Chart.yaml"), "apiVersion: v2\nname: cell\nversion: 0.1.0\n");
      const { apiVersion, kind } = Object(registrations({ cell: "east", url: "https://x", caPem: "" })[0]);
      const upgrade = async (timeoutSeconds: number): Promise<void> => {
        const webhooks = shipped().map((one) => ({ ...one, timeoutSeconds }));
        const object = { apiVersion, kind, metadata: { name: "podseidon" }, webhooks };
        writeFileSync(join(chart, "templates/cell.json.yaml"), JSON.stringify(object));
        const args = ["upgrade", "--install", "cell", chart, "--take-ownership"];
        await promisify(execFile)(await ensureHelm(), [...args, "--kubeconfig", environment.core.kubeconfig]);
      };
      const count = await restores("altered");
      for (const timeoutSeconds of [11, 12]) {
        await upgrade(timeoutSeconds);
        await untilRecorded(`"timeoutSeconds":${timeoutSeconds}`);
        expect(field(await live(validating), "webhooks", 0, "timeoutSeconds")).toBe(timeoutSeconds);
      }
      expect(await restores("altered")).toBe(count);
      const before = await live(validating);
      await alter((webhooks) => webhooks.map((one) => ({ ...one, timeoutSeconds: 3 })));
      await untilRestored(validating, before);
    });

    it("drops what is declared no more, and not what another client took out", async () => {
      const never = { matchLabels: { never: "matches" } };
      const more = shipped().slice(0, 1);
      await apply([...shipped(), ...more.map((one) => ({ ...one, name: extra, namespaceSelector: never }))]);
      await untilRecorded(extra);
      const entries = items(field(await live(validating), "metadata"), "managedFields");
      const appliedAt = field(
        entries.find((one) => field(one, "manager") === MANAGER),
        "time",
      );
      // Times of managedFields have seconds.
      const next = async (): Promise<boolean> => Date.now() >= Date.parse(String(appliedAt)) + 1000;
      await environment.core.waitFor("the next second", next);
      const count = await restores("altered");
      await alter((webhooks) => webhooks.filter((one) => field(one, "name") !== extra));
      await environment.core.waitFor("the metric", async () => (await restores("altered")) === count + 1);
      expect(await names()).toContain(extra);
      await apply(shipped().map((one) => ({ ...one, timeoutSeconds: 6 })));
      await environment.core.waitFor("it to be gone", async () => !(await names()).includes(extra));
      await environment.core.waitFor(
        "the record",
        async () =>
          !JSON.parse(await recorded()).declared.webhooks.some((one: unknown) => field(one, "name") === extra),
      );
    });
  });

  it("restores one that was deleted while the aggregator restarted", async () => {
    const before = await live(RESOURCES[0]);
    const aggregator = environment.aggregators.get("east");
    await aggregator?.process.kill("SIGKILL");
    for (const resource of RESOURCES) await environment.core.admin.call("DELETE", path(resource));
    await aggregator?.process.start();
    await untilRestored(RESOURCES[0], before);
    expect(field(await live(RESOURCES[0]), "webhooks", 0, "clientConfig", "caBundle")).toBe(
      field(before, "webhooks", 0, "clientConfig", "caBundle"),
    );
    await untilAsked();
  });
});

describe("a webhook configuration in files on the apiserver's host", () => {
  it("beside the one in the API asks twice, and a deletion takes its quota once", async () => {
    for (const half of ["validating", "mutating"]) {
      const text = read(`${half}.yaml`)
        .replaceAll("CELL", "east")
        .replaceAll("https://WEBHOOK", `https://127.0.0.1:${environment.balancer.port}`)
        .replaceAll(
          "caBundle: CA",
          `caBundle: ${Buffer.from(environment.core.identity.certificateAuthorityPem).toString("base64")}`,
        );
      writeFileSync(join(files, half, "podseidon.yaml"), text);
    }
    const { core } = environment;
    const labels = { app: "twice" };
    await createProtector(core, "default", "twice", { minAvailable: 1, selector: { matchLabels: labels } });
    await createReadyPods(core, { namespace: "default", prefix: "twice", count: 2, labels });
    await waitUntilSettled(core, "default", "twice", 2);
    await core.processes["kube-apiserver"].restart();
    const before = await allowed();
    await core.waitFor("a deletion that both allow", async () => (await deletePod("", "twice-0")) === 200);
    expect((await allowed()) - before).toBeGreaterThanOrEqual(2);
    await core.waitFor("the other to be denied", async () => {
      const status = await deletePod("", "twice-1");
      expect(status).toBeGreaterThanOrEqual(400);
      return status === 429;
    });
    await waitUntilSettled(core, "default", "twice", 1);
    // The files come first: that is how the plugin tells a cluster with them from one that only binds evictions.
    const none = { metadata: { name: "none" }, apiVersion: "policy/v1", kind: "Eviction" };
    const { text } = await core.admin.request("POST", "/api/v1/namespaces/default/pods/none/eviction?dryRun=All", none);
    expect(text).toContain('admission webhook \\"bind.podseidon.static.k8s.io\\" denied the request');
  });

  it("stays in force without any object in the API, and no API call can change it", async () => {
    await environment.aggregators.get("east")?.process.kill("SIGKILL");
    // One of them may be missing already, because the aggregator that restores it was killed above.
    for (const resource of RESOURCES) {
      await environment.core.admin.request("DELETE", path(resource));
      expect((await environment.core.admin.request("GET", path(resource))).status).toBe(404);
    }
    await untilRefused();
    const { text } = await environment.core.admin.request("GET", path(RESOURCES[0]).replace(/\/podseidon$/, ""));
    expect(text).not.toContain("static.k8s.io");
    expect((await environment.core.admin.request("DELETE", `${path(RESOURCES[0])}.static.k8s.io`)).status).toBe(404);
    await untilRefused();
  });

  it("asks about the last finalizer of a node that ends, also where the node's status is written", async () => {
    const { core } = environment;
    const node = `/api/v1/nodes/${await core.createNode({ name: "ends" })}`;
    await core.admin.call("PATCH", node, { metadata: { finalizers: ["example.com/drain"] } });
    const metadata = { name: "on-it", labels: { app: "web" } };
    const spec = { nodeName: "ends", containers: [{ name: "app", image: "app:1" }] };
    await core.admin.call("POST", "/api/v1/namespaces/default/pods", { apiVersion: "v1", kind: "Pod", metadata, spec });
    await setReady(core, "default", "on-it", true);
    expect((await core.admin.request("DELETE", node)).status).toBe(200);
    for (const at of [node, `${node}/status`]) {
      const answer = await ask(core, "PATCH", at, { metadata: { finalizers: null } });
      expect(answer).toMatchObject({ status: 429, text: expect.stringContaining("default/on-it") });
    }
    // One that only garbage collection holds is removed by a deletion with another policy.
    expect((await core.admin.request("DELETE", node, { propagationPolicy: "Foreground" })).status).toBe(200);
    await core.admin.call("PATCH", node, { metadata: { finalizers: ["foregroundDeletion"] } });
    expect((await core.admin.request("DELETE", node, { propagationPolicy: "Background" })).status).toBe(429);
  });

  it("is what protects here: without the files pods can be deleted", async () => {
    for (const half of ["validating", "mutating"]) rmSync(join(files, half, "podseidon.yaml"));
    await environment.core.processes["kube-apiserver"].restart();
    expect(await deletePod()).toBe(200);
  });
});
