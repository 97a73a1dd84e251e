/**
 * Writes the release register. A release is recorded before the finalizer is removed, so that a process that missed the
 * deletion can distinguish a release from a loss. Segments are filled one after the other; a segment is deleted when
 * its entries are old and every registered cell has acknowledged it.
 */
import * as v from "valibot";
import type { ApiClient, CallOptions } from "../../kube/client/api-client.ts";
import { configMapPath } from "../../kube/client/api-path.ts";
import type { ApiResult } from "../../kube/client/api-result.ts";
import { mergeIntoConfigMap } from "../../kube/client/config-maps.ts";
import { type Ports, sleep } from "../../runtime/clock.ts";
import { type ConfigMap, parseConfigMap } from "../../schema/config-map.ts";
import { compareVersions, isComparableVersion, isOlderVersion } from "../../schema/resource-version.ts";
import {
  ACKNOWLEDGEMENTS,
  acknowledgingCell,
  MAX_SEGMENTS,
  REGISTER_LABEL,
  REGISTER_LABEL_VALUE,
  SEGMENT_ENTRIES,
  segmentName,
  segmentNumber,
} from "./register-format.ts";

interface RegisterWriterOptions {
  readonly api: Pick<ApiClient, "get" | "create" | "patch" | "delete">;
  readonly ports: Ports;
  readonly namespace: string;
  /** The stored segments, from the watch. */
  readonly stored: { readonly segments: { values(): Iterable<ConfigMap> } };
  readonly timeoutMs: number;
  readonly mayWrite: () => boolean;
  readonly onDropped: (segments: number) => void;
  /** There are too many segments, which these cells have not acknowledged. */
  readonly onBlocked: (cells: readonly string[]) => void;
}

/** A process that missed an older release has restarted since, and has read the backups of its cells. */
const KEEP_MS = 24 * 3_600_000;
const COLLECT_EVERY_MS = 600_000;
/** Conflicts in a row: another process creates the same segment. */
const MAX_TRIES = 5;

interface Waiting {
  readonly uid: string;
  readonly text: string;
  readonly settle: (result: ApiResult<unknown>) => void;
}

export class RegisterWriter {
  readonly #options: RegisterWriterOptions;
  #waiting: Waiting[] = [];
  #isWriting = false;
  /** The segment that is being filled. */
  #current: { readonly number: number; readonly entries: number } | undefined;

  constructor(options: RegisterWriterOptions) {
    this.#options = options;
  }

  /** Deletes obsolete segments from time to time, until `signal` aborts. */
  async start(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      void this.collect(signal);
      await sleep(this.#options.ports, COLLECT_EVERY_MS, signal);
    }
  }

  /** Records the release of this UID. Releases that arrive during a write share the next one. Never rejects. */
  record(uid: string, text: string): Promise<ApiResult<unknown>> {
    return new Promise((settle) => {
      this.#waiting.push({ uid, text, settle });
      if (!this.#isWriting) void this.#write();
    });
  }

  async #write(): Promise<void> {
    this.#isWriting = true;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, SEGMENT_ENTRIES);
      const result = await this.#append(Object.fromEntries(batch.map(({ uid, text }) => [uid, text])), batch.length);
      for (const { settle } of batch) settle(result);
    }
    this.#isWriting = false;
  }

  async #append(data: Readonly<Record<string, string>>, size: number): Promise<ApiResult<ConfigMap>> {
    const { api, namespace } = this.#options;
    let result: ApiResult<ConfigMap> = { kind: "gone" };
    const labels = { [REGISTER_LABEL]: REGISTER_LABEL_VALUE };
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const number = this.#numberFor(size);
      result = await mergeIntoConfigMap(api, { name: segmentName(number), namespace, labels }, data, this.#call());
      if (result.kind === "ok") this.#current = { number, entries: Object.keys(result.object.data ?? {}).length };
      if (result.kind !== "conflict") return result;
    }
    return result;
  }

  /** The number of a segment with room for `size` more entries. */
  #numberFor(size: number): number {
    let highest = this.#current;
    for (const segment of this.#options.stored.segments.values()) {
      const number = segmentNumber(segment.metadata.name);
      if (number === undefined || (highest !== undefined && number <= highest.number)) continue;
      highest = { number, entries: Object.keys(segment.data ?? {}).length };
    }
    if (highest === undefined) return 0;
    return highest.entries + size > SEGMENT_ENTRIES ? highest.number + 1 : highest.number;
  }

  /**
   * Deletes the segments that no cell needs any more. Keeps segments that a registered cell has not acknowledged:
   * otherwise the cell would restore protectors whose release it has missed.
   */
  async collect(signal: AbortSignal): Promise<void> {
    const { api, namespace, ports, mayWrite, onDropped, onBlocked } = this.#options;
    const segments = this.#segments();
    if (segments.length === 0) return;
    const call = { ...this.#call(), signal };
    const acknowledged = await api.get(configMapPath(namespace, ACKNOWLEDGEMENTS), parseConfigMap, call);
    if (acknowledged.kind !== "ok" && acknowledged.kind !== "gone") return;
    const cells = acknowledged.kind === "ok" ? acknowledged.object : undefined;
    let dropped = 0;
    const blocking = new Set<string>();
    for (const [index, segment] of segments.entries()) {
      const isTooMany = segments.length - index > MAX_SEGMENTS;
      if (!isTooMany && !isOld(segment, ports.clock.nowMs())) continue;
      const lagging = laggingCells(segment, cells);
      if (isTooMany) for (const cell of lagging) blocking.add(cell);
      if (lagging.length > 0) continue;
      if (signal.aborted || !mayWrite()) break;
      const { name, uid, resourceVersion } = segment.metadata;
      const preconditions = { uid, resourceVersion };
      const result = await api.delete(configMapPath(namespace, name), { ...call, preconditions });
      if (result.kind === "ok") dropped++;
    }
    if (dropped > 0) onDropped(dropped);
    if (blocking.size > 0) onBlocked([...blocking].sort());
  }

  /** Oldest first. */
  #segments(): ConfigMap[] {
    const numberOf = ({ metadata }: ConfigMap): number => segmentNumber(metadata.name) ?? -1;
    const segments = [...this.#options.stored.segments.values()].filter((segment) => numberOf(segment) >= 0);
    return segments.sort((a, b) => numberOf(a) - numberOf(b));
  }

  #call(): CallOptions {
    return { timeoutMs: this.#options.timeoutMs };
  }
}

const Acknowledgement = v.pipe(v.string(), v.regex(/^[0-9]+$/));

function isOld(segment: ConfigMap, nowMs: number): boolean {
  const times = Object.values(segment.data ?? {}).map((text) => Date.parse(text.split(" ")[0] ?? ""));
  return times.every((timeMs) => nowMs - timeMs > KEEP_MS);
}

/** The cells that have not processed the segment's current version, by {@link ACKNOWLEDGEMENTS}. */
function laggingCells({ metadata }: ConfigMap, cells: ConfigMap | undefined): string[] {
  const { resourceVersion } = metadata;
  return Object.entries(cells?.data ?? {}).flatMap(([key, version]) => {
    const isReadable =
      v.is(Acknowledgement, version) && isComparableVersion(resourceVersion) && isComparableVersion(version);
    // An acknowledged version above the version of its ConfigMap is that of another core, or of a history that a
    // restore has ended.
    const isForeign = isOlderVersion(cells?.metadata.resourceVersion, version);
    const hasProcessed = isReadable && !isForeign && compareVersions(version, resourceVersion) >= 0;
    return hasProcessed ? [] : [acknowledgingCell(key)];
  });
}
