/**
 * The generator dies at each of its writes, before the write or after it. The next generator finishes the work, and the
 * state is the same as without a crash. And a write that the core denies.
 */

import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import { type Crash, CrashingTransport } from "../../support/generator/crashing-transport.ts";
import {
  eventually,
  GROUP,
  generatorTransport,
  installGenerator,
  protectorPath,
  type RunningGenerator,
  readObject,
  startGenerator,
} from "../../support/generator/generator-harness.ts";

const AT_ONCE = 4;

let cluster: Cluster;
let transport: Transport;
let spaces = 0;

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
  await installGenerator(cluster);
  transport = await generatorTransport(cluster);
});

afterAll(async () => {
  transport?.close();
  await cluster?.stop();
});

/** A namespace with one Deployment, for one scenario. */
class Space {
  readonly namespace = `crash-${++spaces}`;

  get deployment(): string {
    return `/apis/apps/v1/namespaces/${this.namespace}/deployments/web`;
  }

  get protector(): string {
    return protectorPath(this.namespace, "deployment-web");
  }

  async apply(replicas = 10): Promise<void> {
    const labels = { app: "web" };
    const template = { metadata: { labels }, spec: { containers: [{ name: "app", image: "app" }] } };
    const metadata = { name: "web", namespace: this.namespace, labels: PROTECTED };
    const spec = { replicas, selector: { matchLabels: labels }, template };
    if ((await readObject(cluster, `/api/v1/namespaces/${this.namespace}`)) === undefined) {
      await cluster.admin.call("POST", "/api/v1/namespaces", { metadata: { name: this.namespace } });
    }
    await cluster.admin.call("POST", this.deployment.slice(0, this.deployment.lastIndexOf("/")), { metadata, spec });
  }

  patch(path: string, body: object): Promise<unknown> {
    return cluster.admin.call("PATCH", path, body);
  }

  start(through: Transport): RunningGenerator {
    return startGenerator(through, { plugins: { namespaces: [this.namespace], kinds: ["deployment"] } });
  }
}

interface Scenario {
  readonly name: string;
  /** The Deployment is not protected at the beginning. */
  readonly bare?: boolean;
  readonly change: (space: Space) => Promise<unknown>;
  /** Whether the work is finished. */
  readonly done: (space: Space) => Promise<boolean>;
}

const minimum = async (space: Space): Promise<unknown> =>
  field(await readObject(cluster, space.protector), "spec", "minAvailable");
const isReleased = async (space: Space): Promise<boolean> =>
  (await readObject(cluster, space.protector)) === undefined &&
  field(await readObject(cluster, space.deployment), "metadata", "finalizers") === undefined;
const vanished = async (space: Space): Promise<unknown> =>
  field(await readObject(cluster, space.protector), "status", "conditions", 0, "status");

const SCENARIOS: readonly Scenario[] = [
  {
    name: "protect",
    bare: true,
    change: (space) => space.apply(),
    done: async (space) => (await minimum(space)) === 8,
  },
  {
    name: "follow",
    change: (space) => space.patch(space.deployment, { spec: { replicas: 20 } }),
    done: async (space) => (await minimum(space)) === 15,
  },
  {
    name: "release",
    change: (space) => space.patch(space.deployment, { metadata: { labels: null } }),
    done: isReleased,
  },
  {
    name: "source deleted",
    change: async (space) => {
      await space.patch(space.deployment, { spec: { replicas: 0 } });
      await cluster.admin.call("DELETE", space.deployment);
    },
    done: async (space) => (await readObject(cluster, space.deployment)) === undefined && (await isReleased(space)),
  },
  {
    name: "deleted from etcd",
    change: async (space) => {
      await cluster.admin.call("DELETE", space.protector);
      await space.patch(space.protector, { metadata: { finalizers: null } });
    },
    done: async (space) => (await minimum(space)) === 8,
  },
  {
    name: "cell removed",
    change: async (space) => {
      const cell = { cellID: "one", aggregation: { totalReplicas: 5, availableReplicas: 5, resourceVersion: "1" } };
      const summary = { totalReplicas: 5, aggregatedAvailableReplicas: 5, estimatedAvailableReplicas: 5 };
      await space.patch(`${space.protector}/status`, { status: { cells: [cell], summary } });
      await space.patch(space.protector, { metadata: { annotations: { [`${GROUP}/remove-cell-once`]: "one" } } });
    },
    done: async (space) => {
      const found = await readObject(cluster, space.protector);
      const isMarked = field(found, "metadata", "annotations", `${GROUP}/remove-cell-once`) !== undefined;
      return !isMarked && field(found, "status", "cells", 0, "aggregation", "availableReplicas") === 0;
    },
  },
  {
    name: "source lost",
    change: (space) => cluster.etcd.deleteKey(`/registry/deployments/${space.namespace}/web`),
    done: async (space) => (await vanished(space)) === "True" && (await minimum(space)) === 8,
  },
  {
    name: "source is back",
    change: async (space) => {
      await cluster.etcd.deleteKey(`/registry/deployments/${space.namespace}/web`);
      const one = space.start(transport);
      await eventually(
        cluster,
        space.protector,
        (found) => field(found, "status", "conditions", 0, "status") === "True",
      );
      await one.stop();
      await space.apply(20);
    },
    done: async (space) => (await vanished(space)) === "False" && (await minimum(space)) === 15,
  },
];

