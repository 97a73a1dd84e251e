/** The quota that the protectors of a namespace had at each time, from a watch of all their versions. */

import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import { systemPorts as ports } from "../../../shared/runtime/system-ports.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";

interface Version {
  /** When the watch showed this version, Unix milliseconds. The version was stored before that. */
  readonly seenMs: number;
  readonly allowed: number;
}

export class QuotaHistory {
  readonly #watch: Reflector<PodProtector>;
  readonly #versions = new Map<string, Version[]>();

  private constructor(transport: Transport, namespace: string) {
    this.#watch = new Reflector<PodProtector>({
      name: "podprotectors",
      transport,
      ports,
      path: `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${namespace}/podprotectors`,
      parse: parsePodProtector,
      keyOf: ({ metadata }) => metadata.name,
      uidOf: ({ metadata }) => metadata.uid,
      versionOf: ({ metadata }) => metadata.resourceVersion,
    });
    this.#watch.subscribe({ changed: (_, after) => this.#seen(after) });
  }

  static async watch(transport: Transport, namespace: string): Promise<QuotaHistory> {
    const history = new QuotaHistory(transport, namespace);
    history.#watch.start();
    await history.#watch.whenSynced();
    return history;
  }

  async stop(): Promise<void> {
    await this.#watch.stop();
  }

  /**
   * Whether the protector had quota from before `fromMs` until after `toMs`: no version that may have been stored in
   * that time was without quota. The watch shows a version late, never early.
   */
  hadQuotaThroughout(name: string, fromMs: number, toMs: number): boolean {
    const versions = this.#versions.get(name) ?? [];
    const first = versions.findLastIndex(({ seenMs }) => seenMs < fromMs);
    if (first < 0) return false;
    const after = versions.findIndex(({ seenMs }) => seenMs > toMs);
    // The next version may have been stored before the watch showed it.
    const end = after < 0 ? versions.length : after + 1;
    return versions.slice(first, end).every(({ allowed }) => allowed > 0);
  }

  #seen(protector: PodProtector | undefined): void {
    if (protector === undefined) return;
    const { metadata, spec, status } = protector;
    const allowed = (status?.summary.estimatedAvailableReplicas ?? 0) - spec.minAvailable;
    const versions = this.#versions.get(metadata.name) ?? [];
    versions.push({ seenMs: ports.clock.nowMs(), allowed });
    this.#versions.set(metadata.name, versions);
  }
}
