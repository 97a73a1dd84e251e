import { ApiClient, type CallOptions } from "../../kube/client/api-client.ts";
import { configMapPath } from "../../kube/client/api-path.ts";
import { listConfigMaps } from "../../kube/client/config-maps.ts";
import type { Transport } from "../../kube/client/transport.ts";
import { Reflector } from "../../kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../kube/informer/reflector-options.ts";
import { aborted, type Ports } from "../../runtime/clock.ts";
import { RELEASED_ANNOTATION } from "../../schema/annotations.ts";
import { type ConfigMap, parseConfigMap } from "../../schema/config-map.ts";
import { namespacedName, type PodProtector } from "../../schema/podprotector.ts";
import { CLOCKS_APART_MS, isSegment, parseEntry, REGISTER_LABEL, REGISTER_LABEL_VALUE } from "./register-format.ts";

interface ReleaseRegisterOptions {
  /** Name of the core cluster, for messages. */
  readonly core: string;
  readonly transport: Transport;
  readonly ports: Ports;
  readonly namespace: string;
  /** Called with UIDs whose release was not known before. */
  readonly onReleased?: (uids: readonly string[]) => void;
  readonly onEvent?: (event: ReflectorEvent) => void;
}

/** Releases are rare, and nothing waits for them urgently. */
const STREAM_SECONDS = [30, 60] as const;
/**
 * UIDs that are remembered after their segment is deleted: a released UID comes back only when its core is restored.
 */
const MAX_REMEMBERED = 100_000;
/** Cells that acknowledge nothing let a register grow, which its core serves all the same. */
const LIMITS = 10;
const SELECTOR = `${REGISTER_LABEL}=${REGISTER_LABEL_VALUE}`;
/**
 * Nothing but denials for this long mean that this process can't read the register: one comes from an apiserver that
 * starts. Denials that are further apart are not of one time.
 */
const DENIED_FOR_MS = 10_000;
const DENIALS_APART_MS = 60_000;
/** Failures that retries do not solve: this process can't read a register. */
const FUTILE: ReadonlySet<string> = new Set(["forbidden", "unauthorized", "not-served"]);

/** The released protectors of one core, by a watch of its release register. */
export class ReleaseRegister {
  readonly segments: Reflector<ConfigMap>;
  readonly #released = new Set<string>();
  /**
   * UIDs in force although a segment has them, and since when (monotonic), until a list that was sent later shows
   * whether the core was restored.
   */
  readonly #doubtful = new Map<string, number>();
  /** UIDs in force although a later protector of the same name was released: the core was restored, or a watch lags. */
  readonly #revived = new Set<string>();
  /** By `namespace/name`: creation time of the youngest protector in the segments. Undefined until computed. */
  #youngest: Map<string, number> | undefined;
  /** The segments of the last {@link refresh}, until the watch delivers a change. */
  #refreshed: readonly ConfigMap[] | undefined;
  readonly #refresh: (options: CallOptions) => ReturnType<typeof listConfigMaps>;
  /** Counts what the watch has delivered. */
  #changes = 0;
  #hasForgotten = false;
  /** The denials of {@link refresh} in a row (monotonic). */
  #denied: { readonly sinceMs: number; readonly lastMs: number } | undefined;
  readonly #nowMs: () => number;
  readonly #onReleased: ReleaseRegisterOptions["onReleased"];
  readonly #known = Promise.withResolvers<void>();

