/**
 * Protection survives the loss of its own objects (docs/design.md#lost-protectors): protectors deleted, their CRD
 * deleted, the core's etcd restored or emptied, and all processes restarted meanwhile. The pods are in another cluster,
 * and nothing replaces a deleted one, so the number in the end is the lowest there ever was. A watch of the pods
 * confirms it.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import type { EtcdSnapshot } from "../../../scripts/control-plane/etcd.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { REPORT_ENVIRONMENT, reported } from "../../support/cluster/report.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const PODS = FULL ? 200 : 20;
const PROMISED = (PODS * 4) / 5;
const GROUP = "podseidon.kubewharf.io";
const CRD_NAME = `podprotectors.${GROUP}`;
const CRD = readFileSync(join(root, "crds", `${GROUP}_podprotectors.yaml`), "utf8");
const NAMESPACE = "shop";
const PROTECTOR = `/apis/${GROUP}/v1alpha1/namespaces/${NAMESPACE}/podprotectors/deployment-web`;
const FLAGS = { "kube-apiserver": { "request-timeout": "5s" } };
const SETTLE = "6s";
/** Against a hanging test, not against a slow one. */
const HANGS_MS = 240_000;
/** Between two attacks. */
const PAUSE_MS = 100;

let environment: TestEnvironment;
let generator: Component;
let availability: AvailabilityJudge;
/** A snapshot of the core before it hosted anything. */
let before: EtcdSnapshot;
let made = 0;

const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
const workload = deployment("web", PODS, {
  namespace: NAMESPACE,
  spec: { strategy: { rollingUpdate: { maxUnavailable: "20%", maxSurge: 0 } } },
});

beforeAll(async () => {
  environment = await TestEnvironment.start({
    cells: ["east"],
    replicas: 2,
    cell: { ...BARE, flags: FLAGS },
    core: { flags: FLAGS },
    settle: SETTLE,
    environment: REPORT_ENVIRONMENT,
    aggregatorArgs: ["--restore-after=2s", "--copy-interval=500ms", "--heartbeat-interval=3s"],
  });
  for (const cluster of [environment.core, environment.cell("east")]) await cluster.apply([namespace]);
  before = environment.core.snapshotEtcd();
  generator = await environment.startGenerator();
  availability = await AvailabilityJudge.watch([environment.cell("east")], NAMESPACE);
});

afterAll(async () => {
  await availability?.stop();
  await generator?.stop();
  await environment?.stop();
});

interface Tally {
  admitted: number;
  refused: number;
  /** Failed by failurePolicy: the webhook did not respond. */
  failed: number;
  /** Given up after the apiserver's request timeout, as on a busy machine: nobody knows whether they commit. */
  unanswered: number;
  readonly messages: string[];
}

/** Deletes every pod at once. */
async function attack(): Promise<Tally> {
  const tally: Tally = { admitted: 0, refused: 0, failed: 0, unanswered: 0, messages: [] };
  const path = `/api/v1/namespaces/${NAMESPACE}/pods`;
  const { admin } = environment.cell("east");
  const names = items(await admin.get(path)).map((pod) => String(field(pod, "metadata", "name")));
  await eachAtMost(names.length, names, async (name) => {
    // An apiserver aborts a call that outlasts its request timeout.
    const { status, text } = await admin
      .request("DELETE", `${path}/${name}`)
      .catch((error: unknown) => ({ status: 504, text: String(error) }));
    if (status < 300) tally.admitted++;
    else if (status === 429) tally.refused++;
    else if (status === 504) tally.unanswered++;
    else tally.failed++;
    if (status >= 300) tally.messages.push(text);
  });
  return tally;
}

/** Attacks again and again, with pauses: what is to recover shares the machine. */
async function attackUntil(condition: () => Promise<boolean>): Promise<Tally> {
  const sum: Tally = { admitted: 0, refused: 0, failed: 0, unanswered: 0, messages: [] };
  const stopMs = performance.now() + HANGS_MS;
  do {
    await delay(PAUSE_MS);
    const { admitted, refused, failed, unanswered, messages } = await attack();
    sum.admitted += admitted;
    sum.refused += refused;
    sum.failed += failed;
    sum.unanswered += unanswered;
    sum.messages.push(...messages);
    if (performance.now() > stopMs) throw new Error(`it did not come to an end: ${sum.messages.at(-1)}`);
    // The core's apiserver drops calls while it restarts. An unknown state counts as "not yet".
  } while (!(await condition().catch(() => false)));
  return sum;
}

