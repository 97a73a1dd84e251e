/**
 * Karpenter replaces nodes whose pods are protected: at the minimum it waits, with quota it ends
 * (docs/neighbours.md#karpenter). With PODSEIDON_TEST_SIZE=full only, because Karpenter is built for it.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { refusals } from "../../../scripts/bench/rollout.ts";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { waitUntilSettled } from "../../support/cluster/protectors.ts";
import { ensureNeighbour, neighbourVersion } from "../../support/neighbours/binaries.ts";
import { startKarpenter } from "../../support/neighbours/controllers.ts";
import { changePromise, deployProtected, podsOf } from "../../support/neighbours/protected-deployment.ts";

const REPLICAS = 3;
const INSTANCE_TYPE = "c-4x-amd64-linux";
/** A node has room for one of these. */
const REQUESTS = { cpu: "2" };
const POOL = "/apis/karpenter.sh/v1/nodepools/default";
const MERGE = { contentType: "application/merge-patch+json" };
const WAIT_MS = 5 * 60_000;
/** How often each pod's eviction is denied before a test believes that Karpenter waits. */
const DENIALS_EACH = 4;

let environment: TestEnvironment;
let cluster: Cluster;
let karpenter: ManagedProcess | undefined;

const REQUIREMENTS = [
  { key: "node.kubernetes.io/instance-type", operator: "In", values: [INSTANCE_TYPE] },
  { key: "karpenter.sh/capacity-type", operator: "In", values: ["on-demand"] },
];
const NODE_CLASS = { apiVersion: "karpenter.kwok.sh/v1alpha1", kind: "KWOKNodeClass", metadata: { name: "default" } };
const NODE_POOL = {
  apiVersion: "karpenter.sh/v1",
  kind: "NodePool",
  metadata: { name: "default" },
  spec: {
    template: {
      metadata: { labels: { revision: "1" } },
      spec: {
        nodeClassRef: { group: "karpenter.kwok.sh", kind: "KWOKNodeClass", name: "default" },
        requirements: REQUIREMENTS,
      },
    },
    disruption: {
      ...{ consolidationPolicy: "WhenEmptyOrUnderutilized", consolidateAfter: "Never" },
      budgets: [{ nodes: "100%" }],
    },
  },
};

const changePool = (spec: object): Promise<unknown> => cluster.admin.call("PATCH", POOL, { spec }, MERGE);

interface Seen {
  readonly name: string;
  readonly revision: unknown;
}

async function nodes(): Promise<readonly Seen[]> {
  return items(await cluster.admin.get("/api/v1/nodes")).map((node) => ({
    name: String(field(node, "metadata", "name")),
    revision: field(node, "metadata", "labels", "revision"),
  }));
}

async function untilNodes(what: string, check: (all: readonly Seen[]) => boolean): Promise<void> {
  let last: readonly Seen[] = [];
  const holds = async (): Promise<boolean> => {
    last = await nodes();
    return check(last);
  };
  await cluster.waitFor(what, holds, WAIT_MS).catch((cause: unknown) => {
    throw new Error(`the nodes stayed ${JSON.stringify(last)}`, { cause });
  });
}

const uids = async (): Promise<unknown[]> =>
  (await podsOf([cluster], "web")).map((pod) => field(pod, "metadata", "uid")).sort();

/** Resolves when Karpenter has met `count` more denials: it tries, and does not give up. */
async function untilDenied(count: number): Promise<void> {
  const before = await refusals(environment);
  await cluster.waitFor(`${count} denials`, async () => (await refusals(environment)) - before >= count, WAIT_MS);
}

/** Runs a story, and prints the fewest pods that were available in it, the denials, and how long it took. */
async function observed(name: string, promised: number, story: () => Promise<void>): Promise<void> {
  await using availability = await AvailabilityJudge.watch([cluster], "default", "app=web");
  availability.from();
  const before = await refusals(environment);
  const startedMs = performance.now();
  await story();
  await availability.catchUp();
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  const denied = (await refusals(environment)) - before;
  process.stdout.write(`Karpenter ${neighbourVersion("karpenter")}, ${name}: lowest ${availability.lowest} of `);
  process.stdout.write(`${promised} promised, ${denied} denied, ${seconds} s\n`);
  expect(availability.lowest).toBeGreaterThanOrEqual(promised);
}

describe.runIf(process.env.PODSEIDON_TEST_SIZE === "full")("with Karpenter", () => {
  beforeAll(async () => {
    await ensureNeighbour("karpenter");
    const cells = { cells: ["cell"], single: true, replicas: 1, settle: "8s" };
    environment = await TestEnvironment.start(cells);
    cluster = environment.core;
    karpenter = await startKarpenter(cluster);
    await cluster.apply([NODE_CLASS, NODE_POOL]);
    await deployProtected(environment, "web", { replicas: REPLICAS, minAvailable: REPLICAS, requests: REQUESTS });
    await untilNodes("a node for each pod", (all) => all.length === REPLICAS);
  }, 60 * 60_000);

  afterAll(async () => {
    await karpenter?.kill("SIGKILL");
    await environment?.stop();
  });

  test("nodes that have drifted wait at the minimum, and are replaced with quota", async () => {
    const before = await uids();
    await observed("drift at the minimum", REPLICAS, async () => {
      await changePool({ template: { metadata: { labels: { revision: "2" } } } });
      await untilDenied(DENIALS_EACH * REPLICAS);
      expect(await uids()).toEqual(before);
    });
    await observed("drift with a quota of one", REPLICAS - 1, async () => {
      await changePromise(environment, "web", REPLICAS - 1);
      await untilNodes("nodes of the new revision", (all) => all.every(({ revision }) => revision === "2"));
      await waitUntilSettled(cluster, "default", "web", REPLICAS, WAIT_MS);
    });
    expect((await uids()).filter((uid) => before.includes(uid))).toEqual([]);
  });
});
