/**
 * A stand-in for a protector that this replica could never read, for example because the CRD has lost fields. The
 * stand-in has no counts, so that disruptions of its pods wait. Without the stand-in, nothing would protect them.
 */
import * as v from "valibot";
import { LabelSelector, ObjectMeta, type PodProtector, parsePodProtector } from "../../shared/schema/podprotector.ts";

const Raw = v.looseObject({ metadata: ObjectMeta, spec: v.optional(v.unknown()) });
const Selecting = v.looseObject({ selector: LabelSelector });

/** Older than any version that is read later. */
const OLDEST = "0";

/** Undefined for something without the metadata of an object. */
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
