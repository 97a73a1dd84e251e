import type { AllowReason } from "../../shared/decide/quota.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector, ProtectorId } from "../../shared/schema/podprotector.ts";
import { type AskOwner, type ProbeRequest, probeRequestOf } from "../probe/probe-request.ts";
import type { Denial } from "./verdict.ts";

interface ProbedDisruption {
  readonly pod: Pod;
  readonly forced: boolean;
  readonly deadlineMs: number;
}

const NO_CLIENT: Awaited<ReturnType<AskOwner>> = {
  result: "failed",
  message: "has a probe, and this webhook asks no owners",
};

/**
 * The consent of workload owners to one disruption (docs/design.md#owner-probe). Owners are asked after quota was found
 * and before anything is written, outside of every batch, so that a slow owner delays only this disruption.
 */
export class OwnerConsent {
  readonly #disruption: ProbedDisruption;
  readonly #askOwner: AskOwner;
  readonly #clock: Clock;
  /** Endpoints that agreed, by protector. */
  readonly #agreed = new Map<ProtectorId, string>();

  constructor(disruption: ProbedDisruption, clock: Clock, askOwner: AskOwner = async () => NO_CLIENT) {
    this.#disruption = disruption;
    this.#clock = clock;
    this.#askOwner = askOwner;
  }

  /** The denial of the workload's owner; undefined when the owner agrees, or is not asked. */
  async denialBy(protector: ProtectorId, object: PodProtector, reason: AllowReason): Promise<Denial | undefined> {
    const request = this.#requestFor(object, reason);
    if (request === undefined) return undefined;
    const answer = await this.#askOwner(request);
    if (answer.result !== "allowed") return { protector, decision: { kind: "owner", answer } };
    this.#agreed.set(protector, request.probe.endpoint);
    return undefined;
  }

  /**
   * True when the owner has to be asked now although it was not asked before: meanwhile a Pending pod has started, a
   * suspension has ended, or the protector has got its probe. The client's next attempt asks the owner.
   */
  isMissing(protector: ProtectorId, object: PodProtector | undefined, reason: AllowReason): boolean {
    if (this.#disruption.forced) return false;
    const request = this.#requestFor(object, reason);
    return request !== undefined && this.#agreed.get(protector) !== request.probe.endpoint;
  }

  #requestFor(object: PodProtector | undefined, reason: AllowReason): ProbeRequest | undefined {
    const { pod, deadlineMs } = this.#disruption;
    return probeRequestOf(object, reason, pod, this.#clock.monotonicMs(), deadlineMs);
  }
}
