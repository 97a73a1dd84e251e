/** L6: who is told that the capacity is at its minimum is told so by a version that was stored while the review was made. */
import { estimate } from "../../../shared/decide/estimate.ts";
import { parseProtector } from "../../../shared/decide/quota.ts";
import type { Change } from "../apiserver/etcd.ts";
import { parse } from "./checks.ts";
import type { InFlight } from "./reviews.ts";

interface Moment {
  readonly atMs: number;
  /** One more disruption is possible, as this version says. */
  readonly isOpen: boolean;
}

/** Reviews take at most 30 s; older versions justify nothing. */
const KEPT_MS = 60_000;
const AT_MINIMUM = "capacity is at the minimum";

export class Rejections {
  readonly #violation: (invariant: string, message: string) => void;
  readonly #nowMs: () => number;
  readonly #moments = new Map<string, Moment[]>();

  constructor(violation: (invariant: string, message: string) => void, nowMs: () => number) {
    this.#violation = violation;
    this.#nowMs = nowMs;
  }

  changed({ key, after }: Change): void {
    const atMs = this.#nowMs();
    const moments = this.#moments.get(key) ?? [];
    const protector = after === undefined ? undefined : parse(after);
    const isOpen = protector === undefined || estimate(parseProtector(protector)).counted > protector.spec.minAvailable;
    while ((moments[1]?.atMs ?? Number.POSITIVE_INFINITY) < atMs - KEPT_MS) moments.shift();
    moments.push({ atMs, isOpen });
    this.#moments.set(key, moments);
  }

  /** A restored core: versions come back that were not written anew. */
  forget(): void {
    this.#moments.clear();
  }

  refused(flight: InFlight, message: string): void {
    if (!message.includes(AT_MINIMUM)) return;
    for (const moments of this.#moments.values()) {
      let last = moments.length - 1;
      for (; last >= 0; last -= 1) {
        const moment = moments[last];
        if (moment === undefined || !moment.isOpen) return;
        if (moment.atMs < flight.askedMs) break;
      }
      if (last < 0) return;
    }
    if (this.#moments.size > 0)
      this.#violation("L6", `${flight.key} was refused, and no version since it was asked says so`);
  }
}
