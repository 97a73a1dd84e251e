/** Counts in the coverage which rules the replicas of a world follow. */
import { Metrics } from "../../../shared/observe/metrics.ts";
import { WebhookMetrics } from "../../../webhook/metrics.ts";
import type { ReadPurpose, StatusWriteResult } from "../../../webhook/reserve/writer-observer.ts";
import type { AdmissionRecord } from "../../../webhook/respond/admission-response.ts";
import type { Coverage, SeenRule } from "../judge/coverage.ts";

const BY_PURPOSE: Readonly<Partial<Record<ReadPurpose, SeenRule>>> = {
  conflict: "decided again after a conflict",
  unknown: "looked for after a write without a response",
  confirm: "denial confirmed by a read",
};

export class ReplicaMetrics extends WebhookMetrics {
  readonly #coverage: Coverage;

  constructor(coverage: Coverage) {
    super(new Metrics({ processMetrics: false }));
    this.#coverage = coverage;
  }

  override wrote(_core: string, result: StatusWriteResult, requests: number): void {
    if (result === "written" && requests > 1) this.#coverage.rule("decided together");
  }

  override read(_core: string, purpose: ReadPurpose): void {
    const rule = BY_PURPOSE[purpose];
    if (rule !== undefined) this.#coverage.rule(rule);
  }

  override historyLost(): void {
    this.#coverage.rule("reserved again after a loss");
  }

  override finished({ failure }: AdmissionRecord): void {
    if (failure === "deadline") this.#coverage.rule("responded at the deadline");
  }
}
