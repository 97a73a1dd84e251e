/**
 * Lost protectors (docs/design.md#lost-protectors): a PodProtector that vanished from its core without a release stays
 * in force until it is restored or released. Each cell keeps a backup of the protectors that it counts (`backup/`); the
 * core records releases in the release register (`register/`). The generator restores a lost protector from its source,
 * and after a head start an aggregator restores it from its cell's backup.
 *
 * Read this file, `bounded-lost-protectors.ts`, `lost-protector-index.ts` (the webhook), `lost-protectors-by-source.ts`
 * (the generator), `restore-protector.ts`, `register/register-format.ts`, then `backup/backup-keeper.ts` (the
 * aggregator). Imports point from `backup/` to `register/` to here.
 */
import { classifyPod, isLost } from "../decide/availability/availability.ts";
import { isForced, isProtectedFrom, preActivitiesOf } from "../decide/overrides.ts";
import {
  type Allowed,
  type AllowReason,
  allowUnrecorded,
  type DisruptionRequest,
  factsOf,
  needsNoQuota,
} from "../decide/quota.ts";
import type { ProtectorState } from "../decide/state/protector-state.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION, SOURCE_NAME_LABEL } from "../schema/annotations.ts";
import type { PodProtector } from "../schema/podprotector.ts";

/**
 * True when the end of an absent protector was intended: its generator has marked it or recorded its release, or it was
 * made by hand, so that its deletion is its release. After a restore of the core (`isRestored`), absence does not mean
 * a deletion, so only a mark or a record counts.
 */
export function isReleased(protector: PodProtector, isRecorded: boolean, isRestored: boolean): boolean {
  return isMarkedReleased(protector) || isRecorded || (!isRestored && isMadeByHand(protector));
}

/** True for the mark that precedes the removal of the finalizer. */
export function isMarkedReleased({ metadata }: PodProtector): boolean {
  return metadata.annotations?.[RELEASED_ANNOTATION] !== undefined;
}

/** True for a protector that no generator maintains. */
export function isMadeByHand({ metadata }: PodProtector): boolean {
  return (
    metadata.finalizers?.includes(GENERATOR_FINALIZER) !== true && metadata.labels?.[SOURCE_NAME_LABEL] === undefined
  );
}

/** The decision of a lost protector that allows; undefined when it denies. */
export function decideLost(state: ProtectorState, request: DisruptionRequest): Allowed | undefined {
  if (needsNoQuota(state, request)) return allowUnrecorded(state, request);
  const reason = allowReason(state, request);
  if (reason === undefined) return undefined;
  return { allowed: true, reason, write: "none", facts: factsOf(state, request) };
}

/**
 * A lost protector gives no quota, because nothing can be recorded (S11). A Ready pod that may not be mature yet counts
 * as available.
 */
function allowReason(state: ProtectorState, request: DisruptionRequest): AllowReason | undefined {
  const { spec } = state;
  if (!isProtectedFrom(state, request)) return "NotProtected";
  const podClass = classifyPod(request.pod, spec);
  if (podClass === "Available" || podClass === "Immature") return isForced(state, request) ? "Forced" : undefined;
  if (podClass !== "Unavailable") return podClass;
  const mayGo = request.mayGoUnhealthy === true || isLost(request.pod);
  const isKept = spec.keptUnhealthy.includes(request.operation) && !mayGo;
  const isHeldBack = isKept || preActivitiesOf(request.pod).length > 0;
  if (isHeldBack) return isForced(state, request) ? "Forced" : undefined;
  return "Unavailable";
}
