/** A store of one PodProtector with compare-and-swap, latency and faults, in virtual time. */

import { ProtectorVersion } from "../../../shared/decide/state/protector-version.ts";
import type { ApiResult, Unavailable } from "../../../shared/kube/client/api-result.ts";
import { type Ports, sleep } from "../../../shared/runtime/clock.ts";
import type { PodProtector, PodProtectorStatus } from "../../../shared/schema/podprotector.ts";
import type { ProtectorClient } from "../../../webhook/reserve/protector-client.ts";

/** What happens to the next write. */
export type WriteFault =
  /** Made, but the response is lost. */
  | "lostResponse"
  /** Lost on the way to the server. */
  | "lostRequest"
  /** Arrives after this many milliseconds, when the caller has given up. */
  | { readonly lateByMs: number }
  /** Fails before it is sent. */
  | "unsent"
  /** A 4xx other than a conflict. */
  | "rejected"
  /** Not made, and answered with the object as it is. */
  | "ignored"
  /** Made without its reservations, by a policy that takes them out. */
  | "emptied";

export interface StoreOptions {
  readonly ports: Ports;
  readonly object: PodProtector;
  /** One way of a call. Default 1 ms. */
  readonly latencyMs?: number;
  /** Time of a write at the server. Default 2 ms. */
  readonly writeMs?: number;
}

export class ProtectorStore {
  readonly #options: StoreOptions;
  readonly #viewers: ((object: PodProtector) => void)[] = [];
  #object: PodProtector | undefined;
  #busyUntilMs = 0;
  writes = 0;
  conflicts = 0;
  reads = 0;
  readonly faults: WriteFault[] = [];
  /** Added to the time of each write. */
  slowMs = 0;
  /** Reads fail while this is set. */
  isDown = false;
  /** Writes fail while this is set, and reads don't, such as by an admission webhook that is down. */
  writesFail: Unavailable | undefined;
  /** Writes that {@link writesFail} has failed. */
  failedWrites = 0;

  constructor(options: StoreOptions) {
    this.#options = options;
    this.#object = options.object;
  }

  get object(): PodProtector {
    if (this.#object === undefined) throw new Error("the protector is gone");
    return this.#object;
  }

  /** Another writer replaces the status; `version` overrides the next one. */
  put(change: (object: PodProtector) => PodProtector, version = this.#nextVersion()): void {
    const changed = change(this.object);
    this.#store({ ...changed, metadata: { ...changed.metadata, resourceVersion: version } });
  }

  remove(): void {
    this.#object = undefined;
  }

  /** A client of the store. */
  client(ports: Ports = this.#options.ports): ProtectorClient {
    const { latencyMs = 1 } = this.#options;
    const gone = async <T>(result: ApiResult<T>): Promise<ApiResult<T>> => {
      await sleep(ports, latencyMs);
      return result;
    };
    return {
      read: async (_namespace, _name, timeoutMs) => {
        this.reads++;
        await sleep(ports, latencyMs);
        if (this.isDown) return unavailable(ports, timeoutMs, true);
        return gone(this.#object === undefined ? { kind: "gone" } : { kind: "ok", object: this.#object });
      },
      write: async (base, status, timeoutMs) => {
        const fault = this.faults.shift();
        if (fault === "unsent") return unavailable(ports, 0, false);
        await sleep(ports, latencyMs);
        if (this.writesFail !== undefined) {
          this.failedWrites++;
          return this.writesFail;
        }
        if (this.isDown || fault === "lostRequest") return unavailable(ports, timeoutMs, true);
        if (typeof fault === "object") {
          ports.timers.after(fault.lateByMs, () => this.#commit(base, status));
          return unavailable(ports, timeoutMs, true);
        }
        await this.#turn(ports);
        await sleep(ports, this.slowMs);
        if (fault === "rejected") return gone({ kind: "rejected", status: 403, message: "no" });
        if (fault === "ignored") return gone({ kind: "ok", object: this.object });
        const cells = status.cells.map((cell) => ({ ...cell, admissionHistory: { buckets: [] } }));
        const result = this.#commit(base, fault === "emptied" ? { ...status, cells } : status);
        return fault === "lostResponse" ? unavailable(ports, timeoutMs, true) : gone(result);
      },
    };
  }

  /** A watch cache that lags by `delayMs`; `changed` is called at each event. */
  watch(ports: Ports, delayMs: number, changed: () => void): () => ProtectorVersion | undefined {
    let newest = this.#object === undefined ? undefined : new ProtectorVersion(this.#object, ports.clock.monotonicMs());
    this.#viewers.push((object) => {
      ports.timers.after(delayMs, () => {
        newest = new ProtectorVersion(object, ports.clock.monotonicMs());
        changed();
      });
    });
    return () => newest;
  }

  /** The server makes one write after the other. */
  async #turn(ports: Ports): Promise<void> {
    const { clock } = this.#options.ports;
    this.#busyUntilMs = Math.max(this.#busyUntilMs, clock.monotonicMs()) + (this.#options.writeMs ?? 2);
    await sleep(ports, this.#busyUntilMs - clock.monotonicMs());
  }

  #commit(base: PodProtector, status: PodProtectorStatus): ApiResult<PodProtector> {
    if (this.#object === undefined) return { kind: "gone" };
    const { uid, resourceVersion } = this.#object.metadata;
    if (uid !== base.metadata.uid || resourceVersion !== base.metadata.resourceVersion) {
      this.conflicts++;
      return { kind: "conflict", message: "the object has been modified" };
    }
    this.writes++;
    // A copy, as over the wire.
    const stored: PodProtectorStatus = structuredClone(status);
    this.#store({
      ...this.#object,
      metadata: { ...this.#object.metadata, resourceVersion: this.#nextVersion() },
      status: stored,
    });
    return { kind: "ok", object: this.object };
  }

  #nextVersion(): string {
    return String(Number(this.object.metadata.resourceVersion) + 1);
  }

  #store(object: PodProtector): void {
    this.#object = object;
    for (const view of this.#viewers) view(object);
  }
}

async function unavailable<T>(ports: Ports, afterMs: number, sent: boolean): Promise<ApiResult<T>> {
  await sleep(ports, afterMs);
  return { kind: "unavailable", error: new Error("no answer"), sent };
}