async function protector(): Promise<unknown> {
  const { status, body } = await environment.core.admin.request("GET", PROTECTOR);
  return status === 200 ? body : undefined;
}

const uidOf = (object: unknown): unknown => field(object, "metadata", "uid");

/** True when a protector other than `uid` exists, and its cell counts `available` pods and is not on hold. */
async function isInForce(uid: unknown, available: number): Promise<boolean> {
  const found = await protector();
  const aggregation = field(found, "status", "cells", 0, "aggregation");
  return (
    found !== undefined &&
    uidOf(found) !== uid &&
    field(found, "metadata", "deletionTimestamp") === undefined &&
    field(aggregation, "availableReplicas") === available &&
    field(aggregation, "resourceVersion") !== undefined &&
    field(aggregation, "hold") === undefined
  );
}

async function untilInForce(uid: unknown, available = PROMISED): Promise<void> {
  await environment.core
    .waitFor("the protector to be in force again", () => isInForce(uid, available), HANGS_MS)
    .catch(async (cause: unknown) => {
      throw new Error(`it is ${JSON.stringify(await protector())}`, { cause });
    });
}

async function lostCount(): Promise<number> {
  const counts = await Promise.all(
    environment.webhooks.map(({ component }) =>
      component.metric("podseidon_webhook_lost_protectors", { core: "core" }),
    ),
  );
  return counts.reduce<number>((sum, count) => sum + (count ?? 0), 0);
}

async function restartEverything(): Promise<void> {
  const all = [...environment.webhooks.map(({ component }) => component), ...environment.aggregators.values()];
  await Promise.all(all.map(({ process }) => process.kill("SIGKILL")));
  await Promise.all(all.map(({ process }) => process.start()));
}

async function untilCopied(): Promise<void> {
  await environment.core.waitFor("the cell to have a copy", async () => {
    const list = await environment
      .cell("east")
      .admin.get(`/api/v1/namespaces/podseidon-system/configmaps?labelSelector=${GROUP}/copy`);
    const uid = String(uidOf(await protector()));
    return items(list).some((map) => typeof field(map, "data", uid) === "string");
  });
}

/** So many pods went; the answer to the deletion of one may have come too late. */
function expectAdmitted({ admitted, unanswered }: Tally, pods: number): void {
  expect(admitted).toBeLessThanOrEqual(pods);
  expect(admitted + unanswered).toBeGreaterThanOrEqual(pods);
}

/** With one pod more than the minimum exactly one deletion is allowed, so quota works again. */
async function expectLive(): Promise<void> {
  await createReadyPods(environment.cell("east"), {
    namespace: NAMESPACE,
    prefix: `more-${++made}`,
    count: 1,
    labels: { app: "web" },
  });
  await untilInForce(undefined, PROMISED + 1);
  expectAdmitted(await attackUntil(async () => availability.counts().total === PROMISED), 1);
  await untilInForce(undefined);
  // The replicas learn of it by their watches.
  await expect.poll(lostCount).toBe(0);
}

/** A test case, with a report if one is asked for. */
function catastrophe(title: string, work: () => Promise<void>, isPlayed = true): void {
  const file = `loss-${title
    .toLowerCase()
    .replaceAll(/[^a-z]+/g, "-")
    .slice(0, 40)}`;
  const what = { file, title, namespace: NAMESPACE, labels: "app=web", promised: PROMISED };
  it.runIf(isPlayed)(title, () =>
    reported(environment, what, async (fault) => {
      fault(title);
      await work();
    }),
  );
}

