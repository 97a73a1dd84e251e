/**
 * The replicas of workloads that are not watched, by discovery and the scale subresource. A budget needs all its
 * workloads whenever one of its pods comes or goes, so answers are cached for some seconds.
 */

import * as v from "valibot";
import { parseSelectorText } from "../../../shared/decide/availability/selector-text.ts";
import { podCount } from "../../../shared/decide/minimum/workload-minimum.ts";
import { type ApiClient, aboutIfNamed } from "../../../shared/kube/client/api-client.ts";
import { pathSegment } from "../../../shared/kube/client/api-path.ts";
import type { ApiFailure } from "../../../shared/kube/client/api-result.ts";
import { isTimeout } from "../../../shared/kube/client/transport.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";
import { checker } from "../../../shared/schema/check.ts";
import { LabelSelector } from "../../../shared/schema/podprotector.ts";
import { type DiscoveryResult, discover } from "../sources/discovery.ts";
import {
  collectionPath,
  groupOf,
  groupVersionPath,
  type SourceKind,
  type WorkloadRef,
} from "../sources/protection-source.ts";

export interface PolledWorkload {
  readonly kind: "found";
  readonly uid: string;
  /** For people: `CloneSet web`. */
  readonly what: string;
  readonly replicas: number;
  readonly selector: LabelSelector | undefined;
  /** The scale comes from the cache. */
  readonly isKept?: boolean;
}

/** `unscaled`: the kind has no scale subresource, but its objects have a selector of their pods. */
export interface MissingScale {
  readonly kind: "missing";
  readonly why: string;
  readonly unscaled?: SourceKind;
}

export interface FailedLookup {
  readonly kind: "failed";
  readonly failure: ApiFailure;
}

export type PolledLookup = PolledWorkload | MissingScale | FailedLookup;

const parseScale = checker(
  v.looseObject({
    metadata: v.looseObject({ uid: v.optional(v.string()) }),
    spec: v.nullish(v.looseObject({ replicas: v.optional(v.number()) })),
    status: v.nullish(v.looseObject({ selector: v.optional(v.string()) })),
  }),
);

/**
 * In every DaemonSet, including OpenKruise's, `spec.selector` selects the pods. In other kinds, it may mean something
 * else.
 */
const parseDaemonSet = checker(v.looseObject({ spec: v.looseObject({ selector: v.nullish(LabelSelector) }) }));
const DAEMON_SET_GROUPS = ["apps", "apps.kruise.io"];

/** A budget that uses a cached scale is resolved again after this time. */
export const KEEP_SCALE_MS = 5_000;
/** The resources that a cluster serves rarely change. */
const KEEP_DISCOVERY_MS = 30_000;

export interface PolledScalesOptions {
  readonly api: ApiClient;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly timeoutMs: number;
}

export class PolledScales {
  readonly #options: PolledScalesOptions;
  /** By path. */
  readonly #scales: KeptFor<PolledWorkload>;
  /** By group and version. */
  readonly #served: KeptFor<Promise<DiscoveryResult>>;
  /**
   * Groups and versions that did not answer in time. Without this cache, each worker would wait for each of their
   * objects.
   */
  readonly #hanging: KeptFor<true>;

  constructor(options: PolledScalesOptions) {
    this.#options = options;
    this.#scales = new KeptFor(options.clock, KEEP_SCALE_MS);
    this.#served = new KeptFor(options.clock, KEEP_DISCOVERY_MS);
    this.#hanging = new KeptFor(options.clock, KEEP_SCALE_MS);
  }

