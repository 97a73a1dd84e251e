/**
 * Protectors that vanished from their core, as the core's storage shows it. Until such a protector is back, no replica
 * that has seen it, or could read its backup, may allow the disruption of an available pod (S11). A protector that was
 * released must hold nothing back in the end (L7). See docs/design.md#lost-protectors.
 */

import { REGISTER_LABEL } from "../../../shared/recovery/register/register-format.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION, SOURCE_NAME_LABEL } from "../../../shared/schema/annotations.ts";
import type { InFlightRequest, ObservedResponse } from "../actors/admission-requests.ts";
import { exemptInFlight } from "../actors/operators.ts";
import type { Replica } from "../actors/replica.ts";
import type { EtcdChange, EtcdObject, Json } from "../apiserver/etcd.ts";
import { metadataOf, record, text } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import { OWN_NAMESPACE } from "../scenario/scenario.ts";
import { covers, type StoredBackups, selectorOf } from "../truth/stored-backups.ts";
import { parseStored, promises, promisesPods, reservedUids, wantedOf } from "../truth/stored-protectors.ts";
import type { World } from "../world/world.ts";

const PREFIX = "podprotectors/default/";
const REGISTER = `configmaps/${OWN_NAMESPACE}/`;
/**
 * How long a replica may trust its cache, and some time for requests in flight: each replica has seen what existed for
 * longer.
 */
const KNOWN_AFTER_MS = 20_000;
/** A record of a release ends the protectors of its name that are older by so much (docs/design.md#lost-protectors). */
const CLOCKS_APART_MS = 30_000;
/** No live read of a pod is older. Times of conditions are rounded to seconds. */
const READ_MS = 2_000;
/** Why an eviction passes by the last read of its pod. */
const READ_REASONS: ReadonlySet<string> = new Set(["Unavailable", "Pending"]);

interface Present {
  readonly stored: EtcdObject;
  /** Since when the protector exists with this selector, and promises anything. */
  readonly sinceMs: number;
}

interface Loss {
  readonly core: string;
  readonly name: string;
  /** The last stored version. */
  readonly last: EtcdObject;
  readonly atMs: number;
  /** The protector was released, or was about to be: replicas that have seen the mark allow, others may deny. */
  readonly isReleased: boolean;
  /** True where each replica may still trust a cache that promises nothing. */
  readonly isRaised: boolean;
  /**
   * Since when the released protector was in force again, where that was shortly before: a restore of the core had
   * brought it back, or its generator had removed the mark. Replicas of before may not have heard of it yet.
   */
  readonly revivedMs: number | undefined;
  /** Replicas that have seen the protector themselves. */
  readonly knowers: ReadonlySet<Replica>;
}

export class LostProtectors {
  readonly #world: World;
  readonly #backups: ReadonlyMap<string, StoredBackups>;
  /** By `core/name`. */
  readonly #present = new Map<string, Present>();
  readonly #lost = new Map<string, Loss>();
  /** UIDs of protectors that have been released or marked. */
  readonly #released = new Set<string>();
  /** By `core/name`: when the youngest protector that was released was made, in Unix milliseconds. */
  readonly #youngestReleased = new Map<string, number>();
  readonly #startedMs = new WeakMap<Replica, number>();

