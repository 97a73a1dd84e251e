/**
 * Counts the available pods of each application from a watch of every version of every pod. An independent check: it
 * knows nothing of protectors.
 */
import { isAvailable } from "../../../scripts/demo/availability.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import { systemPorts as ports } from "../../../shared/runtime/system-ports.ts";
import { type Pod, parsePod } from "../../../shared/schema/pod.ts";

export class AvailabilityPerApp {
  readonly #watch: Reflector<Pod>;
  readonly #available = new Map<string, Set<string>>();
  readonly #lowest = new Map<string, number>();
  #versions = 0;

  constructor(transport: Transport, namespace: string) {
    this.#watch = new Reflector<Pod>({
      name: "pods",
      transport,
      ports,
      path: `/api/v1/namespaces/${namespace}/pods`,
      parse: parsePod,
      keyOf: ({ name }) => name,
      uidOf: ({ uid }) => uid,
      versionOf: ({ resourceVersion }) => resourceVersion,
    });
    this.#watch.subscribe({ changed: (before, after) => this.#changed(before, after) });
  }

  async start(): Promise<void> {
    this.#watch.start();
    await this.#watch.whenSynced();
  }

  async stop(): Promise<void> {
    await this.#watch.stop();
  }

  get versions(): number {
    return this.#versions;
  }

  available(app: string): number {
    return this.#available.get(app)?.size ?? 0;
  }

  /** Begins a new period for {@link lowest}. */
  from(): void {
    this.#lowest.clear();
  }

  /** The fewest available pods of this period. */
  lowest(app: string): number {
    return Math.min(this.#lowest.get(app) ?? Number.POSITIVE_INFINITY, this.available(app));
  }

  /** Names of all pods that are not terminating. */
  pods(): string[] {
    return [...this.#watch.values()].filter(({ terminating }) => !terminating).map(({ name }) => name);
  }

  #changed(before: Pod | undefined, after: Pod | undefined): void {
    const pod = after ?? before;
    const app = pod?.labels.app;
    if (pod === undefined || app === undefined) return;
    this.#versions += 1;
    const uids = this.#available.get(app) ?? new Set();
    if (after !== undefined && isAvailable(after)) uids.add(pod.uid);
    else uids.delete(pod.uid);
    this.#available.set(app, uids);
    this.#lowest.set(app, Math.min(this.#lowest.get(app) ?? Number.POSITIVE_INFINITY, uids.size));
  }
}
