/**
 * Protectors that are gone from their core, by what is stored, and what is owed of them: while the loss is not meant, whoever has seen the
 * protector, or could read a copy of it, lets no available pod go (S11); in the end nothing is held back by what was released (L7).
 */

import { REGISTER_LABEL } from "../../../shared/recovery/register/register-format.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION, SOURCE_NAME_LABEL } from "../../../shared/schema/annotations.ts";
import type { Answered, InFlight } from "../actors/admission-requests.ts";
import { exemptUnderWay } from "../actors/operators.ts";
import type { Replica } from "../actors/replica.ts";
import type { EtcdChange, Json, Stored } from "../apiserver/etcd.ts";
import { metadataOf, record, text } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import { type StoredCopies, selectorOf } from "../backups/stored-backups.ts";
import { OWN_NAMESPACE } from "../judge/admission-rows.ts";
import type { World } from "../world/world.ts";
import { parse, reservedUids, wantedOf } from "./stored-protectors.ts";

const PREFIX = "podprotectors/default/";
/** A replica may trust its cache for so long (design 5.4), and a little for what is under way: it has seen what was there for longer. */
const KNOWN_AFTER_MS = 20_000;
/** A live read of a pod is no older, times of conditions are rounded to seconds. */
const READ_MS = 2_000;

interface Present {
  readonly stored: Stored;
  /** Since when it has been there with this selector. */
  readonly sinceMs: number;
}

export interface Gone {
  readonly core: string;
  readonly name: string;
  /** As it was stored last. */
  readonly last: Stored;
  readonly atMs: number;
  /** It was released, or about to be: who has seen the mark lets go, and who has not may hold back. */
  readonly isMeant: boolean;
  /** Those who have seen it themselves. */
  readonly knowers: ReadonlySet<Replica>;
}

export class GoneProtectors {
  readonly #world: World;
  readonly #copies: ReadonlyMap<string, StoredCopies>;
  /** By `core/name`. */
  readonly #present = new Map<string, Present>();
  readonly #gone = new Map<string, Gone>();
  readonly #startedMs = new WeakMap<Replica, number>();