  constructor(world: World, backups: ReadonlyMap<string, StoredBackups>) {
    this.#world = world;
    this.#backups = backups;
    for (const core of world.cores.values()) core.etcd.observe((change) => this.#changed(core, change));
  }

  replicaStarted(replica: Replica): void {
    this.#startedMs.set(replica, this.#world.time.elapsedMs);
  }

  values(): Iterable<Loss> {
    return this.#lost.values();
  }

  /** Called when the core was restored to an older state. */
  coreRestored(core: ApiServer): void {
    const stored = new Map(core.etcd.range(PREFIX).map((one) => [nameOf(one.key), one]));
    for (const [id, { stored: before }] of [...this.#present]) {
      const name = id.slice(core.name.length + 1);
      if (id === `${core.name}/${name}` && !stored.has(name)) this.#wasLost(core, before, true);
    }
    for (const one of stored.values()) this.#seen(core, one);
  }

  /** Checks S11 at each response. */
  responded(cell: string, inFlight: InFlightRequest | undefined, { allowed, reasons, by }: ObservedResponse): void {
    if (inFlight === undefined || by === undefined || inFlight.forced || !inFlight.key.startsWith("pods/default/"))
      return;
    const { coverage, cells } = this.#world;
    const truth = cells.get(cell);
    for (const loss of this.#lost.values()) {
      if (!allowed && reasons.includes("Vanished") && !loss.knowers.has(by) && this.#startOf(by) > loss.atMs)
        coverage.rule("backups: denied by a replica that started after the loss");
      if (!allowed || loss.isReleased || !promises(loss.last) || inFlight.askedMs < loss.atMs) continue;
      if (loss.isRaised && reasons.includes("NothingPromised")) continue;
      const stored = truth?.admission.stored(inFlight);
      // Reviewed at a version that can't commit any more.
      if (stored === undefined || (inFlight.revision !== undefined && inFlight.revision !== stored.revision)) continue;
      // An eviction commits at any version: its pod may have become available since the last read.
      const isRead = inFlight.operation === "EVICT" && reasons.some((reason) => READ_REASONS.has(reason));
      const wanted = { ...wantedOf(parseStored(loss.last)), minReadySeconds: isRead ? 1 : 0 };
      const cutoffMs = this.#world.time.clock.nowMs() - READ_MS;
      if (truth?.pods.isAvailableNow(inFlight.uid, wanted, cutoffMs) !== true) continue;
      const knows = this.#knows(by, cell, loss);
      if (knows === undefined) coverage.rule("backups: allowed by a replica that could not know of the loss");
      else
        this.#world.violation(
          "S11",
          `${inFlight.key} was allowed (${reasons.join() || "-"}) although ${loss.core}/${loss.name} is lost since ` +
            `${Math.round(loss.atMs)} ms: the replica ${knows}`,
        );
    }
  }

  #changed(core: ApiServer, { key, before, after }: EtcdChange): void {
    if (key.startsWith(REGISTER)) this.#recorded(core);
    if (!key.startsWith(PREFIX)) return;
    if (after !== undefined) this.#seen(core, after);
    else if (before !== undefined) this.#wasLost(core, before, false);
  }

  #seen(core: ApiServer, stored: EtcdObject): void {
    const id = `${core.name}/${nameOf(stored.key)}`;
    const known = this.#present.get(id);
    const isSame = known !== undefined && uidOf(known.stored) === uidOf(stored);
    const isWithdrawn = isSame && isMarked(known.stored.value) && !isMarked(stored.value);
    // The mark may be the last that a replica's cache has seen.
    if (isWithdrawn) this.#released.add(uidOf(stored));
    const isAsBefore = isSame && !isWithdrawn && covers(specOf(known.stored), specOf(stored));
    this.#present.set(id, { stored, sinceMs: isAsBefore ? known.sinceMs : this.#world.time.elapsedMs });
    if (!isSame) this.#appeared(id, stored, known !== undefined);
  }

