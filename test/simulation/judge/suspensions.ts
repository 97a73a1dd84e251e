/**
 * Suspended protectors (design 9), by the versions that were stored: who is let go by one is let go rightly only while it was suspended,
 * by the clock of the replica that said so, and nothing is promised of that pod. From the expiry on everything else holds again.
 */
import { parseMs } from "../../../shared/schema/time.ts";
import type { Answered, InFlight } from "../actors/admission-requests.ts";
import type { Stored } from "../apiserver/etcd.ts";
import { parse } from "../truth/stored-protectors.ts";
import type { SeenRule } from "./coverage.ts";
import type { Exemptions } from "./exemptions.ts";

/** A replica may decide on a version that was replaced so long ago (design 5.4), and a little for what is under way. */
const KNOWN_AGO_MS = 20_000;

interface Version {
  /** Wall clock; 0: not suspended. */
  readonly untilMs: number;
  endedMs: number;
}

interface Held {
  readonly allowed: boolean;
  readonly reason: string | undefined;
  readonly latestMs: number;
}

export interface SuspensionWorld {
  readonly exemptions: Exemptions;
  elapsedMs(): number;
  rule(name: SeenRule): void;
  violation(invariant: string, message: string): void;
}

export class Suspensions {
  readonly #world: SuspensionWorld;
  /** By the protector's name; only of those that were ever suspended. */
  readonly #versions = new Map<string, Version[]>();

  constructor(world: SuspensionWorld) {
    this.#world = world;
  }

  /** A version was stored, or came back. */
  stored(name: string, stored: Stored | undefined): void {
    const untilMs = stored === undefined ? 0 : suspendedUntilMs(stored);
    const versions = this.#versions.get(name) ?? [{ untilMs: 0, endedMs: Number.POSITIVE_INFINITY }];
    const last = versions.at(-1);
    if (last === undefined || last.untilMs === untilMs) return;
    last.endedMs = this.#world.elapsedMs();
    versions.push({ untilMs, endedMs: Number.POSITIVE_INFINITY });
    this.#versions.set(name, versions);
  }

  answered(cell: string, flight: InFlight | undefined, { decisions, allowed, wallMs }: Answered): void {
    if (flight === undefined) return;
    for (const decision of decisions) {
      const [id = "", reason] = decision.split("=");
      const name = id.slice(id.lastIndexOf("/") + 1);
      if (reason === "Suspended" && allowed) this.#letGo(name, cell, flight, wallMs.earliest);
      else this.#held(name, flight, { allowed, reason, latestMs: wallMs.latest });
    }
  }

  #letGo(name: string, cell: string, flight: InFlight, wallMs: number): void {
    const knownMs = flight.askedMs - KNOWN_AGO_MS;
    const versions = this.#versions.get(name) ?? [];
    if (versions.some(({ untilMs, endedMs }) => untilMs > wallMs && endedMs >= knownMs))
      this.#world.exemptions.suspended(name, flight.uid);
    else this.#world.violation("S8", `${cell} ${flight.key} was let go by ${name}, which is not suspended`);
  }

  /** By quota: with every clock that may have been read, no version since it was asked may have been suspended all the time. */
  #held(name: string, flight: InFlight, { allowed, reason, latestMs }: Held): void {
    const versions = this.#versions.get(name);
    const last = versions?.at(-1);
    if (versions === undefined || last === undefined) return;
    if (last.untilMs > 0 && last.untilMs <= latestMs) this.#world.rule("decided by quota after a suspension");
    const since = versions.filter(({ endedMs }) => endedMs >= flight.askedMs);
    if (!allowed && JUDGED.has(reason ?? "") && since.every(({ untilMs }) => untilMs > latestMs))
      this.#world.violation("L6", `${flight.key} was refused by ${name} (${reason}), which is suspended`);
  }
}

/** Refusals by the count: confirmed by a read of the object, so that they know of the suspension. */
const JUDGED: ReadonlySet<string> = new Set(["AtMinimum", "Reserved", "OnHold", "NotCounted", "UnhealthyBudget"]);

function suspendedUntilMs(stored: Stored): number {
  const { suspend } = parse(stored).spec;
  if (suspend?.enabled !== true) return 0;
  return suspend.until === undefined ? Number.POSITIVE_INFINITY : parseMs(suspend.until);
}
