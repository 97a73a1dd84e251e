/**
 * Random PodDisruptionBudgets, each over its own workloads of random kinds. Each pod matches one budget: of several
 * budgets, the disruption controller updates only one when a pod changes.
 */

import { field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";
import { Chance } from "../../simulation/scenario/random.ts";
import { PROTECTED } from "../cluster/deployments.ts";

const KINDS = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Workload"] as const;
type Kind = (typeof KINDS)[number];

const PATHS: Readonly<Record<Kind, string>> = {
  Deployment: "/apis/apps/v1/namespaces/NAMESPACE/deployments",
  StatefulSet: "/apis/apps/v1/namespaces/NAMESPACE/statefulsets",
  ReplicaSet: "/apis/apps/v1/namespaces/NAMESPACE/replicasets",
  ReplicationController: "/api/v1/namespaces/NAMESPACE/replicationcontrollers",
  Workload: "/apis/fleet.example.com/v1/namespaces/NAMESPACE/workloads",
};
const MAX_REPLICAS = 6;
/** Objects created or scaled at the same time. */
const PARALLEL = 8;

interface Workload {
  readonly kind: Kind;
  readonly name: string;
  replicas: number;
  /** Number of pods made by hand, for a kind without a controller. */
  pods: number;
}

export interface Group {
  readonly name: string;
  readonly limit: Readonly<Record<string, number | string>>;
  readonly selector: object;
  readonly workloads: readonly Workload[];
  /** Number of pods without a controller. */
  readonly bare: number;
  /** `status.expectedPods` of the disruption controller once it is up to date. */
  expectedPods(): number;
  describe(): string;
}

function leastOf(kind: Kind): number {
  return kind === "Workload" ? 1 : 0;
}

function randomLimit(chance: Chance): Record<string, number | string> {
  const name = chance.chance(0.5) ? "minAvailable" : "maxUnavailable";
  return { [name]: chance.chance(0.4) ? chance.between(0, MAX_REPLICAS * 2) : `${chance.between(0, 100)}%` };
}

function randomSelector(chance: Chance, group: string): object {
  const forms = [
    { matchLabels: { group } },
    { matchExpressions: [{ key: "group", operator: "In", values: [group, "nobody"] }] },
    { matchLabels: { group }, matchExpressions: [{ key: "legacy", operator: "DoesNotExist" }] },
    {
      matchExpressions: [
        { key: "group", operator: "In", values: [group] },
        { key: "app", operator: "Exists" },
      ],
    },
  ];
  return forms[chance.between(0, forms.length - 1)] ?? {};
}

function randomGroup(chance: Chance, index: number): Group {
  const name = `budget-${index}`;
  const limit = randomLimit(chance);
  const workloads = Array.from({ length: chance.between(1, 3) }, (_, number): Workload => {
    const kind = KINDS[chance.between(0, KINDS.length - 1)] ?? "Deployment";
    return { kind, name: `${name}-${number}`, replicas: chance.between(leastOf(kind), MAX_REPLICAS), pods: 0 };
  });
  const bare = chance.chance(0.2) ? 1 : 0;
  const sum = (): number => workloads.reduce((all, { replicas }) => all + replicas, 0);
  const countsPods = typeof limit.minAvailable === "number";
  return {
    name,
    limit,
    selector: randomSelector(chance, name),
    workloads,
    bare,
    expectedPods: () => sum() + (countsPods ? bare : 0),
    describe: () =>
      `${name} ${JSON.stringify(limit)} over ` +
      `${workloads.map(({ kind, replicas }) => `${kind} ${replicas}`).join(", ")}, ${bare} bare`,
  };
}

export class Groups {
  readonly namespace: string;
  readonly all: readonly Group[];
  readonly #chance: Chance;

  constructor(namespace: string, count: number, seed: number) {
    this.namespace = namespace;
    this.#chance = new Chance(seed);
    this.all = Array.from({ length: count }, (_, index) => randomGroup(this.#chance, index));
  }

  get workloads(): number {
    return this.all.reduce((sum, { workloads }) => sum + workloads.length, 0);
  }

  async create(cluster: Cluster): Promise<void> {
    await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: this.namespace } }]);
    await cluster.waitFor("the ServiceAccount of the namespace", async () => {
      const path = `/api/v1/namespaces/${this.namespace}/serviceaccounts/default`;
      return (await cluster.admin.request("GET", path)).status === 200;
    });
    await eachAtMost(PARALLEL, this.all, async (group) => {
      const budget = {
        apiVersion: "policy/v1",
        kind: "PodDisruptionBudget",
        metadata: { name: group.name, labels: PROTECTED },
        spec: { selector: group.selector, ...group.limit },
      };
      const path = `/apis/policy/v1/namespaces/${this.namespace}/poddisruptionbudgets`;
      await cluster.admin.call("POST", path, budget);
      for (const workload of group.workloads) await this.#createWorkload(cluster, group, workload);
      for (let index = 0; index < group.bare; index += 1) {
        await this.#createPod(cluster, group, `${group.name}-bare-${index}`, []);
      }
    });
  }

  /**
   * Scales every workload, all of a group up or all down. So no state on the way has the final sum, and whoever shows
   * that sum has seen every workload: the generator reads a custom resource some seconds late.
   */
  async scale(cluster: Cluster): Promise<void> {
    for (const { workloads } of this.all) {
      const canShrink = workloads.every(({ kind, replicas }) => replicas > leastOf(kind));
      const shrinks = canShrink && this.#chance.chance(0.5);
      for (const workload of workloads) {
        const { kind, replicas } = workload;
        workload.replicas = shrinks
          ? this.#chance.between(leastOf(kind), replicas - 1)
          : replicas + this.#chance.between(1, MAX_REPLICAS / 2);
      }
    }
    await eachAtMost(PARALLEL, this.all, async (group) => {
      for (const workload of group.workloads) {
        const path = `${this.#path(workload)}/${workload.name}`;
        const size = workload.kind === "Workload" ? { size: workload.replicas } : { replicas: workload.replicas };
        await cluster.admin.call("PATCH", path, { spec: size });
        if (workload.kind === "Workload") await this.#populate(cluster, group, workload);
      }
    });
  }

  #path({ kind }: Workload): string {
    return PATHS[kind].replace("NAMESPACE", this.namespace);
  }

  async #createWorkload(cluster: Cluster, group: Group, workload: Workload): Promise<void> {
    const { kind, name, replicas } = workload;
    if (kind === "Workload") {
      const object = { apiVersion: "fleet.example.com/v1", kind, metadata: { name }, spec: { size: replicas } };
      await cluster.admin.call("POST", this.#path(workload), object);
      await this.#populate(cluster, group, workload);
      return;
    }
    const labels = { group: group.name, app: name };
    const template = { metadata: { labels }, spec: podSpec() };
    const selector = kind === "ReplicationController" ? { app: name } : { matchLabels: { app: name } };
    const parallel = kind === "StatefulSet" ? { podManagementPolicy: "Parallel", serviceName: name } : {};
    const apiVersion = kind === "ReplicationController" ? "v1" : "apps/v1";
    const spec = { replicas, selector, template, ...parallel };
    await cluster.admin.call("POST", this.#path(workload), { apiVersion, kind, metadata: { name }, spec });
  }

  /** Does what a controller of the custom kind would do: writes the status, and creates or deletes pods. */
  async #populate(cluster: Cluster, group: Group, workload: Workload): Promise<void> {
    const { name, replicas } = workload;
    const path = `${this.#path(workload)}/${name}`;
    const object = await cluster.admin.call("PATCH", `${path}/status`, {
      status: { size: replicas, pods: `app=${name}` },
    });
    const uid = field(object, "metadata", "uid");
    const owner = { apiVersion: "fleet.example.com/v1", kind: "Workload", name, uid, controller: true };
    for (; workload.pods < replicas; workload.pods += 1) {
      await this.#createPod(cluster, group, `${name}-${workload.pods}`, [owner]);
    }
    for (; workload.pods > replicas; workload.pods -= 1) {
      await cluster.admin.call("DELETE", `/api/v1/namespaces/${this.namespace}/pods/${name}-${workload.pods - 1}`);
    }
  }

  async #createPod(cluster: Cluster, group: Group, name: string, ownerReferences: readonly object[]): Promise<void> {
    const metadata = { name, labels: { group: group.name, app: name }, ownerReferences };
    await cluster.admin.call("POST", `/api/v1/namespaces/${this.namespace}/pods`, { metadata, spec: podSpec() });
  }
}

function podSpec(): object {
  return { terminationGracePeriodSeconds: 1, containers: [{ name: "app", image: "app" }] };
}
