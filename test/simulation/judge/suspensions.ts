/**
 * Checks suspended protectors (docs/design.md#suspension) by their stored versions. A protector may allow a disruption
 * as suspended only while it was, by the clock of the replica that decided. It promises nothing of a pod that it
 * allowed without a record. From the end of the suspension on, everything else holds again.
 */

import { parseMs } from "../../../shared/schema/time.ts";
import type { InFlightRequest, ObservedResponse } from "../actors/admission-requests.ts";
import type { EtcdObject } from "../apiserver/etcd.ts";
import { type Disrupted, parseStored } from "../truth/stored-protectors.ts";
import type { SeenRule } from "./coverage.ts";
import type { Exemptions } from "./exemptions.ts";

/** A replica may decide on a version that was replaced so long ago, with some time for requests in flight. */
const KNOWN_AGO_MS = 20_000;

interface Version {
  /** End of the suspension by the wall clock; 0: not suspended. */
  readonly untilMs: number;
  endedMs: number;
}

interface Held {
  readonly allowed: boolean;
  readonly reason: string | undefined;
  readonly latestMs: number;
}

interface SuspensionWorld {
  readonly exemptions: Exemptions;
  elapsedMs(): number;
  /** True when the protector has a record that stands for the request. */
  isRecorded(name: string, cell: string, request: Disrupted): boolean;
  rule(name: SeenRule): void;
  violation(invariant: string, message: string): void;
}

export class Suspensions {
  readonly #world: SuspensionWorld;
  /** By the protector's name; only protectors that were ever suspended. */
  readonly #versions = new Map<string, Version[]>();

  constructor(world: SuspensionWorld) {
    this.#world = world;
  }

  /** A version was stored, or a restore has brought it back. */
  stored(name: string, stored: EtcdObject | undefined): void {
    const untilMs = stored === undefined ? 0 : suspendedUntilMs(stored);
    const versions = this.#versions.get(name) ?? [{ untilMs: 0, endedMs: Number.POSITIVE_INFINITY }];
    const last = versions.at(-1);
    if (last === undefined || last.untilMs === untilMs) return;
    last.endedMs = this.#world.elapsedMs();
    versions.push({ untilMs, endedMs: Number.POSITIVE_INFINITY });
    this.#versions.set(name, versions);
  }

  responded(
    cell: string,
    inFlight: InFlightRequest | undefined,
    { decisions, allowed, wallMs }: ObservedResponse,
  ): void {
    if (inFlight === undefined) return;
    for (const decision of decisions) {
      const [id = "", reason] = decision.split("=");
      const name = id.slice(id.lastIndexOf("/") + 1);
      if (reason === "Suspended" && allowed) this.#allowedAsSuspended(name, cell, inFlight, wallMs.earliest);
      else if (reason === "NothingPromised") this.#allowedRegardless(name, cell, inFlight);
      else this.#decidedByQuota(name, inFlight, { allowed, reason, latestMs: wallMs.latest });
    }
  }

  #allowedAsSuspended(name: string, cell: string, inFlight: InFlightRequest, wallMs: number): void {
    const knownMs = inFlight.askedMs - KNOWN_AGO_MS;
    const versions = this.#versions.get(name) ?? [];
    if (versions.some(({ untilMs, endedMs }) => untilMs > wallMs && endedMs >= knownMs))
      this.#allowedRegardless(name, cell, inFlight);
    else this.#world.violation("S8", `${cell} ${inFlight.key} was allowed as suspended by ${name}, which is not`);
  }

  #allowedRegardless(name: string, cell: string, inFlight: InFlightRequest): void {
    const isRecorded = this.#world.isRecorded(name, cell, inFlight);
    this.#world.exemptions.allowedRegardless(name, inFlight.uid, isRecorded);
  }

  /**
   * Decided by quota: no protector may be suspended in all its versions since the request, by any clock that was read.
   */
  #decidedByQuota(name: string, inFlight: InFlightRequest, { allowed, reason, latestMs }: Held): void {
    const versions = this.#versions.get(name);
    const last = versions?.at(-1);
    if (versions === undefined || last === undefined) return;
    if (last.untilMs > 0 && last.untilMs <= latestMs) this.#world.rule("decided by quota after a suspension");
    const since = versions.filter(({ endedMs }) => endedMs >= inFlight.askedMs);
    if (!allowed && JUDGED.has(reason ?? "") && since.every(({ untilMs }) => untilMs > latestMs))
      this.#world.violation("L6", `${inFlight.key} was denied by ${name} (${reason}), which is suspended`);
  }
}

/** Denials by the count. A read of the object confirms them, so they know of the suspension. */
const JUDGED: ReadonlySet<string> = new Set(["AtMinimum", "Reserved", "OnHold", "NotCounted", "UnhealthyBudget"]);

function suspendedUntilMs(stored: EtcdObject): number {
  const { suspend } = parseStored(stored).spec;
  if (suspend?.enabled !== true) return 0;
  return suspend.until === undefined ? Number.POSITIVE_INFINITY : parseMs(suspend.until);
}