describe(`${PODS} pods, ${PROMISED} promised`, () => {
  beforeEach(() => {
    if (availability.counts().total > 0) availability.from();
  });

  it("allows exactly the spare pods, and backs the protector up in the cell", async () => {
    await environment.core.apply([workload]);
    const pods = { namespace: NAMESPACE, prefix: "web", count: PODS, labels: { app: "web" } };
    // The protector exists before its pods, so that the first pod is covered, too.
    await environment.core.waitFor("the protector", async () => (await protector()) !== undefined);
    await createReadyPods(environment.cell("east"), pods);
    await untilInForce(undefined, PODS);
    const tally = await attackUntil(async () => availability.counts().total === PROMISED);
    expectAdmitted(tally, PODS - PROMISED);
    await untilInForce(undefined);
    await untilCopied();
  });

  catastrophe("kubectl delete ppr --all: no pod is allowed, and the protector is back with another UID", async () => {
    const uid = uidOf(await protector());
    const deleted = environment.core.kubectl(["delete", "ppr", "--all", "--namespace", NAMESPACE]);
    const tally = await attackUntil(() => isInForce(uid, PROMISED));
    expect((await deleted).code).toBe(0);
    expect(tally).toMatchObject({ admitted: 0, failed: 0 });
    expect(availability.lowest).toBe(PROMISED);
    await expectLive();
    await untilCopied();
  });

  catastrophe(
    "the CRD is deleted: the protector is enforced while it terminates, and then lost, until the CRD is back",
    async () => {
      const uid = uidOf(await protector());
      await environment.core.kubectl(["delete", "crd", CRD_NAME, "--wait=false"]);
      await environment.core.waitFor("the protector to be on its way out", async () => {
        return field(await protector(), "metadata", "deletionTimestamp") !== undefined;
      });
      expect(await attack()).toMatchObject({ admitted: 0, failed: 0 });
      expect(uidOf(await protector())).toBe(uid);
      // The worst that can happen to a terminating protector: its finalizers are removed.
      await environment.core.admin.call("PATCH", PROTECTOR, { metadata: { finalizers: null } });
      await environment.core.waitFor("the CRD to be gone", async () => {
        const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${CRD_NAME}`;
        return (await environment.core.admin.request("GET", path)).status === 404;
      });
      const gone = await attack();
      expect(gone.admitted).toBe(0);
      expect(gone.messages.join("\n")).toContain("vanished without a release");
      // All processes that have seen the protector stop, and the core has no protector when they come back. Only the
      // cell's backup is left.
      await generator.stop();
      const all = [...environment.webhooks.map(({ component }) => component), ...environment.aggregators.values()];
      await Promise.all(all.map(({ process }) => process.kill("SIGKILL")));
      await environment.core.apply(CRD);
      await environment.core.waitFor("the CRD to be served", async () => {
        return (await environment.core.admin.request("GET", PROTECTOR.replace(/\/[^/]*$/, ""))).status === 200;
      });
      for (const { component } of environment.webhooks) await component.process.start();
      expect(await lostCount()).toBe(environment.webhooks.length);
      const restarted = await attack();
      expect(restarted).toMatchObject({ admitted: 0, refused: PROMISED - restarted.unanswered });
      for (const component of environment.aggregators.values()) await component.process.start();
      await untilInForce(uid);
      expect(field(await protector(), "metadata", "annotations", `${GROUP}/restored`)).toBeDefined();
      generator = await environment.startGenerator();
      expect(availability.lowest).toBe(PROMISED);
      await expectLive();
      await untilCopied();
    },
  );

  catastrophe(
    "the core's etcd is restored to before the protector, and all processes restart: no pod is allowed meanwhile",
    async () => {
      const uid = uidOf(await protector());
      const restored = environment.core.restoreEtcd(before);
      await attack();
      await restored;
      await restartEverything();
      const tally = await attackUntil(() => isInForce(uid, PROMISED));
      expect(tally.admitted).toBe(0);
      expect(availability.lowest).toBe(PROMISED);
      // The restore has removed the Deployment, too. The protector stays without it until somebody creates it again.
      await environment.core.apply([workload]);
      await expectLive();
      await untilCopied();
    },
  );

  // `test/catastrophe/catastrophes.test.ts` plays the same in three clusters.
  catastrophe(
    "the core's etcd is emptied: no pod is allowed, and the protector comes back with the CRD and the namespaces",
    async () => {
      const uid = uidOf(await protector());
      await environment.core.wipeEtcd();
      const gone = await attack();
      expect(gone.admitted).toBe(0);
      await environment.core.apply(CRD);
      const system = { ...namespace, metadata: { name: "podseidon-system" } };
      await environment.core.apply([namespace, system]);
      const tally = await attackUntil(() => isInForce(uid, PROMISED));
      expect(tally.admitted).toBe(0);
      expect(availability.lowest).toBe(PROMISED);
      await environment.core.apply([workload]);
      await expectLive();
    },
    FULL,
  );
});