  /**
   * Some replicas did not know of the protector until now: they learn of it within the confirmation window, and nobody
   * knows what they have allowed before. So these pods are exempt, unless every replica has protected them all the
   * time.
   */
  #appeared(id: string, stored: EtcdObject, isReplaced: boolean): void {
    const { replicas, cells, exemptions } = this.#world;
    const loss = this.#lost.get(id);
    this.#lost.delete(id);
    const isKnown =
      loss?.isReleased === false &&
      promises(loss.last) &&
      selectorOf(specOf(loss.last)) === selectorOf(specOf(stored)) &&
      replicas.every((replica) => [...cells.keys()].every((cell) => this.#knows(replica, cell, loss) !== undefined));
    const name = nameOf(stored.key);
    if (isKnown && !isReplaced) {
      exemptions.succeeded(name, loss.atMs);
      return;
    }
    exemptInFlight(this.#world, name);
    exemptions.uncertain(name);
  }

  #wasLost(core: ApiServer, before: EtcdObject, isRestored: boolean): void {
    const { replicas, time, coverage } = this.#world;
    const name = nameOf(before.key);
    const id = `${core.name}/${name}`;
    const atMs = time.elapsedMs;
    const sinceMs = this.#present.get(id)?.sinceMs ?? atMs;
    this.#present.delete(id);
    // A restore of the core is no deletion. A mark is there because somebody has released the protector, and so is a
    // record, also one in a core that is restored to a state after the release.
    const isDeleted = isByHand(before.value) && !isRestored;
    const isReleased = isMarked(before.value) || isDeleted || this.#isRecorded(core, uidOf(before));
    const wasKnown = atMs - sinceMs > KNOWN_AFTER_MS;
    const knowers = new Set(wasKnown ? replicas.filter(({ serving }) => serving) : []);
    const revivedMs = !wasKnown && this.#wasReleased(id, before) ? sinceMs : undefined;
    const loss = { core: core.name, name, last: before, atMs, isReleased, isRaised: !wasKnown, revivedMs, knowers };
    this.#lost.set(id, loss);
    coverage.rule(isReleased ? "backups: a protector is released" : "backups: a protector is lost");
    if (isReleased) this.#noteRelease(id, loss);
  }

  /** A generator that was about to release a protector that was lost meanwhile still records the release. */
  #recorded(core: ApiServer): void {
    for (const [id, loss] of this.#lost) {
      if (loss.core !== core.name || loss.isReleased || !this.#isRecorded(core, uidOf(loss.last))) continue;
      this.#lost.set(id, { ...loss, isReleased: true });
      this.#noteRelease(id, loss);
    }
  }

  #noteRelease(id: string, { name, last }: Loss): void {
    const { exemptions } = this.#world;
    this.#released.add(uidOf(last));
    this.#youngestReleased.set(id, Math.max(this.#youngestReleased.get(id) ?? 0, madeMs(last)));
    for (const [cell, uids] of reservedUids(last)) for (const uid of uids) exemptions.add(name, cell, uid);
    exemptions.uncertain(name);
  }

  /** True where the protector was released, or a later one of its name, whose record ends it as well. */
  #wasReleased(id: string, stored: EtcdObject): boolean {
    const youngestMs = this.#youngestReleased.get(id) ?? Number.NEGATIVE_INFINITY;
    return this.#released.has(uidOf(stored)) || youngestMs - CLOCKS_APART_MS >= madeMs(stored);
  }

  /** Says why this replica has to know of the loss in requests of this cell; undefined: it need not know. */
  #knows(replica: Replica, cell: string, { knowers, last, revivedMs }: Loss): string | undefined {
    if (knowers.has(replica)) return "has seen it";
    if (revivedMs !== undefined && this.#startOf(replica) < revivedMs) return undefined;
    const backup = this.#backups.get(cell)?.get(uidOf(last));
    // A backup with another selector does not cover this pod, and one of before may promise nothing.
    if (backup === undefined || selectorOf(backup.spec) !== selectorOf(specOf(last))) return undefined;
    if (!promisesPods(backup.spec)) return undefined;
    return backup.sinceMs <= this.#startOf(replica) ? `could read a backup in ${cell} when it started` : undefined;
  }

  #startOf(replica: Replica): number {
    return this.#startedMs.get(replica) ?? 0;
  }

  #isRecorded(core: ApiServer, uid: string): boolean {
    return core.etcd
      .range(REGISTER)
      .some(
        ({ value }) =>
          record(metadataOf(value).labels)[REGISTER_LABEL] !== undefined && record(value.data)[uid] !== undefined,
      );
  }
}

function nameOf(key: string): string {
  return key.slice(PREFIX.length);
}

function madeMs({ value }: EtcdObject): number {
  return Date.parse(text(metadataOf(value).creationTimestamp) ?? "");
}

export function uidOf({ value }: EtcdObject): string {
  return text(metadataOf(value).uid) ?? "";
}

export function specOf({ value }: EtcdObject): Json {
  return record(value.spec);
}

/** Without both marks of the generator a protector counts as made by hand, and its deletion releases it. */
export function isByHand(value: Json): boolean {
  const { finalizers, labels } = metadataOf(value);
  const isHeld = Array.isArray(finalizers) && finalizers.includes(GENERATOR_FINALIZER);
  return !isHeld && record(labels)[SOURCE_NAME_LABEL] === undefined;
}

export function isMarked(value: Json): boolean {
  return record(metadataOf(value).annotations)[RELEASED_ANNOTATION] !== undefined;
}
