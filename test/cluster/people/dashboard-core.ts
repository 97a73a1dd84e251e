/** A core with protectors whose statuses are written by hand, and the built plugin that shows them. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { root } from "../../../scripts/root.ts";
import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { startCluster } from "../../support/cluster/aggregator-cluster.ts";
import { makeCell, makeSpec } from "../../support/decide/fixtures.ts";

const NAMESPACES = ["shop", "bank", "media", "platform"];
const PLUGIN = join(root, "dist/kubectl-podseidon.mjs");
const AT_ONCE = 16;

export interface Counts {
  readonly required: number;
  readonly available: number;
  readonly total?: number;
  /** Pods whose eviction is under way. */
  readonly evicted?: readonly string[];
}

export async function startCore(): Promise<Cluster> {
  const cluster = await startCluster({ name: "core" });
  await cluster.apply(NAMESPACES.map((name) => ({ apiVersion: "v1", kind: "Namespace", metadata: { name } })));
  return cluster;
}

const pathOf = (namespace: string, name = ""): string =>
  `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${namespace}/podprotectors${name === "" ? "" : `/${name}`}`;

/** Creates a protector, or writes its counts again. */
export async function writeCounts(core: Cluster, namespace: string, name: string, counts: Counts): Promise<void> {
  const { required, available, total = available + 1, evicted = [] } = counts;
  const spec = makeSpec({ minAvailable: required });
  const [apiVersion, kind] = ["podseidon.kubewharf.io/v1alpha1", "PodProtector"];
  const created = { apiVersion, kind, metadata: { namespace, name }, spec };
  const { status } = await core.admin.request("POST", pathOf(namespace), created);
  if (status === 409) await core.admin.call("PATCH", pathOf(namespace, name), { spec });
  const now = formatMs(Date.now());
  const buckets = evicted.map((podName) => ({
    ...{ startTime: now, podName, podUID: `uid-${podName}`, operation: "EVICT", counter: 1, nonce: podName },
    ...{ paid: true, podResourceVersion: "1" },
  }));
  const east = Math.ceil(available / 2);
  const cellOf = (id: string, count: number, all: number, held: typeof buckets) =>
    makeCell(id, count, held, { totalReplicas: all, heartbeatTime: now, lastEventTime: now }, spec);
  const cells = [
    cellOf("east", east, total - (available - east), buckets),
    cellOf("west", available - east, available - east, []),
  ];
  const summary = {
    totalReplicas: total,
    aggregatedAvailableReplicas: available,
    estimatedAvailableReplicas: available,
  };
  await core.admin.call("PATCH", `${pathOf(namespace, name)}/status`, {
    status: { cells, summary: { ...summary, maxLatencyMillis: 0 } },
  });
}

/** Each protector of `count`: one in twenty misses a pod, one in five has none to spare. */
function countsOf(index: number): Counts {
  const required = 2 + (index % 7);
  const spare = index % 20 === 3 ? -1 : index % 5 === 1 ? 0 : 1 + (index % 3);
  return { required, available: required + spare };
}

export const nameOf = (index: number): string => `deployment-app-${String(index).padStart(4, "0")}`;
export const namespaceOf = (index: number): string => NAMESPACES[index % NAMESPACES.length] ?? "";

/** `more` pods more of each than {@link countsOf} says. */
export async function writeMany(core: Cluster, count: number, more = 0): Promise<void> {
  await eachAtMost(AT_ONCE, [...Array(count).keys()], async (index) => {
    const { required, available } = countsOf(index);
    await writeCounts(core, namespaceOf(index), nameOf(index), { required, available: available + more });
  });
}

/** An Event as the webhook writes it. */
export async function refuse(core: Cluster, namespace: string, name: string, message: string): Promise<void> {
  const now = new Date().toISOString().replace(/\.\d+Z$/, "Z");
  await core.admin.call("POST", `/api/v1/namespaces/${namespace}/events`, {
    ...{ apiVersion: "v1", kind: "Event", metadata: { generateName: `${name}.`, namespace } },
    involvedObject: { apiVersion: "podseidon.kubewharf.io/v1alpha1", kind: "PodProtector", namespace, name },
    ...{ type: "Warning", reason: "DisruptionRefused", message, count: 1, firstTimestamp: now, lastTimestamp: now },
    ...{ source: { component: "podseidon-webhook" }, reportingComponent: "podseidon-webhook" },
  });
}

/** `kubectl podseidon dashboard`, as it ships. */
export class RunningDashboard {
  readonly url: string;
  readonly process: ChildProcess;

  private constructor(url: string, process: ChildProcess) {
    this.url = url;
    this.process = process;
  }

  static async start(kubeconfig: string, ...args: readonly string[]): Promise<RunningDashboard> {
    const child = spawn(process.execPath, [PLUGIN, "dashboard", "--kubeconfig", kubeconfig, ...args], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [url] = await once(createInterface({ input: child.stdout }), "line");
    return new RunningDashboard(String(url), child);
  }

  /** As Ctrl-C does. Resolves with the signal that ended it. */
  async stop(): Promise<unknown> {
    const ended = once(this.process, "exit");
    this.process.kill("SIGINT");
    const [, signal] = await ended;
    return signal;
  }
}
