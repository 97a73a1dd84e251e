/**
 * What protects in the place of a protector that no replica could read since its start, as where the CRD has lost
 * fields. Nothing counts as counted, so that its pods wait. Left out, it would protect nothing.
 */
import * as v from "valibot";
import { LabelSelector, ObjectMeta, type PodProtector, parsePodProtector } from "../../shared/schema/podprotector.ts";

const Raw = v.looseObject({ metadata: ObjectMeta, spec: v.optional(v.unknown()) });
const Selecting = v.looseObject({ selector: LabelSelector });

/** Older than any version that is read later. */
const OLDEST = "0";

/** Undefined for an object that is none. */
export function unreadableProtector(raw: unknown): PodProtector | undefined {
  if (!v.is(Raw, raw)) return undefined;
  const metadata = { ...raw.metadata, resourceVersion: OLDEST };
  try {
    return parsePodProtector({ metadata, spec: raw.spec });
  } catch {
    // Every pod of the namespace may be protected.
    const selector = v.is(Selecting, raw.spec) ? raw.spec.selector : {};
    return { metadata, spec: { minAvailable: 1, minReadySeconds: 0, selector } };
  }
}