  constructor(world: World, copies: ReadonlyMap<string, StoredCopies>) {
    this.#world = world;
    this.#copies = copies;
    for (const core of world.cores.values()) core.etcd.observe((change) => this.#changed(core, change));
  }

  started(replica: Replica): void {
    this.#startedMs.set(replica, this.#world.time.elapsedMs);
  }

  values(): Iterable<Gone> {
    return this.#gone.values();
  }

  /** Its storage was replaced by an older one. */
  coreRestored(core: ApiServer): void {
    const stored = new Map(core.etcd.range(PREFIX).map((one) => [nameOf(one.key), one]));
    for (const [id, { stored: before }] of [...this.#present]) {
      const name = id.slice(core.name.length + 1);
      if (id === `${core.name}/${name}` && !stored.has(name)) this.#vanished(core, before, true);
    }
    for (const one of stored.values()) this.#seen(core, one);
  }

  /** S11. */
  answered(cell: string, flight: InFlight | undefined, { allowed, reasons, by }: Answered): void {
    if (flight === undefined || by === undefined || flight.forced || !flight.key.startsWith("pods/default/")) return;
    const { coverage, reviews } = { coverage: this.#world.coverage, reviews: this.#world.cells.get(cell)?.reviews };
    for (const gone of this.#gone.values()) {
      if (!allowed && reasons.includes("Vanished") && !gone.knowers.has(by) && this.#startOf(by) > gone.atMs)
        coverage.rule("copies: refused by a replica that started after the loss");
      if (!allowed || gone.isMeant || flight.askedMs < gone.atMs) continue;
      const stored = reviews?.stored(flight);
      // Reviewed at a version that can't be committed any more.
      if (stored === undefined || (flight.revision !== undefined && flight.revision !== stored.revision)) continue;
      // What is evicted, at no version of it, may have become available since it was read last.
      const isRead = flight.operation === "EVICT" && reasons.includes("Unavailable");
      const wanted = { ...wantedOf(parse(gone.last)), minReadySeconds: isRead ? 1 : 0 };
      const cutoffMs = this.#world.time.clock.nowMs() - READ_MS;
      if (this.#world.cells.get(cell)?.pods.isAvailableNow(flight.uid, wanted, cutoffMs) !== true) continue;
      const knows = this.#knows(by, cell, gone);
      if (knows === undefined) coverage.rule("copies: let go by a replica that nobody has told of a loss");
      else
        this.#world.violation(
          "S11",
          `${flight.key} was let go (${reasons.join() || "-"}) although ${gone.core}/${gone.name} has vanished since ${Math.round(gone.atMs)} ms: the replica ${knows}`,
        );
    }
  }

  #changed(core: ApiServer, { key, before, after }: EtcdChange): void {
    if (!key.startsWith(PREFIX)) return;
    if (after !== undefined) this.#seen(core, after);
    else if (before !== undefined) this.#vanished(core, before, false);
  }

  #seen(core: ApiServer, stored: Stored): void {
    const id = `${core.name}/${nameOf(stored.key)}`;
    const known = this.#present.get(id);
    const isSame = known !== undefined && uidOf(known.stored) === uidOf(stored);
    const isAsBefore = isSame && selectorOf(specOf(known.stored)) === selectorOf(specOf(stored));
    this.#present.set(id, { stored, sinceMs: isAsBefore ? known.sinceMs : this.#world.time.elapsedMs });
    if (!isSame) this.#appeared(id, stored, known !== undefined);
  }

  /**
   * Nothing protected these pods before, as far as some replica knows, or not all of them: what it has let go nobody else can know of, and
   * it learns of what there is now within the confirmation window.
   */
  #appeared(id: string, stored: Stored, isReplaced: boolean): void {
    const { webhooks, cells, exemptions } = this.#world;
    const gone = this.#gone.get(id);
    this.#gone.delete(id);
    const isKnown =
      gone?.isMeant === false &&
      selectorOf(specOf(gone.last)) === selectorOf(specOf(stored)) &&
      webhooks.every((replica) => [...cells.keys()].every((cell) => this.#knows(replica, cell, gone) !== undefined));
    if (isKnown && !isReplaced) return;
    exemptUnderWay(this.#world, nameOf(stored.key));
    exemptions.uncertain(nameOf(stored.key));
  }

  #vanished(core: ApiServer, before: Stored, isRestored: boolean): void {
    const { webhooks, time, exemptions, coverage } = this.#world;
    const name = nameOf(before.key);
    const id = `${core.name}/${name}`;
    const atMs = time.elapsedMs;
    const sinceMs = this.#present.get(id)?.sinceMs ?? atMs;
    this.#present.delete(id);
    // That a core goes back is no deletion, and takes the record along; a mark is there because somebody wanted the end.
    const isOver = isByHand(before.value) || this.#isRecorded(core, uidOf(before));
    const isMeant = isMarked(before.value) || (!isRestored && isOver);
    const wasKnown = atMs - sinceMs > KNOWN_AFTER_MS;
    const knowers = new Set(wasKnown ? webhooks.filter(({ serving }) => serving) : []);
    this.#gone.set(id, { core: core.name, name, last: before, atMs, isMeant, knowers });
    coverage.rule(isMeant ? "copies: a protector is released" : "copies: a protector vanishes");
    if (!isMeant) return;
    for (const [cell, uids] of reservedUids(before)) for (const uid of uids) exemptions.add(name, cell, uid);
    exemptions.uncertain(name);
  }

  /** What makes this replica know of the loss, in reviews of this cell; undefined: nothing that was promised. */
  #knows(replica: Replica, cell: string, { knowers, last }: Gone): string | undefined {
    if (knowers.has(replica)) return "has seen it";
    const copy = this.#copies.get(cell)?.get(uidOf(last));
    // With another selector it was not told of this pod.
    if (copy === undefined || selectorOf(copy.spec) !== selectorOf(specOf(last))) return undefined;
    return copy.sinceMs <= this.#startOf(replica) ? `could read a copy in ${cell} when it started` : undefined;
  }

  #startOf(replica: Replica): number {
    return this.#startedMs.get(replica) ?? 0;
  }

  #isRecorded(core: ApiServer, uid: string): boolean {
    return core.etcd
      .range(`configmaps/${OWN_NAMESPACE}/`)
      .some(
        ({ value }) =>
          record(metadataOf(value).labels)[REGISTER_LABEL] !== undefined && record(value.data)[uid] !== undefined,
      );
  }
}

function nameOf(key: string): string {
  return key.slice(PREFIX.length);
}

export function uidOf({ value }: Stored): string {
  return text(metadataOf(value).uid) ?? "";
}

export function specOf({ value }: Stored): Json {
  return record(value.spec);
}

/** Without both marks of the generator it is one that was made by hand: whoever deletes it releases it. */
export function isByHand(value: Json): boolean {
  const { finalizers, labels } = metadataOf(value);
  const isHeld = Array.isArray(finalizers) && finalizers.includes(GENERATOR_FINALIZER);
  return !isHeld && record(labels)[SOURCE_NAME_LABEL] === undefined;
}

export function isMarked(value: Json): boolean {
  return record(metadataOf(value).annotations)[RELEASED_ANNOTATION] !== undefined;
}
