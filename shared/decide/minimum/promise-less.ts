import { MAX_UNAVAILABLE_ANNOTATION, SOURCE_KIND_LABEL } from "../../schema/annotations.ts";
import type { PodProtector } from "../../schema/podprotector.ts";

/**
 * What makes room where as many pods are promised as there are. More replicas are no remedy: up to three of a
 * Deployment with the default strategy promise all of them, because a quarter is rounded down. The generator undoes an
 * edit of a protector that it made.
 */
export const PROMISE_LESS =
  "promise less: in the budget or PodProtector that people wrote, else annotate the workload with " +
  `${MAX_UNAVAILABLE_ANNOTATION}=1, and lower its min-available and min-running, if any`;

/** The same of this protector, as the rest of a sentence: a workload or budget that is gone can't be changed. */
export function wayOut({ metadata, status }: PodProtector): string {
  const isTrue = (wanted: string): boolean | undefined =>
    status?.conditions?.some(({ type, status }) => type === wanted && status === "True");
  const source = metadata.labels?.[SOURCE_KIND_LABEL] ?? "source";
  const end = `or give it up by kubectl podseidon release ${metadata.name} -n ${metadata.namespace}`;
  if (isTrue("SourceVanished")) return `, and its ${source} is gone: create it again, ${end}`;
  if (isTrue("SourceDeleting")) return `, and its ${source} is being deleted: scale it to zero, ${end}`;
  return `: unless pods are missing or being replaced, ${PROMISE_LESS}`;
}
