/** Sees what a cell's aggregator publishes, as it is published. */
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { loadClusterAccess } from "../../shared/kube/credentials/kubeconfig.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { parsePodProtector } from "../../shared/schema/podprotector.ts";
import { PROTECTORS } from "./cell-fixture.ts";

interface Waiter {
  readonly isMet: () => boolean;
  readonly resolve: () => void;
}

/** Follows every protector of the benchmark's namespace. */
export class ProtectorWatch implements AsyncDisposable {
  readonly #source: Reflector<PodProtector>;
  readonly #transport: Transport;
  readonly #cell: string;
  readonly #available = new Map<string, number>();
  readonly #reserved = new Map<string, number>();
  readonly #waiters = new Set<Waiter>();
  #changes = 0;

  private constructor(transport: Transport, cell: string) {
    this.#transport = transport;
    this.#cell = cell;
    this.#source = new Reflector({
      name: "protectors",
      transport,
      ports: systemPorts,
      path: PROTECTORS,
      parse: parsePodProtector,
      keyOf: ({ metadata }) => metadata.name,
      uidOf: ({ metadata }) => metadata.uid,
      versionOf: ({ metadata }) => metadata.resourceVersion,
    });
    this.#source.subscribe({
      changed: (_, after) => {
        if (after !== undefined) this.#changed(after);
      },
    });
  }

  static async start(kubeconfig: string, cell: string): Promise<ProtectorWatch> {
    const access = await loadClusterAccess(kubeconfig);
    const transport = createHttpsTransport(access, { ports: systemPorts, userAgent: "podseidon-bench" });
    const watch = new ProtectorWatch(transport, cell);
    watch.#source.start();
    await watch.#source.whenSynced();
    return watch;
  }

  /** Changes seen so far, of whatever kind. */
  get changes(): number {
    return this.#changes;
  }

  /** What the cell's entry says; undefined when there is none. */
  available(name: string): number | undefined {
    return this.#available.get(name);
  }

  /** Reservations that the cell's entry still holds. */
  reserved(name: string): number {
    return this.#reserved.get(name) ?? 0;
  }

  /** Resolves when `isMet` holds, asked after each change; false when that takes longer than `limitMs`. */
  async until(isMet: () => boolean, limitMs: number): Promise<boolean> {
    if (isMet()) return true;
    return await new Promise((resolve) => {
      const finish = (met: boolean): void => {
        clearTimeout(timer);
        this.#waiters.delete(waiter);
        resolve(met);
      };
      const waiter: Waiter = { isMet, resolve: () => finish(true) };
      const timer = setTimeout(() => finish(false), limitMs);
      this.#waiters.add(waiter);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#source.stop();
    this.#transport.close();
  }

  #changed({ metadata, status }: PodProtector): void {
    this.#changes++;
    const entry = status?.cells.find(({ cellID }) => cellID === this.#cell);
    const available = entry?.aggregation?.availableReplicas;
    if (available === undefined) this.#available.delete(metadata.name);
    else this.#available.set(metadata.name, available);
    this.#reserved.set(metadata.name, entry?.admissionHistory?.buckets?.length ?? 0);
    for (const waiter of this.#waiters) if (waiter.isMet()) waiter.resolve();
  }
}