/** The part of an object that does not depend on when and where it was created. */
function lasting(object: unknown): unknown {
  const owners = field(object, "metadata", "ownerReferences");
  const conditions = field(object, "status", "conditions");
  const statusOf = (condition: unknown): unknown[] => [field(condition, "type"), field(condition, "status")];
  return {
    spec: field(object, "spec"),
    finalizers: field(object, "metadata", "finalizers"),
    labels: field(object, "metadata", "labels"),
    owners: (Array.isArray(owners) ? owners : []).map((owner) => [field(owner, "kind"), field(owner, "name")]),
    cells: field(object, "status", "cells"),
    conditions: (Array.isArray(conditions) ? conditions : []).map(statusOf),
  };
}

interface Ended {
  /**
   * Whether the generator died. Which writes happen depends on the lag of its watches, so a write may not be needed.
   */
  readonly died: boolean;
  /** The writes of the generator that died, and those of the next one. */
  readonly first: readonly string[];
  readonly next: readonly string[];
  readonly state: unknown;
}

async function play(scenario: Scenario, crash?: Crash): Promise<Ended> {
  const space = new Space();
  if (scenario.bare !== true) {
    await space.apply();
    const before = space.start(transport);
    await eventually(cluster, space.protector, (found) => field(found, "spec", "minAvailable") === 8);
    await before.stop();
  }
  await scenario.change(space);
  const dying = new CrashingTransport(transport, crash);
  const first = space.start(dying);
  const isDone = (): Promise<boolean> => scenario.done(space);
  const ended = async (): Promise<boolean> => dying.isDead || (await isDone());
  await cluster.waitFor(`${scenario.name} up to ${JSON.stringify(crash)}`, ended);
  await first.stop();
  const counting = new CrashingTransport(transport);
  const second = space.start(counting);
  const what = `${scenario.name} after ${JSON.stringify(crash)}`;
  await cluster.waitFor(what, isDone).catch((cause: unknown) => {
    throw new Error(`${cause}; made ${counting.writes}; ${JSON.stringify(second.events)}`, { cause });
  });
  await second.stop();
  const state = [
    lasting(await readObject(cluster, space.protector)),
    lasting(await readObject(cluster, space.deployment)),
  ];
  return { died: dying.isDead, first: dying.writes, next: counting.writes, state };
}

test.each(SCENARIOS)("$name: the next generator finishes whatever write the first one dies at", async (scenario) => {
  const whole = await play(scenario);
  expect(whole.first.length).toBeGreaterThan(0);
  const rows = [`${scenario.name}: ${whole.first.join(", ")}`];
  const crashes = whole.first.flatMap((_, index) =>
    (["before", "after"] as const).map((when): Crash => ({ atWrite: index + 1, when })),
  );
  const played: (Ended & { readonly crash: Crash })[] = [];
  // All at once would wait for each other: they share the release register, and the machine.
  await eachAtMost(AT_ONCE, crashes, async (crash) => {
    played.push({ crash, ...(await play(scenario, crash)) });
  });
  played.sort((a, b) => crashes.indexOf(a.crash) - crashes.indexOf(b.crash));
  for (const { crash, died, first, next, state } of played) {
    const { atWrite, when } = crash;
    expect(state, `${scenario.name}, died ${when} write ${atWrite}`).toEqual(whole.state);
    if (atWrite === 1 && when === "before") expect(died).toBe(true);
    if (died)
      rows.push(`  died ${when.padEnd(6)} ${atWrite}. ${first[atWrite - 1]}: finished with ${next.length} writes`);
  }
  process.stdout.write(`${rows.join("\n")}\n`);
});