  /** Reads the scale subresource of one object. */
  async read(kind: SourceKind, namespace: string, name: string, signal: AbortSignal): Promise<PolledLookup> {
    const { api, timeoutMs } = this.#options;
    const path = `${collectionPath(kind, namespace)}/${pathSegment(name)}/scale`;
    const what = `${kind.kind} ${name}`;
    const group = groupVersionPath(kind);
    if (this.#hanging.get(group)) return unreadable(what, path);
    const result = await api.get(path, aboutIfNamed(namespace, name, parseScale), { timeoutMs, signal });
    if (result.kind !== "ok") {
      if (hasTimedOut(result)) this.#hanging.set(group, true);
      return notFound(result, what, path);
    }
    const { metadata, spec, status } = result.object;
    const text = status?.selector ?? "";
    const selector = text === "" ? undefined : parseSelectorText(text);
    // A number below 0 would take from what other workloads ask for: many CRDs have no minimum.
    return { kind: "found", uid: metadata.uid ?? "", what, replicas: podCount(spec?.replicas ?? 0), selector };
  }

  /** The workload that `ref` names, with the same UID if `ref` has one; read now, or from the cache. */
  async find(ref: WorkloadRef, namespace: string, signal: AbortSignal): Promise<PolledLookup> {
    const group = groupOf(ref.apiVersion);
    const version = group === "" ? ref.apiVersion : ref.apiVersion.slice(group.length + 1);
    const served = await this.#serving(group, version, signal);
    if (served.kind === "failed")
      return notFound(served.failure, `${ref.kind} ${ref.name}`, groupVersionPath({ group, version }));
    const resource = served.resources.find(({ kind }) => kind === ref.kind);
    if (resource === undefined) return missing(`${ref.apiVersion} ${ref.kind} is not served`);
    const kind = { group, version, kind: ref.kind, resource: resource.resource };
    if (!resource.hasScale) {
      const unscaled = ref.kind === "DaemonSet" && DAEMON_SET_GROUPS.includes(group) ? { unscaled: kind } : {};
      return { ...missing(`${ref.kind} does not implement the scale subresource`), ...unscaled };
    }
    const key = `${collectionPath(kind, namespace)}/${ref.name}`;
    const isWanted = ({ uid }: PolledWorkload): boolean => ref.uid === undefined || uid === ref.uid;
    const kept = this.#scales.get(key);
    if (kept !== undefined && isWanted(kept)) return { ...kept, isKept: true };
    const sentMs = this.#options.clock.monotonicMs();
    const found = await this.read(kind, namespace, ref.name, signal);
    if (found.kind !== "found") return found;
    this.#scales.set(key, found, sentMs);
    return isWanted(found) ? found : missing(`${found.what} is another one`);
  }

  /** Reads the selector of an object of a kind without a scale subresource. */
  async selector(
    kind: SourceKind,
    namespace: string,
    name: string,
    signal: AbortSignal,
  ): Promise<{ readonly kind: "selected"; readonly selector: LabelSelector } | MissingScale | FailedLookup> {
    const path = `${collectionPath(kind, namespace)}/${pathSegment(name)}`;
    const { api, timeoutMs } = this.#options;
    const result = await api.get(path, aboutIfNamed(namespace, name, parseDaemonSet), { timeoutMs, signal });
    const what = `${kind.kind} ${name}`;
    if (result.kind !== "ok") return notFound(result, what, path);
    const { selector } = result.object.spec;
    return selector ? { kind: "selected", selector } : missing(`${what} has no selector`);
  }

  /** Concurrent calls share one request. A failure is not cached. */
  async #serving(group: string, version: string, signal: AbortSignal): Promise<DiscoveryResult> {
    const key = `${group}/${version}`;
    const kept = this.#served.get(key);
    if (kept !== undefined) return await kept;
    const { api, timeoutMs } = this.#options;
    const asked = discover(api, group, version, { timeoutMs, signal });
    this.#served.set(key, asked);
    const result = await asked;
    // An absent kind may be installed at any time.
    if (result.kind !== "ok" || result.resources.length === 0) this.#served.delete(key);
    return result;
  }
}

/** Values that expire after some time, about oldest first. */
class KeptFor<T> {
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #forMs: number;
  readonly #values = new Map<string, { readonly value: T; readonly untilMs: number }>();

  constructor(clock: Pick<Clock, "monotonicMs">, forMs: number) {
    [this.#clock, this.#forMs] = [clock, forMs];
  }

  get(key: string): T | undefined {
    const nowMs = this.#clock.monotonicMs();
    for (const [oldest, { untilMs }] of this.#values) {
      if (untilMs > nowMs) break;
      this.#values.delete(oldest);
    }
    const kept = this.#values.get(key);
    return kept !== undefined && kept.untilMs > nowMs ? kept.value : undefined;
  }

  /** The value is of `atMs`. A late answer does not take the place of a newer one, on which somebody may have acted. */
  set(key: string, value: T, atMs = this.#clock.monotonicMs()): void {
    const untilMs = atMs + this.#forMs;
    if ((this.#values.get(key)?.untilMs ?? untilMs) > untilMs) return;
    this.#values.delete(key);
    this.#values.set(key, { value, untilMs });
  }

  delete(key: string): void {
    this.#values.delete(key);
  }
}

/**
 * A call that fails only for one object or one API may fail for ever: the CRD's path for the replicas may be absent
 * from the object, a conversion webhook may fail or hang, or the server of an APIService may be down. Until the call
 * succeeds, the number of replicas is unknown.
 */
function notFound(failure: ApiFailure, what: string, path: string): MissingScale | FailedLookup {
  if (failure.kind === "gone") return missing(`${what} is not there`);
  const isOwn =
    failure.kind !== "unavailable" || (failure.status !== undefined && failure.status !== 429) || hasTimedOut(failure);
  return isOwn ? unreadable(what, path) : { kind: "failed", failure };
}

function hasTimedOut(failure: ApiFailure): boolean {
  return failure.kind === "unavailable" && isTimeout(failure.error);
}

function unreadable(what: string, path: string): MissingScale {
  return missing(`${what} can't be read: try kubectl get --raw ${path}`);
}

export function missing(why: string): MissingScale {
  return { kind: "missing", why };
}
