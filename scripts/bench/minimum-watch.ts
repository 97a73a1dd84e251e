/** Sees what a generator requires, as it is written: the `minAvailable` of each protector of one namespace. */
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { loadClusterAccess } from "../../shared/kube/credentials/kubeconfig.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { parsePodProtector } from "../../shared/schema/podprotector.ts";

interface Minimum {
  readonly name: string;
  readonly uid: string;
  readonly version: string;
  readonly minAvailable: number;
}

export class MinimumWatch implements AsyncDisposable {
  readonly #source: Reflector<Minimum>;
  readonly #transport: Transport;
  #changed: () => void = () => {};

  private constructor(transport: Transport, path: string) {
    this.#transport = transport;
    this.#source = new Reflector({
      name: "protectors",
      transport,
      ports: systemPorts,
      path,
      parse: (raw) => {
        const { metadata, spec } = parsePodProtector(raw);
        const { name, uid, resourceVersion } = metadata;
        return { name, uid, version: resourceVersion, minAvailable: spec.minAvailable };
      },
      keyOf: ({ name }) => name,
      uidOf: ({ uid }) => uid,
      versionOf: ({ version }) => version,
    });
    this.#source.subscribe({ changed: () => this.#changed() });
  }

  static async start(kubeconfig: string, path: string): Promise<MinimumWatch> {
    const access = await loadClusterAccess(kubeconfig);
    const transport = createHttpsTransport(access, { ports: systemPorts, userAgent: "podseidon-bench" });
    const watch = new MinimumWatch(transport, path);
    watch.#source.start();
    await watch.#source.whenSynced();
    return watch;
  }

  get size(): number {
    return this.#source.size;
  }

  minimum(name: string): number | undefined {
    return this.#source.get(name)?.minAvailable;
  }

  /** Resolves when `isMet` holds, asked after each change; false when that takes longer than `limitMs`. One at a time. */
  async until(isMet: () => boolean, limitMs: number): Promise<boolean> {
    if (isMet()) return true;
    return await new Promise((resolve) => {
      const finish = (met: boolean): void => {
        clearTimeout(timer);
        this.#changed = () => {};
        resolve(met);
      };
      const timer = setTimeout(() => finish(false), limitMs);
      this.#changed = () => {
        if (isMet()) finish(true);
      };
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#source.stop();
    this.#transport.close();
  }
}