  constructor({ core, transport, ports, namespace, onReleased, onEvent }: ReleaseRegisterOptions) {
    this.#onReleased = onReleased;
    this.#nowMs = () => ports.clock.monotonicMs();
    const api = new ApiClient(transport);
    this.#refresh = (options) => listConfigMaps(api, namespace, SELECTOR, options, LIMITS);
    this.segments = new Reflector<ConfigMap>({
      name: `releases of ${core}`,
      transport,
      ports,
      path: configMapPath(namespace),
      kind: "ConfigMap",
      query: { labelSelector: SELECTOR },
      parse: parseConfigMap,
      uidOf: ({ metadata }) => metadata.uid,
      versionOf: ({ metadata }) => metadata.resourceVersion,
      serverTimeoutSeconds: STREAM_SECONDS,
      unparsable: "keepLast",
      onEvent: (event) => {
        const isFutile = event.kind === "failed" && FUTILE.has(event.tag);
        if (isFutile || event.kind === "listed") this.#known.resolve();
        if (event.kind === "listed" && !this.segments.historyInDoubt)
          this.#settleDoubt([...this.segments.values()], this.#nowMs() - event.durationMs);
        onEvent?.(event);
      },
    });
    this.segments.subscribe({ changed: (before, after) => this.#changed(before, after) });
  }

  /** Resolves at the first list, when a list has become impossible, or when `signal` aborts. */
  async whenKnown(signal: AbortSignal): Promise<void> {
    await Promise.race([aborted(signal), this.#known.promise]);
  }

  has(uid: string): boolean {
    if (this.#doubtful.has(uid)) return false;
    return this.#released.has(uid) || (this.#hasForgotten && this.#isStored(uid));
  }

  /**
   * True when an absent protector has ended: its release is recorded, or that of a later protector of the same name,
   * whose creation a process may have missed. Only one protector of a name exists at a time, so the later one replaced
   * this one.
   */
  hasEnded({ metadata }: Pick<PodProtector, "metadata">): boolean {
    return this.has(metadata.uid) || (!this.#revived.has(metadata.uid) && this.#isSucceeded(metadata));
  }

  /**
   * Reads the present register, because the watch may lag. False without an answer. A denial is one only where nothing
   * else has come for a while: there is no register for this process.
   */
  async refresh(options: CallOptions): Promise<boolean> {
    const sentMs = this.#nowMs();
    const changes = this.#changes;
    const result = await this.#refresh(options);
    if (result.kind === "ok") {
      // What the watch has delivered meanwhile may be newer.
      if (changes === this.#changes) this.#refreshed = result.object;
      this.#youngest = undefined;
      for (const segment of result.object) this.#learn(segment);
      this.#settleDoubt(result.object, sentMs);
    }
    if (result.kind !== "rejected" || result.status !== 403) {
      this.#denied = undefined;
      return result.kind === "ok";
    }
    const before = this.#denied;
    const isFirst = before === undefined || sentMs - before.lastMs > DENIALS_APART_MS;
    const sinceMs = isFirst ? sentMs : before.sinceMs;
    this.#denied = { sinceMs, lastMs: sentMs };
    return sentMs - sinceMs >= DENIED_FOR_MS;
  }

  /**
   * The protector exists and is in force. If no segment has its UID, now or after the next list of the register, the
   * core was restored to a state from before the release, so the release is void. The register is listed at once,
   * because its open stream may keep silent about the restore for as long as it lasts.
   */
  inForce({ metadata }: Pick<PodProtector, "metadata">): void {
    const { uid, deletionTimestamp, annotations } = metadata;
    this.#doubtful.delete(uid);
    if (this.#isSucceeded(metadata) && this.#revived.size < MAX_REMEMBERED) this.#revived.add(uid);
    if (!this.#released.has(uid) || !this.segments.synced) return;
    if (typeof deletionTimestamp === "string" || annotations?.[RELEASED_ANNOTATION] !== undefined) return;
    if (!this.#isStored(uid)) {
      this.#released.delete(uid);
      return;
    }
    this.#doubtful.set(uid, this.#nowMs());
    if (!this.segments.historyInDoubt) this.segments.distrustHistory();
  }

  start(): void {
    this.segments.start();
  }

  async stop(): Promise<void> {
    await this.segments.stop();
  }

  #changed(before: ConfigMap | undefined, after: ConfigMap | undefined): void {
    this.#changes++;
    // Thousands of releases, each a change of a segment, must not read all segments again each time.
    if (this.#refreshed === undefined && isExtended(before, after)) addYoungest(this.#youngest, after);
    else this.#youngest = undefined;
    this.#refreshed = undefined;
    this.#learn(after);
  }

  /**
   * A list from after the doubt has what was released; what it lacks, a restore of the core has taken back. An answer
   * may be late, so a list that was sent before the doubt says nothing.
   */
  #settleDoubt(segments: readonly ConfigMap[], sentMs: number): void {
    const settled = [...this.#doubtful].filter(([, sinceMs]) => sinceMs <= sentMs).map(([uid]) => uid);
    const released = settled.filter((uid) => hasEntry(segments, uid));
    for (const uid of settled) {
      this.#doubtful.delete(uid);
      if (!released.includes(uid)) this.#released.delete(uid);
    }
    if (this.#doubtful.size > 0 && !this.segments.historyInDoubt) this.segments.distrustHistory();
    if (released.length > 0) this.#onReleased?.(released);
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

  #isSucceeded(metadata: PodProtector["metadata"]): boolean {
    this.#youngest ??= youngestOf(this.#refreshed ?? this.segments.values());
    if (this.#youngest.size === 0) return false;
    const madeMs = Date.parse(metadata.creationTimestamp ?? "");
    return (this.#youngest.get(namespacedName(metadata)) ?? Number.NEGATIVE_INFINITY) - CLOCKS_APART_MS >= madeMs;
  }

  #isStored(uid: string): boolean {
    return hasEntry(this.segments.values(), uid);
  }
}

function hasEntry(segments: Iterable<ConfigMap>, uid: string): boolean {
  for (const { metadata, data } of segments) {
    if (isSegment(metadata.name) && data?.[uid] !== undefined) return true;
  }
  return false;
}

/** The segment has all entries that it had before. */
function isExtended(before: ConfigMap | undefined, after: ConfigMap | undefined): after is ConfigMap {
  return after !== undefined && Object.entries(before?.data ?? {}).every(([uid, text]) => after.data?.[uid] === text);
}

function youngestOf(segments: Iterable<ConfigMap>): Map<string, number> {
  const youngest = new Map<string, number>();
  for (const segment of segments) addYoungest(youngest, segment);
  return youngest;
}

function addYoungest(youngest: Map<string, number> | undefined, { metadata, data }: ConfigMap): void {
  if (youngest === undefined || !isSegment(metadata.name)) return;
  for (const text of Object.values(data ?? {})) {
    const entry = parseEntry(text);
    if (entry === undefined || (youngest.get(entry.key) ?? Number.NEGATIVE_INFINITY) >= entry.madeMs) continue;
    youngest.set(entry.key, entry.madeMs);
  }
}
