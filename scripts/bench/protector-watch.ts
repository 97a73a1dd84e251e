/** Sees what generators and aggregators write into the protectors of the benchmark's namespace, as it is written. */
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { loadClusterAccess } from "../../shared/kube/credentials/kubeconfig.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { type PodProtector, parsePodProtector } from "../../shared/schema/podprotector.ts";
import { PROTECTORS } from "./cell-fixture.ts";

/**
 * What a benchmark asks of a protector; kept instead of the whole object, whose memory would be measured with the rest.
 */
interface Seen {
  readonly name: string;
  readonly uid: string;
  readonly version: string;
  readonly minAvailable: number;
  /** Undefined before the cell's aggregator has counted it. */
  readonly available: number | undefined;
  readonly reserved: number;
}

export class ProtectorWatch implements AsyncDisposable {
  readonly #reflector: Reflector<Seen>;
  readonly #transport: Transport;
  readonly #waiting = new Set<() => void>();
  #changes = 0;

  private constructor(transport: Transport, cell: string) {
    this.#transport = transport;
    this.#reflector = new Reflector({
      name: "protectors",
      transport,
      ports: systemPorts,
      path: PROTECTORS,
      parse: (raw) => seen(parsePodProtector(raw), cell),
      keyOf: ({ name }) => name,
      uidOf: ({ uid }) => uid,
      versionOf: ({ version }) => version,
    });
    this.#reflector.subscribe({
      changed: () => {
        this.#changes++;
        for (const look of this.#waiting) look();
      },
    });
  }

  static async start(kubeconfig: string, cell = ""): Promise<ProtectorWatch> {
    const access = await loadClusterAccess(kubeconfig);
    const transport = createHttpsTransport(access, { ports: systemPorts, userAgent: "podseidon-bench" });
    const watch = new ProtectorWatch(transport, cell);
    watch.#reflector.start();
    await watch.#reflector.whenSynced();
    return watch;
  }

  /** How many changes of any kind were seen. */
  get changes(): number {
    return this.#changes;
  }

  get size(): number {
    return this.#reflector.size;
  }

  minimum(name: string): number | undefined {
    return this.#reflector.get(name)?.minAvailable;
  }

  /** Available pods in the cell's entry; undefined without an entry. */
  available(name: string): number | undefined {
    return this.#reflector.get(name)?.available;
  }

  /** Reservations in the cell's entry. */
  reserved(name: string): number {
    return this.#reflector.get(name)?.reserved ?? 0;
  }

  /** Resolves with true when `isMet` holds, which is asked after each change; with false after `limitMs`. */
  async until(isMet: () => boolean, limitMs: number): Promise<boolean> {
    if (isMet()) return true;
    return await new Promise((resolve) => {
      const finish = (met: boolean): void => {
        clearTimeout(timer);
        this.#waiting.delete(look);
        resolve(met);
      };
      const look = (): void => {
        if (isMet()) finish(true);
      };
      const timer = setTimeout(() => finish(false), limitMs);
      this.#waiting.add(look);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#reflector.stop();
    this.#transport.close();
  }
}

function seen({ metadata, spec, status }: PodProtector, cell: string): Seen {
  const entry = status?.cells.find(({ cellID }) => cellID === cell);
  return {
    name: metadata.name,
    uid: metadata.uid,
    version: metadata.resourceVersion,
    minAvailable: spec.minAvailable,
    available: entry?.aggregation?.availableReplicas,
    reserved: entry?.admissionHistory?.buckets?.length ?? 0,
  };
}
