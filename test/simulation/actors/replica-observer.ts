/** Counts in the coverage which rules the replicas of a world follow, and reports their defects. */
import type { WebhookParts } from "../../../webhook/assemble.ts";
import type { ReadPurpose } from "../../../webhook/reserve/protector-event.ts";
import { controllingOwner, isWorkloadController } from "../../../webhook/respond/workload-controller.ts";
import type { Coverage, SeenRule } from "../judge/coverage.ts";

const BY_PURPOSE: Readonly<Partial<Record<ReadPurpose, SeenRule>>> = {
  conflict: "decided again after a conflict",
  unknown: "looked for after a write without a response",
  confirm: "denial confirmed by a read",
};

export function replicaObserver(
  coverage: Coverage,
  onDefect: (message: string) => void,
): Pick<WebhookParts, "onEvent" | "onFinished"> {
  return {
    onEvent: (event) => {
      if (event.kind === "wrote" && event.result === "written" && event.requests > 1) coverage.rule("decided together");
      if (event.kind === "historyLost") coverage.rule("reserved again after a loss");
      const rule = event.kind === "read" ? BY_PURPOSE[event.purpose] : undefined;
      if (rule !== undefined) coverage.rule(rule);
      if (event.kind === "crashed")
        onDefect(`a decision failed: ${event.error instanceof Error ? event.error.stack : String(event.error)}`);
      if (event.kind === "inexact") onDefect(`the core drops fields of ${event.protector}`);
      if (event.kind === "lost" && !event.isKept) onDefect(`too many protectors are lost: ${event.protector.key}`);
    },
    onFinished: ({ failure, outcome, kind, username, oldObject }) => {
      const isDenied = outcome === "denied" && kind === "delete";
      if (isDenied && isWorkloadController(username) && controllingOwner(oldObject) !== undefined)
        coverage.rule("a workload is told of a denial to its controller");
      if (failure === "deadline") coverage.rule("responded at the deadline");
    },
  };
}
