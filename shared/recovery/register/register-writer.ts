/**
 * The register of released protectors, written (design 7): an entry before the finalizer goes, so that whoever missed the last event can
 * tell a release from a loss. Segments are filled one after the other; one is dropped when its entries are old and every registered
 * cell has acknowledged it.
 */
import * as v from "valibot";
import type { ApiClient, CallOptions } from "../../kube/client/api-client.ts";
import type { ApiResult } from "../../kube/client/api-result.ts";
import type { Ports, Timer } from "../../runtime/clock.ts";
import { type ConfigMap, configMapPath, parseConfigMap } from "../../schema/config-map.ts";
import { compareVersions, isComparableVersion } from "../../schema/resource-version.ts";
import {
  ACKNOWLEDGEMENTS,
  MAX_SEGMENTS,
  REGISTER_LABEL,
  REGISTER_LABEL_VALUE,
  SEGMENT_ENTRIES,
  segmentName,
  segmentNumber,
} from "./register-format.ts";

export interface RegisterWriterOptions {
  readonly api: Pick<ApiClient, "get" | "create" | "patch" | "delete">;
  readonly ports: Ports;
  readonly namespace: string;
  /** What is stored, as the watch has it. */
  readonly stored: { readonly segments: { values(): Iterable<ConfigMap> } };
  readonly timeoutMs: number;
  readonly mayWrite: () => boolean;
  readonly onDropped: (segments: number) => void;
}

/** Whoever may have missed a release longer ago than this has been restarted, or told by the copies of its cells. */
const KEEP_MS = 24 * 3_600_000;
const COLLECT_EVERY_MS = 600_000;
/** Conflicts and full segments in one go. */
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
  /** Of the segment that is filled now. */
  #current: { readonly number: number; readonly entries: number } | undefined;
  #timer: Timer | undefined;

  constructor(options: RegisterWriterOptions) {
    this.#options = options;
  }

  /** Drops what is over now and then, until `signal` aborts. */
  start(signal: AbortSignal): void {
    const again = (): void => {
      if (signal.aborted) return;
      void this.collect(signal);
      this.#timer = this.#options.ports.timers.after(COLLECT_EVERY_MS, again);
    };
    again();
    signal.addEventListener("abort", () => this.#timer?.cancel(), { once: true });
  }

  /** Puts the release of this UID on record; what comes while a write is under way goes into the next one. Never rejects. */
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
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const number = this.#numberFor(size);
      const name = segmentName(number);
      const path = configMapPath(namespace, name);
      result = await api.patch(path, "application/merge-patch+json", { data }, parseConfigMap, this.#call());
      if (result.kind === "gone") {
        const metadata = { name, namespace, labels: { [REGISTER_LABEL]: REGISTER_LABEL_VALUE } };
        const body = { apiVersion: "v1", kind: "ConfigMap", metadata, data };
        result = await api.create(configMapPath(namespace), body, parseConfigMap, this.#call());
      }
      if (result.kind === "ok") this.#current = { number, entries: Object.keys(result.object.data ?? {}).length };
      if (result.kind !== "conflict") return result;
    }
    return result;
  }

  /** The segment that has room for so many. */
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

  /** Drops the segments that nobody needs any more; bounded, so that the oldest go in any case when there are too many. */
  async collect(signal: AbortSignal): Promise<void> {
    const { api, namespace, stored, ports, mayWrite, onDropped } = this.#options;
    const segments = [...stored.segments.values()]
      .flatMap((segment) => {
        const number = segmentNumber(segment.metadata.name);
        return number === undefined ? [] : [{ segment, number }];
      })
      .sort((a, b) => a.number - b.number);
    if (segments.length === 0) return;
    const acknowledged = await api.get(configMapPath(namespace, ACKNOWLEDGEMENTS), parseConfigMap, {
      ...this.#call(),
      signal,
    });
    const cells = acknowledged.kind === "ok" ? Object.values(acknowledged.object.data ?? {}) : [];
    if (acknowledged.kind !== "ok" && acknowledged.kind !== "gone") return;
    let dropped = 0;
    for (const [index, { segment }] of segments.entries()) {
      const isTooMany = segments.length - index > MAX_SEGMENTS;
      if (!isTooMany && !isOver(segment, cells, ports.clock.nowMs())) continue;
      if (signal.aborted || !mayWrite()) break;
      const { uid, resourceVersion } = segment.metadata;
      const preconditions = { uid, resourceVersion };
      const path = configMapPath(namespace, segment.metadata.name);
      const result = await api.delete(path, { ...this.#call(), signal, preconditions });
      if (result.kind === "ok") dropped++;
    }
    if (dropped > 0) onDropped(dropped);
  }

  #call(): CallOptions {
    return { timeoutMs: this.#options.timeoutMs };
  }
}

const Acknowledgement = v.pipe(v.string(), v.regex(/^[0-9]+$/));

/** All entries are old enough, and each cell has worked in the version that the segment has now. */
export function isOver(segment: ConfigMap, cells: readonly string[], nowMs: number): boolean {
  const times = Object.values(segment.data ?? {}).map((text) => Date.parse(text.split(" ")[0] ?? ""));
  if (times.some((timeMs) => !(nowMs - timeMs > KEEP_MS))) return false;
  const { resourceVersion } = segment.metadata;
  return cells.every(
    (version) =>
      v.is(Acknowledgement, version) &&
      isComparableVersion(resourceVersion) &&
      isComparableVersion(version) &&
      compareVersions(version, resourceVersion) >= 0,
  );
}
