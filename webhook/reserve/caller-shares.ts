/**
 * Which callers leave half of a protector's quota to others, because the disruptions that they reserved lately did not
 * happen (docs/design.md#callers-whose-disruptions-do-not-happen). Loaded with the first reservation.
 */

import { hash } from "node:crypto";
import { isDead } from "../../shared/decide/availability/availability.ts";
import type { DisruptionRequest } from "../../shared/decide/quota.ts";
import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { BoundedMap } from "../../shared/runtime/bounded-map.ts";
import { type Ports, sleep } from "../../shared/runtime/clock.ts";
import type { CellClient, LiveRead } from "../request/cell-client.ts";
import { trimmed } from "./recent-reservations.ts";

export interface Requester {
  /** The address of the connection. A caller can choose its user name, but not its address. */
  readonly address: string | undefined;
  readonly username: string;
}

interface CallerSharesOptions {
  readonly ports: Pick<Ports, "clock" | "timers">;
  readonly settleMs: number;
  readonly cells: ReadonlyMap<string, Pick<CellClient, "readPod">>;
}

type Reserved = Pick<DisruptionRequest, "cell" | "operation" | "pod">;

/** A reservation, until it is judged. */
interface Watched {
  readonly dueMs: number;
  readonly protector: string;
  readonly address: string;
  readonly username: string;
  readonly disruption: Reserved;
  /**
   * The pod's generation in a read that was sent before the response, if the pod was alive then. Only such a
   * reservation shows whether disruptions of its address happen: what a forged review says of a pod may never have been
   * so.
   */
  readonly generation: Promise<number | undefined> | undefined;
  readonly newest: () => Pick<ProtectorVersion, "state"> | undefined;
}

/** A reservation is judged this part of a settle period after it was made, while R3 can't have settled it yet. */
const JUDGED_AFTER = 0.8;
/** How long a caller leaves the share, in settle periods: ten minutes by default. */
const KEPT_FOR = 8;
/**
 * Reservations under watch, some 2 KB each at most. At the limit, those that have happened are dropped; new ones are
 * ignored if that is not enough.
 */
const MAX_WATCHED = 2_000;
const SWEEP_EVERY_MS = 1_000;
/** Protectors and addresses that are remembered, with their users; the oldest go first. */
const MAX_ADDRESSES = 1_000;
/** With more users, an address counts as one caller that makes up names. */
const MAX_USERS = 4;
/** At this many outcomes of an address, the earlier ones are halved. */
const MAX_OUTCOMES = 64;
const MAX_READ_MS = 3_000;
/** Reads of pods in flight before their responses. Beyond it, a reservation tells nothing of its address. */
const MAX_FIRST_READS = 32;
const MAX_USERNAME = 64;

export class CallerShares {
  readonly #options: CallerSharesOptions;
  #watched: Watched[] = [];
  /** Outcomes of the reservations of an address, from the first one that did not happen. */
  readonly #outcomes = new BoundedMap<string, { happened: number; unhappened: number }>(MAX_ADDRESSES);
  /** By protector and address: until when each user leaves the share, monotonic. */
  readonly #unhappened = new BoundedMap<string, BoundedMap<string, number>>(MAX_ADDRESSES);
  #sweptMs = Number.NEGATIVE_INFINITY;
  #isJudging = false;
  #firstReads = 0;

  constructor(options: CallerSharesOptions) {
    this.#options = options;
  }

