import { configMapPath } from "../../kube/client/api-path.ts";
import type { Transport } from "../../kube/client/transport.ts";
import { Reflector } from "../../kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../kube/informer/reflector-options.ts";
import type { Ports } from "../../runtime/clock.ts";
import { RELEASED_ANNOTATION } from "../../schema/annotations.ts";
import { type ConfigMap, parseConfigMap } from "../../schema/config-map.ts";
import type { PodProtector } from "../../schema/podprotector.ts";
import { isSegment, REGISTER_LABEL, REGISTER_LABEL_VALUE } from "./register-format.ts";

interface ReleaseRegisterOptions {
  /** Of the core cluster, for messages. */
  readonly core: string;
  readonly transport: Transport;
  readonly ports: Ports;
  readonly namespace: string;
  /** UIDs whose release is news. */
  readonly onReleased?: (uids: readonly string[]) => void;
  readonly onEvent?: (event: ReflectorEvent) => void;
}

/** Releases are rare, and nothing waits for them urgently. */
const STREAM_SECONDS = [30, 60] as const;
/** UIDs that are remembered after their segment is gone: a released UID comes back only when its core is restored. */
const MAX_REMEMBERED = 100_000;
/** Failures that no retry mends: this process can't read a register. */
const FUTILE: ReadonlySet<string> = new Set(["forbidden", "unauthorized", "not-served"]);

/** The released protectors of one core, by a watch of its release register. */
export class ReleaseRegister {
  readonly segments: Reflector<ConfigMap>;
  readonly #released = new Set<string>();
  /** UIDs in force although a segment has them: this watch or the other one lags, or the core was restored. */
  readonly #doubtful = new Set<string>();
  #hasForgotten = false;
  readonly #onReleased: ReleaseRegisterOptions["onReleased"];
  readonly #known = Promise.withResolvers<void>();

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
        const isFutile = event.kind === "failed" && FUTILE.has(event.tag);
        if (isFutile || event.kind === "listed") this.#known.resolve();
        onEvent?.(event);
      },
    });
    this.segments.subscribe({ changed: (before, after) => this.#changed(before, after) });
  }

  /** Resolves with the first list, once no list can be expected, or when `signal` aborts. */
  async whenKnown(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const aborted = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    await Promise.race([this.#known.promise, aborted]);
  }

  has(uid: string): boolean {
    return this.#released.has(uid) || (this.#hasForgotten && this.#isStored(uid));
  }

  /**
   * The protector exists and is in force. If no segment has its UID, now or once the register is listed again, its core
   * was restored to a state before the release, so the release is void.
   */
  inForce({ metadata }: Pick<PodProtector, "metadata">): void {
    const { uid, deletionTimestamp, annotations } = metadata;
    this.#doubtful.delete(uid);
    if (!this.#released.has(uid) || !this.segments.synced) return;
    if (typeof deletionTimestamp === "string" || annotations?.[RELEASED_ANNOTATION] !== undefined) return;
    if (this.#isStored(uid)) this.#doubtful.add(uid);
    else this.#released.delete(uid);
  }

  start(): void {
    this.segments.start();
  }

  async stop(): Promise<void> {
    await this.segments.stop();
  }

  #changed(before: ConfigMap | undefined, after: ConfigMap | undefined): void {
    this.#learn(after);
    for (const uid of this.#doubtful) {
      if (before?.data?.[uid] === undefined || this.#isStored(uid)) continue;
      this.#doubtful.delete(uid);
      this.#released.delete(uid);
    }
  }

  #learn(segment: ConfigMap | undefined): void {
    const data = segment !== undefined && isSegment(segment.metadata.name) ? segment.data : undefined;
    const fresh = Object.keys(data ?? {}).filter((uid) => !this.#released.has(uid));
    if (fresh.length === 0) return;
    for (const uid of fresh) this.#released.add(uid);
    for (const uid of this.#released) {
      if (this.#released.size <= MAX_REMEMBERED) break;
      this.#released.delete(uid);
      this.#hasForgotten = true;
    }
    this.#onReleased?.(fresh);
  }

  #isStored(uid: string): boolean {
    for (const { metadata, data } of this.segments.values()) {
      if (isSegment(metadata.name) && data?.[uid] !== undefined) return true;
    }
    return false;
  }
}
