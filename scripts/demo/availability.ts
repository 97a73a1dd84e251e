/**
 * Counts available pods from watches in all worker clusters, with every version of every pod. The judge does not read
 * protectors, and has its own rule for when a pod is available.
 */
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import { loadClusterAccess } from "../../shared/kube/credentials/kubeconfig.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import { systemPorts as ports } from "../../shared/runtime/system-ports.ts";
import { type Pod, parsePod } from "../../shared/schema/pod.ts";
import { field, items } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";

/** Ready, running, and not terminating. */
export function isAvailable(pod: Pod): boolean {
  const ready = pod.conditions.some(({ type, status }) => type === "Ready" && status);
  return ready && pod.phase === "Running" && !pod.terminating;
}

export interface AvailabilityCounts {
  /** By cluster, in the given order. */
  readonly available: readonly number[];
  readonly total: number;
  /** Pods in any state that are not terminating. */
  readonly pods: number;
  readonly terminating: number;
}

export class AvailabilityJudge implements AsyncDisposable {
  readonly #watches: readonly Reflector<Pod>[];
  readonly #sources: readonly PodSource[];
  #pending = false;
  /** The lowest total since the last call of `from`. */
  #lowest = Number.POSITIVE_INFINITY;
  /** The pods of each cluster at that moment. */
  #lowestPods: readonly (readonly Pod[])[] = [];
  #versions = 0;
  #listener: ((counts: AvailabilityCounts) => void) | undefined;

  private constructor(watches: readonly Reflector<Pod>[], sources: readonly PodSource[]) {
    this.#watches = watches;
    this.#sources = sources;
    for (const watch of watches) watch.subscribe({ changed: () => this.#changed() });
  }

  /** Resolves when every cluster's pods of the namespace (those with these labels) are known. */
  static async watch(clusters: readonly Cluster[], namespace: string, labels = ""): Promise<AvailabilityJudge> {
    const sources = clusters.map((cluster) => ({ cluster, namespace, labels }));
    const watches = await Promise.all(sources.map(podWatch));
    const availability = new AvailabilityJudge(watches, sources);
    for (const watch of watches) watch.start();
    await Promise.all(watches.map((watch) => watch.whenSynced()));
    return availability;
  }

  /** The number of versions of pods so far. */
  get versions(): number {
    return this.#versions;
  }

  /** The lowest total since the last call of `from`. */
  get lowest(): number {
    return Math.min(this.#lowest, this.counts().total);
  }

  /** The pods that were not available at the lowest total, by cluster, and why: explains a broken promise. */
  get lowestBecause(): string {
    return this.#lowestPods
      .map((pods, index) => {
        const away = pods.filter((pod) => !isAvailable(pod)).map(describeUnavailable);
        const name = this.#sources[index]?.cluster.name ?? "";
        return `${name}: ${pods.length - away.length} available${away.length > 0 ? `, not ${away.join(", ")}` : ""}`;
      })
      .join("; ");
  }

  /** Calls `listener` with the counts now and whenever a pod changed. */
  listen(listener: (counts: AvailabilityCounts) => void): void {
    this.#listener = listener;
    listener(this.counts());
  }

  /** Resolves when the watches have delivered every pod in its present version: a watch can lag. */
  async catchUp(): Promise<void> {
    await Promise.all(
      this.#watches.map((watch, index) => {
        const source = this.#sources[index];
        return source?.cluster.waitFor("the judge to see every pod", async () => {
          const { path, query } = podsOf(source);
          const list = await source.cluster.admin.get(`${path}?${new URLSearchParams(query)}`);
          const listed = items(list).map((pod) => field(pod, "metadata", "resourceVersion"));
          const seen = [...watch.values()].map(({ resourceVersion }) => resourceVersion);
          return listed.length === seen.length && new Set([...listed, ...seen]).size === seen.length;
        });
      }),
    );
  }

  /** Begins a new period for `lowest`. */
  from(): void {
    this.#lowest = Number.POSITIVE_INFINITY;
    this.#note(this.counts().total);
  }

  counts(): AvailabilityCounts {
    const pods = this.#watches.map((watch) => [...watch.values()]);
    const available = pods.map((some) => some.filter(isAvailable).length);
    return {
      available,
      total: available.reduce((sum, count) => sum + count, 0),
      pods: pods.flat().filter(({ terminating }) => !terminating).length,
      terminating: pods.flat().filter(({ terminating }) => terminating).length,
    };
  }

  async stop(): Promise<void> {
    await Promise.all(this.#watches.map((watch) => watch.stop()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /**
   * The events of one cluster arrive in order, so each counts. The streams of two clusters have no common order, so all
   * events that have arrived are applied before the sum is read. Otherwise, a pod that one cluster gained before the
   * other lost one could seem to come later.
   */
  #changed(): void {
    this.#versions += 1;
    if (this.#watches.length === 1) this.#count();
    if (this.#pending || this.#watches.length === 1) return;
    this.#pending = true;
    setImmediate(() => {
      this.#pending = false;
      this.#count();
    });
  }

  #count(): void {
    const counts = this.counts();
    this.#note(counts.total);
    this.#listener?.(counts);
  }

  #note(total: number): void {
    if (total >= this.#lowest) return;
    this.#lowest = total;
    this.#lowestPods = this.#watches.map((watch) => [...watch.values()]);
  }
}

function describeUnavailable({ name, terminating, phase }: Pod): string {
  return `${name} (${terminating ? "terminating" : phase === "Running" ? "not Ready" : phase})`;
}

interface PodSource {
  readonly cluster: Cluster;
  readonly namespace: string;
  readonly labels: string;
}

function podsOf({ namespace, labels }: PodSource): { readonly path: string; readonly query: Record<string, string> } {
  return { path: `/api/v1/namespaces/${namespace}/pods`, query: labels === "" ? {} : { labelSelector: labels } };
}

async function podWatch(source: PodSource): Promise<Reflector<Pod>> {
  const { cluster } = source;
  const transport = createHttpsTransport(await loadClusterAccess(cluster.kubeconfig), { ports, userAgent: "demo" });
  return new Reflector<Pod>({
    name: `pods of ${cluster.name}`,
    transport,
    ports,
    ...podsOf(source),
    parse: parsePod,
    uidOf: ({ uid }) => uid,
    versionOf: ({ resourceVersion }) => resourceVersion,
  });
}
