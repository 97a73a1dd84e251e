/**
 * Jobs and CronJobs (`batch/v1`) are ignored: their pods end by themselves, so that there is no number of available pods to
 * keep. They are watched only so that whoever asks for protection is told why there is none.
 */
import * as v from "valibot";
import { checker } from "../../../../shared/schema/check.ts";
import { ObjectMeta } from "../../../../shared/schema/podprotector.ts";
import type { SourceKind, SourcePlugin } from "../protection-source.ts";
import { type PluginContext, sourceOf } from "../workload.ts";

const WHY =
  "pods of a Job end by themselves, so that there is no number of available pods to keep; protect single pods of it by a PodDisruptionBudget with minAvailable";

const parseJob = checker(v.looseObject({ metadata: ObjectMeta }));

function ignoring(name: string, kind: SourceKind, context: PluginContext): SourcePlugin {
  return {
    name,
    kind,
    interpret(raw) {
      const { metadata } = parseJob(raw);
      const choice = context.select(metadata);
      return choice === "Selected" ? sourceOf(metadata, "Ignored", { why: WHY }) : sourceOf(metadata, choice);
    },
  };
}

export function jobPlugin(context: PluginContext): SourcePlugin {
  return ignoring("job", { group: "batch", version: "v1", kind: "Job", resource: "jobs" }, context);
}

export function cronJobPlugin(context: PluginContext): SourcePlugin {
  return ignoring("cronjob", { group: "batch", version: "v1", kind: "CronJob", resource: "cronjobs" }, context);
}
