import { parsePodProtector } from "../../../shared/schema/parse-podprotector.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";

const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";

/**
 * A protector without what is large and never read here (design 8): 10,000 of them are held. Only the status is written back, so nothing
 * is lost. Throws `SchemaError`.
 */
export function parseTrimmedProtector(raw: unknown): PodProtector {
  const { metadata, spec, status } = parsePodProtector(raw);
  const { managedFields: _, annotations, ...kept } = metadata;
  const { [LAST_APPLIED]: __, ...rest } = annotations ?? {};
  return {
    metadata: { ...kept, ...(annotations === undefined ? {} : { annotations: rest }) },
    spec,
    ...(status === undefined ? {} : { status }),
  };
}
