/**
 * The true and the published counts: the available pods at each version of the cell, as an undisturbed list-watch saw
 * them, and each count in the protector's status with its position (S3, docs/design.md#invariants).
 */
import { conditionStatus, field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { PODPROTECTORS_PATH } from "../../../shared/kube/client/api-path.ts";
import { createHttpsTransport } from "../../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { loadClusterAccess } from "../../../shared/kube/credentials/kubeconfig.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorOptions } from "../../../shared/kube/informer/reflector-options.ts";
import { isRawObject } from "../../../shared/kube/stream/raw-object.ts";
import { systemPorts as ports } from "../../../shared/runtime/system-ports.ts";

interface Seen {
  readonly name: string;
  readonly uid: string;
  readonly version: string;
  readonly raw: unknown;
}

interface State {
  readonly position: bigint;
  readonly available: number;
  /** The watch may have missed states between the previous one and this one. */
  readonly afterGap: boolean;
}

interface Publication {
  readonly position: bigint;
  readonly available: number;
  readonly epoch: number;
}

function parse(raw: unknown): Seen {
  if (!isRawObject(raw)) throw new Error("no object");
  const { name = "", uid = "", resourceVersion = "" } = raw.metadata;
  return { name, uid, version: resourceVersion, raw };
}

function isAvailable({ raw }: Seen): boolean {
  return conditionStatus(raw, "Ready") === "True" && field(raw, "metadata", "deletionTimestamp") === undefined;
}

export class CountTruth implements AsyncDisposable {
  readonly #transports: Transport[] = [];
  readonly #watches: Reflector<Seen>[] = [];
  #states: State[] = [];
  #publications: Publication[] = [];
  /** Counts of earlier epochs belong to a lost history. */
  #sinceEpoch = 0;

  /** Watches the pods of `cell` that `labelSelector` selects, and the cell's entry in the protector. */
  static async start(
    core: Cluster,
    cell: Cluster,
    labelSelector: string,
    protector: string,
    cellId: string,
  ): Promise<CountTruth> {
    const truth = new CountTruth();
    let gap = true;
    const pods = await truth.#watch(cell, "/api/v1/pods", {
      query: { labelSelector },
      onEvent: (event) => {
        if (event.kind === "versionWentBack") truth.#states = [];
      },
    });
    pods.subscribe({
      // Called before the list's position: the states between the last event and the list were not seen.
      relisted: () => {
        gap = true;
      },
      advanced: (position) => {
        const available = [...pods.values()].filter(isAvailable).length;
        truth.#states.push({ position: BigInt(position), available, afterGap: gap });
        gap = false;
      },
    });
    const protectors = await truth.#watch(core, PODPROTECTORS_PATH, {});
    protectors.subscribe({
      changed: (_before, after) => {
        if (after?.name === protector) truth.#published(after, cellId);
      },
    });
    for (const watch of truth.#watches) watch.start();
    await Promise.all(truth.#watches.map((watch) => watch.whenSynced()));
    return truth;
  }

  /** The newest count of the present epoch. */
  get latest(): Publication | undefined {
    return this.#publications.findLast(({ epoch }) => epoch >= this.#sinceEpoch);
  }

  get position(): bigint | undefined {
    return this.#states.at(-1)?.position;
  }

  /** For messages: the newest state that the watch saw. */
  get lastState(): string {
    const state = this.#states.at(-1);
    return state === undefined ? "nothing" : `${state.available} available at ${state.position}`;
  }

  /** The cell is about to be restored, so the present states say nothing about later versions. */
  newEpoch(): void {
    this.#sinceEpoch = (this.#publications.at(-1)?.epoch ?? 0) + 1;
  }

  /**
   * The cell was restored: the states seen so far belong to a lost history, also where the new one has passed their
   * versions.
   */
  lookAgain(): void {
    this.#states = [];
    for (const watch of this.#watches) watch.distrustHistory();
  }

  /**
   * Compares every count since the last call, and forgets all but the newest. `checked` is the number whose true state
   * is known.
   */
  judge(): { readonly checked: number; readonly wrong: readonly string[] } {
    let checked = 0;
    const wrong: string[] = [];
    const publications = this.#publications;
    this.#publications = publications.slice(-1);
    for (const { position, available, epoch } of publications) {
      const index = this.#states.findLastIndex((state) => state.position <= position);
      const state = this.#states[index];
      const next = this.#states[index + 1];
      if (state === undefined || epoch < this.#sinceEpoch) continue;
      if (state.position !== position && (next === undefined || next.afterGap)) continue;
      checked++;
      if (state.available !== available)
        wrong.push(`${available} at ${position} of epoch ${epoch}, where ${state.available} were`);
    }
    return { checked, wrong };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#watches.map((watch) => watch.stop()));
    for (const transport of this.#transports) transport.close();
  }

  #published(protector: Seen, cellId: string): void {
    const cells = field(protector.raw, "status", "cells");
    const entry = (Array.isArray(cells) ? cells : []).find((cell) => field(cell, "cellID") === cellId);
    const position = field(entry, "aggregation", "resourceVersion");
    if (typeof position !== "string" || !/^[0-9]+$/.test(position)) return;
    const epoch = Number(field(entry, "aggregation", "epoch") ?? 0);
    const available = Number(field(entry, "aggregation", "availableReplicas") ?? 0);
    this.#publications.push({ position: BigInt(position), available, epoch });
  }

  async #watch(cluster: Cluster, path: string, options: Partial<ReflectorOptions<Seen>>): Promise<Reflector<Seen>> {
    const transport = createHttpsTransport(await loadClusterAccess(cluster.kubeconfig), { ports, userAgent: "truth" });
    this.#transports.push(transport);
    const watch = new Reflector<Seen>({
      name: path,
      transport,
      ports,
      path,
      parse,
      keyOf: ({ raw, name }) => `${field(raw, "metadata", "namespace")}/${name}`,
      uidOf: ({ uid }) => uid,
      versionOf: ({ version }) => version,
      confirmEveryMs: 3000,
      ...options,
    });
    this.#watches.push(watch);
    return watch;
  }
}
