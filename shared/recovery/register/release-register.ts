import type { Transport } from "../../kube/client/transport.ts";
import { Reflector } from "../../kube/informer/reflector.ts";
import type { WatchEvent } from "../../kube/stream/watch-event.ts";
import type { Ports } from "../../runtime/clock.ts";
import { RELEASED_ANNOTATION } from "../../schema/annotations.ts";
import { type ConfigMap, configMapPath, parseConfigMap } from "../../schema/config-map.ts";
import type { PodProtector } from "../../schema/podprotector.ts";
import { REGISTER_LABEL, REGISTER_LABEL_VALUE } from "./register-format.ts";

export interface ReleaseRegisterOptions {
  /** Of the core cluster, for messages. */
  readonly core: string;
  readonly transport: Transport;
  readonly ports: Ports;
  /** Where the register is. */
  readonly namespace: string;
  /** UIDs that were not known to be released before. */
  readonly onReleased?: (uids: readonly string[]) => void;
  readonly onEvent?: (event: WatchEvent) => void;
}

/** It is quiet most of the time, and who waits for it waits for minutes. */
const STREAM_SECONDS = [30, 60] as const;
/** UIDs remembered beyond what is stored: a UID that was released once comes back with an older state of its core only. */
const MAX_REMEMBERED = 100_000;
/** Failures that no repetition will mend: there is no register that could be read. */
const FUTILE: ReadonlySet<string> = new Set(["forbidden", "unauthorized", "not-served"]);

/** Which protectors of one core cluster were released (design 7), followed by a watch. */
export class ReleaseRegister {
  readonly segments: Reflector<ConfigMap>;
  readonly #released = new Set<string>();
  readonly #onReleased: ReleaseRegisterOptions["onReleased"];
  readonly #answered = Promise.withResolvers<void>();
  #isFutile = false;

  constructor({ core, transport, ports, namespace, onReleased, onEvent }: ReleaseRegisterOptions) {
    this.#onReleased = onReleased;
    this.segments = new Reflector<ConfigMap>({
      name: `releases of ${core}`,
      transport,
      ports,
      path: configMapPath(namespace),
      query: { labelSelector: `${REGISTER_LABEL}=${REGISTER_LABEL_VALUE}` },
      parse: parseConfigMap,
      keyOf: ({ metadata }) => metadata.name,
      uidOf: ({ metadata }) => metadata.uid,
      versionOf: ({ metadata }) => metadata.resourceVersion,
      serverTimeoutSeconds: STREAM_SECONDS,
      unparsable: "keepLast",
      onEvent: (event) => {
        this.#isFutile = event.kind === "failed" ? FUTILE.has(event.tag) : this.#isFutile && event.kind !== "listed";
        if (this.#isFutile || event.kind === "listed") this.#answered.resolve();
        onEvent?.(event);
      },
    });
    this.segments.subscribe({ changed: (_, after) => this.#learn(after) });
  }

  /** True from the first list on, or once it is clear that there is none to be had. */
  get known(): boolean {
    return this.segments.synced || this.#isFutile;
  }

  /** Resolves when it is known, or when `signal` aborts. */
  async whenKnown(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const given = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    await Promise.race([this.#answered.promise, given]);
  }

  has(uid: string): boolean {
    return this.#released.has(uid);
  }

  /**
   * The protector of this UID is there and in force. Where no segment has it, its core has gone back to before its release, which is to be
   * made again then.
   */
  inForce({ metadata }: Pick<PodProtector, "metadata">): void {
    const { uid, deletionTimestamp, annotations } = metadata;
    if (!this.#released.has(uid) || !this.segments.synced) return;
    if (typeof deletionTimestamp === "string" || annotations?.[RELEASED_ANNOTATION] !== undefined) return;
    for (const { data } of this.segments.values()) if (data?.[uid] !== undefined) return;
    this.#released.delete(uid);
  }

  start(): void {
    this.segments.start();
  }

  async stop(): Promise<void> {
    await this.segments.stop();
  }

  #learn(segment: ConfigMap | undefined): void {
    const fresh = Object.keys(segment?.data ?? {}).filter((uid) => !this.#released.has(uid));
    if (fresh.length === 0) return;
    for (const uid of fresh) this.#released.add(uid);
    for (const uid of this.#released) {
      if (this.#released.size <= MAX_REMEMBERED) break;
      this.#released.delete(uid);
    }
    this.#onReleased?.(fresh);
  }
}