  keepsShare(protector: string, { address, username }: Requester): boolean {
    if (this.#unhappened.size === 0) return false;
    const users = this.#unhappened.get(`${protector} ${address}`);
    if (users === undefined || this.#mostlyHappens(address)) return false;
    const nowMs = this.#nowMs();
    for (const [user, untilMs] of users) if (untilMs <= nowMs) users.delete(user);
    return users.size >= MAX_USERS || users.has(shortName(username));
  }

  /** A reservation was written for this caller, and is not answered yet. */
  reserved(protector: string, caller: Requester, { cell, operation, pod }: Reserved, newest: Watched["newest"]): void {
    const { settleMs } = this.#options;
    const nowMs = this.#nowMs();
    if (this.#watched.length >= MAX_WATCHED && nowMs - this.#sweptMs >= SWEEP_EVERY_MS) {
      this.#sweptMs = nowMs;
      this.#watched = this.#watched.filter(isStored);
    }
    if (caller.address === undefined || this.#watched.length >= MAX_WATCHED) return;
    const disruption = { cell, operation, pod: trimmed(pod) };
    this.#watched.push({
      ...{ dueMs: nowMs + JUDGED_AFTER * settleMs, protector, newest, disruption },
      ...{ address: caller.address, username: shortName(caller.username) },
      generation: this.#outcomes.has(caller.address) ? this.#generationOf(disruption) : undefined,
    });
    if (!this.#isJudging) void this.#judgeAll();
  }

  async #judgeAll(): Promise<void> {
    this.#isJudging = true;
    for (let next = this.#watched[0]; next !== undefined; next = this.#watched[0]) {
      const waitMs = next.dueMs - this.#nowMs();
      if (waitMs > 0) await sleep(this.#options.ports, waitMs);
      else {
        this.#watched.shift();
        await this.#judge(next);
      }
    }
    this.#isJudging = false;
  }

  async #read({ cell, pod }: Reserved): Promise<LiveRead | undefined> {
    return await this.#options.cells.get(cell)?.readPod?.(pod.namespace, pod.name, MAX_READ_MS);
  }

  async #generationOf(disruption: Reserved): Promise<number | undefined> {
    if (this.#firstReads >= MAX_FIRST_READS) return undefined;
    this.#firstReads++;
    const live = await this.#read(disruption);
    this.#firstReads--;
    return live?.kind === "found" && !isOver(live, disruption) ? live.pod.generation : undefined;
  }

  async #judge(watched: Watched): Promise<void> {
    const { address, disruption } = watched;
    const stored = isStored(watched);
    const isFirst = !this.#outcomes.has(address);
    if (!stored && isFirst) return;
    const live = await this.#read(disruption);
    if (live === undefined || live.kind === "failed") return this.#forgetDue(disruption.cell);
    const generation = await watched.generation;
    const isChange = disruption.operation === "UPDATE" && live.kind === "found" && !isOver(live, disruption);
    // Before Kubernetes 1.33, no generation shows a change.
    if (isChange && live.pod.generation < 1) return;
    const hasChanged = isChange && live.pod.generation > (generation ?? disruption.pod.generation);
    const hasHappened = hasChanged || isOver(live, disruption);
    // A reservation that a newer version of the pod superseded uses no quota.
    if (!hasHappened && !stored) return;
    if (isFirst || generation !== undefined) this.#count(address, hasHappened);
    if (!hasHappened) this.#remember(watched);
  }

  /** A cell that does not answer must not hold up what is to be judged in others, and tells nothing. */
  #forgetDue(cell: string): void {
    const nowMs = this.#nowMs();
    this.#watched = this.#watched.filter(({ dueMs, disruption }) => dueMs > nowMs || disruption.cell !== cell);
  }

  /**
   * True for a real apiserver, even if something else denies some of its requests. No forged request makes a disruption
   * happen.
   */
  #mostlyHappens(address: string | undefined): boolean {
    const { happened, unhappened } = this.#outcomes.get(address ?? "") ?? { happened: 0, unhappened: 0 };
    return happened > unhappened;
  }

  #count(address: string, hasHappened: boolean): void {
    const before = this.#outcomes.get(address);
    if (before === undefined && hasHappened) return;
    const { happened, unhappened } = before ?? { happened: 0, unhappened: 0 };
    // Old outcomes count less and less.
    const weight = happened + unhappened >= MAX_OUTCOMES ? 0.5 : 1;
    const [more, others] = [Number(hasHappened), Number(!hasHappened)];
    this.#outcomes.set(address, { happened: weight * happened + more, unhappened: weight * unhappened + others });
  }

  #remember({ protector, address, username }: Watched): void {
    const key = `${protector} ${address}`;
    const users = this.#unhappened.getOrMake(key, () => new BoundedMap<string, number>(MAX_USERS));
    users.set(username, this.#nowMs() + KEPT_FOR * this.#options.settleMs);
  }

  #nowMs(): number {
    return this.#options.ports.clock.monotonicMs();
  }
}

/** Whatever the disruption was, its pod no longer serves. */
function isOver(live: LiveRead, { pod }: Reserved): boolean {
  return live.kind !== "found" || live.pod.uid !== pod.uid || isDead(live.pod);
}

/** The reservation still uses quota: no aggregator has seen its disruption. */
function isStored({ disruption: { cell, pod }, newest }: Watched): boolean {
  return newest()?.state.cells.get(cell)?.ledger.get(pod.uid, pod.name)?.weight === 1;
}

function shortName(username: string): string {
  return username.length <= MAX_USERNAME ? username : hash("sha256", username, "base64");
}