test("a repair of the spec meets no conflict with writes of the status, and undoes nobody's spec", async () => {
  const space = new Space();
  await space.apply();
  let before = async (): Promise<unknown> => undefined;
  const through: Transport = {
    request: async (request) => {
      const isRepair = ["PUT", "PATCH"].includes(request.method) && request.path.startsWith(space.protector);
      if (isRepair) await before();
      return await transport.request(request);
    },
    stream: (request) => transport.stream(request),
    close: () => {},
  };
  const { events, stop } = space.start(through);
  // A conflict over the Deployment, which has writers of its own, is none of the protector's.
  const failures = (): unknown[] =>
    events.filter((event) => event.kind === "failed" && !String(event.error).includes("/deployments/"));
  await eventually(cluster, space.protector, (object) => field(object, "spec", "minAvailable") !== undefined);
  const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
  let written = 0;
  before = () =>
    space.patch(`${space.protector}/status`, {
      status: { cells: [], summary: { ...summary, totalReplicas: ++written } },
    });
  for (const replicas of [20, 40, 80]) {
    await space.patch(space.deployment, { spec: { replicas } });
    await eventually(
      cluster,
      space.protector,
      (object) => Number(field(object, "spec", "minAvailable")) > replicas / 2,
    );
  }
  expect([failures(), written]).toEqual([[], 3]);

  before = async () => {
    before = async () => undefined;
    return await space.patch(space.protector, { spec: { suspend: { enabled: true } } });
  };
  await space.patch(space.deployment, { spec: { replicas: 100 } });
  const found = await eventually(
    cluster,
    space.protector,
    (object) => Number(field(object, "spec", "minAvailable")) > 60,
  );
  expect(field(found, "spec", "suspend", "enabled")).toBe(true);
  expect(failures()).toMatchObject([{ tag: "conflict" }]);
  await stop();
});

test("a protector that a quota denies is told at its source, and created once the quota is gone", async () => {
  const space = new Space();
  const { namespace } = space;
  const hard = { "count/podprotectors.podseidon.kubewharf.io": "0" };
  const quota = `/api/v1/namespaces/${namespace}/resourcequotas/few`;
  await cluster.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
    { apiVersion: "v1", kind: "ResourceQuota", metadata: { name: "few", namespace }, spec: { hard } },
  ]);
  // What the quota controller of a whole cluster writes.
  await space.patch(`${quota}/status`, { status: { hard, used: hard } });
  const probe = {
    ...{ apiVersion: `${GROUP}/v1alpha1`, kind: "PodProtector", metadata: { name: "probe", namespace } },
    spec: { minAvailable: 1, selector: { matchLabels: { app: "probe" } } },
  };
  const collection = space.protector.slice(0, space.protector.lastIndexOf("/"));
  await cluster.waitFor("a quota that denies protectors", async () => {
    return (await cluster.admin.request("POST", `${collection}?dryRun=All`, probe)).status === 403;
  });
  await space.apply();
  const one = space.start(transport);
  const told = (): readonly object[] => one.events.filter(({ kind }) => kind === "refused");
  await cluster.waitFor("an event", async () => told().length > 0);
  expect(told()).toMatchObject([
    {
      source: `deployment/${namespace}/web`,
      about: { kind: "Deployment", name: "web", namespace },
      why: expect.stringContaining("exceeded quota: few"),
    },
  ]);
  await cluster.admin.call("DELETE", quota);
  await cluster.waitFor("the protector", async () => (await minimum(space)) === 8);
  expect(told()).toHaveLength(1);
  await one.stop();
});
