/** L6: each rejection is justified by a version of its protector that was stored while the review was made. */

import { type Estimate, estimate } from "../../../shared/decide/state/estimate.ts";
import { type ProtectorState, parseProtector } from "../../../shared/decide/state/protector-state.ts";
import type { InFlight } from "../actors/admission-requests.ts";
import type { EtcdChange, Stored } from "../apiserver/etcd.ts";
import { parse } from "../truth/stored-protectors.ts";

interface Moment {
  readonly atMs: number;
  /** Undefined: it was not there. */
  readonly stored: Stored | undefined;
}

interface Reading {
  readonly state: ProtectorState;
  readonly sums: Estimate;
}

/** Reviews take at most 30 s; older versions justify nothing. */
const KEPT_MS = 60_000;

export class Rejections {
  readonly #violation: (invariant: string, message: string) => void;
  readonly #nowMs: () => number;
  /** By `core/namespace/name`, as a decision names its protector. */
  readonly #moments = new Map<string, Moment[]>();

  constructor(violation: (invariant: string, message: string) => void, nowMs: () => number) {
    this.#violation = violation;
    this.#nowMs = nowMs;
  }

  changed(core: string, { key, after }: EtcdChange): void {
    const atMs = this.#nowMs();
    const id = `${core}/${key.slice(key.indexOf("/") + 1)}`;
    const moments = this.#moments.get(id) ?? [];
    while ((moments[1]?.atMs ?? Number.POSITIVE_INFINITY) < atMs - KEPT_MS) moments.shift();
    moments.push({ atMs, stored: after });
    this.#moments.set(id, moments);
  }

  /** A restored core: versions come back that were not written anew. */
  forget(): void {
    this.#moments.clear();
  }

  /** `decisions`: `core/namespace/name=Cause` of each protector that refused. */
  refused(cell: string, flight: InFlight, decisions: readonly string[]): void {
    for (const decision of decisions) {
      const at = decision.indexOf("=");
      const moments = this.#moments.get(decision.slice(0, at));
      const cause = decision.slice(at + 1);
      if (moments === undefined || isJustified(moments, flight.askedMs, cause, cell)) continue;
      this.#violation("L6", `${flight.key} was refused (${decision}), and no version since it was asked says so`);
    }
  }
}

function isJustified(moments: readonly Moment[], askedMs: number, cause: string, cell: string): boolean {
  for (let last = moments.length - 1; last >= 0; last -= 1) {
    const moment = moments[last];
    if (moment === undefined || says(moment, cause, cell)) return true;
    if (moment.atMs < askedMs) return false;
  }
  // What was stored before is not known any more.
  return true;
}

const readings = new WeakMap<Stored, Reading>();

/** Made when the first refusal asks for it: most versions are never asked about. */
function readingOf(stored: Stored): Reading {
  let reading = readings.get(stored);
  if (reading === undefined) {
    const state = parseProtector(parse(stored));
    reading = { state, sums: estimate(state) };
    readings.set(stored, reading);
  }
  return reading;
}

const JUDGED = ["AtMinimum", "Reserved", "OnHold", "NotCounted"];

/** Does this version refuse for that cause? Causes that no version alone decides are not judged. */
function says({ stored }: Moment, cause: string, cell: string): boolean {
  if (!JUDGED.includes(cause)) return true;
  if (stored === undefined) return false;
  const { state, sums } = readingOf(stored);
  const { minAvailable } = state.spec;
  switch (cause) {
    case "AtMinimum":
      return sums.counted <= minAvailable;
    case "Reserved":
      return sums.estimated <= minAvailable;
    case "OnHold":
      return state.cells.get(cell)?.isOnHold === true;
    case "NotCounted":
      return state.cells.get(cell)?.isCounted !== true;
    default:
      return true;
  }
}
