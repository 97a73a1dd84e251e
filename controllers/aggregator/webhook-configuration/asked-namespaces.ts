/** Whether a cell asks the webhook before it deletes a pod, by its webhook configuration. */
import * as v from "valibot";
import { compileSelector, type Labels } from "../../../shared/decide/availability/selector.ts";
import { LabelSelector } from "../../../shared/schema/podprotector.ts";
import type { LiveConfiguration } from "./desired-configuration.ts";

const Asking = v.looseObject({
  failurePolicy: v.optional(v.string()),
  namespaceSelector: v.nullish(LabelSelector),
  rules: v.array(v.looseObject({ operations: v.array(v.string()), resources: v.array(v.string()) })),
});

/**
 * True where the webhook has to answer before any pod of a namespace with these labels is deleted. Unknown labels count
 * as missing.
 */
export function isAskedBy({ webhooks }: Pick<LiveConfiguration, "webhooks">, labels: Labels): boolean {
  return (webhooks ?? []).some((webhook) => {
    const { success, output } = v.safeParse(Asking, webhook);
    if (!success || output.failurePolicy === "Ignore") return false;
    const isAbout = ({ operations, resources }: (typeof output.rules)[number]): boolean =>
      operations.some((one) => one === "DELETE" || one === "*") &&
      resources.some((one) => one === "pods" || one === "*" || one === "*/*");
    return output.rules.some(isAbout) && compileSelector(output.namespaceSelector ?? {}, "fails").matches(labels);
  });
}
