/**
 * L6 (docs/design.md#invariants): each denial is justified by a version of its protector that was stored while the
 * request was decided.
 */

import { type Estimate, estimate } from "../../../shared/decide/state/estimate.ts";
import { type ProtectorState, parseProtector } from "../../../shared/decide/state/protector-state.ts";
import type { InFlightRequest } from "../actors/admission-requests.ts";
import type { EtcdChange, EtcdObject } from "../apiserver/etcd.ts";
import { parseStored } from "../truth/stored-protectors.ts";

interface Moment {
  readonly atMs: number;
  /** Undefined: the protector did not exist. */
  readonly stored: EtcdObject | undefined;
}

interface Reading {
  readonly state: ProtectorState;
  readonly sums: Estimate;
}

/** Requests take at most 30 s. Older versions justify no denial. */
const KEPT_MS = 60_000;

export class Denials {
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

  /** Forgets everything after a restore of a core, which brings versions back without writing them. */
  forget(): void {
    this.#moments.clear();
  }

  /** `decisions`: `core/namespace/name=Cause` of each protector that denied the request. */
  denied(cell: string, inFlight: InFlightRequest, decisions: readonly string[]): void {
    for (const decision of decisions) {
      const at = decision.indexOf("=");
      const moments = this.#moments.get(decision.slice(0, at));
      const cause = decision.slice(at + 1);
      if (moments === undefined || isJustified(moments, inFlight.askedMs, cause, cell)) continue;
      this.#violation(
        "L6",
        `${inFlight.key} was denied (${decision}), and no version since the request justifies that`,
      );
    }
  }
}

function isJustified(moments: readonly Moment[], askedMs: number, cause: string, cell: string): boolean {
  for (let last = moments.length - 1; last >= 0; last -= 1) {
    const moment = moments[last];
    if (moment === undefined || says(moment, cause, cell)) return true;
    if (moment.atMs < askedMs) return false;
  }
  // Older versions are forgotten.
  return true;
}

const readings = new WeakMap<EtcdObject, Reading>();

/** Computed at the first denial: no denial asks about most versions. */
function readingOf(stored: EtcdObject): Reading {
  let reading = readings.get(stored);
  if (reading === undefined) {
    const state = parseProtector(parseStored(stored));
    reading = { state, sums: estimate(state) };
    readings.set(stored, reading);
  }
  return reading;
}

const JUDGED = ["AtMinimum", "Reserved", "OnHold", "NotCounted"];

/** Whether this version denies for that cause. Causes that no version decides alone are not judged. */
function says({ stored }: Moment, cause: string, cell: string): boolean {
  if (!JUDGED.includes(cause)) return true;
  if (stored === undefined) return false;
  const { state, sums } = readingOf(stored);
  const { minAvailable } = state.spec;
  switch (cause) {
    case "AtMinimum":
      return sums.available <= minAvailable;
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
