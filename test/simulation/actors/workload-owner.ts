/**
 * The workload's owner as a probe server (docs/design.md#owner-probe). It says yes, no or both, is slow, answers with
 * nonsense, or does not answer. The shipping code probes it through the port of its connections. Checked: no disruption
 * is allowed without the owner's yes, and nobody floods an owner that does not answer.
 */
import type { Ports } from "../../../shared/runtime/clock.ts";
import { BadProbeResponse, type ProbeResponse } from "../../../webhook/probe/message.ts";
import { type ProbeClient, ProbeFailure } from "../../../webhook/probe/probe-client.ts";
import { ProbeEndpoints } from "../../../webhook/probe/probe-endpoints.ts";
import type { AskOwner } from "../../../webhook/probe/probe-request.ts";
import type { SeenRule } from "../judge/coverage.ts";
import type { Chance } from "../scenario/random.ts";
import type { InFlightRequest, ObservedResponse } from "./admission-requests.ts";

export const OWNER_MODES = ["yes", "picky", "lying", "slow", "down", "flooding"] as const;
type Mode = (typeof OWNER_MODES)[number];

const ANSWER_MEAN_MS = 5;
const SLOW_MEAN_MS = 1_500;
const NO_RATE = 0.3;
/** After so many failures in a row a replica stops probing for a while, for at least this time with jitter. */
const FAILURES = 5;
const LEFT_ALONE_MS = 1_500;
/** Reasons that need no probe: the disruption costs nothing, or is allowed whatever the owner says. */
const UNASKED: ReadonlySet<string> = new Set([
  ...["Finished", "Terminating", "Mirror", "Pending", "PinnedPending", "Forced", "Suspended", "NotProtected"],
]);

interface OwnerWorld {
  readonly ports: Ports;
  readonly chance: Chance;
  /** The protector whose spec has the probe. */
  readonly protector: string;
  rule(name: SeenRule): void;
  violation(invariant: string, message: string): void;
}

export class WorkloadOwner {
  readonly #world: OwnerWorld;
  #mode: Mode = "yes";
  /** When the owner last allowed the disruption of a pod, by the pod's name. */
  readonly #yes = new Map<string, number>();
  readonly #no = new Map<string, number>();

  constructor(world: OwnerWorld) {
    this.#world = world;
  }

  setMode(mode: Mode): void {
    this.#mode = mode;
  }

  /** Returns how one replica probes the owner. */
  askedBy(ports: Ports): AskOwner {
    const probes = new ProbeEndpoints({
      ports,
      allowed: ["owner.default"],
      onAsked: ({ result }) => this.#world.rule(`owner: ${result}`),
      connect: () => this.#wire(),
    });
    return (question) => probes.ask(question);
  }

  responded(inFlight: InFlightRequest | undefined, { decisions, allowed, isOnlyWarned }: ObservedResponse): void {
    const { protector, violation } = this.#world;
    const decision = decisions.find((one) => one.includes(`/${protector}=`));
    if (inFlight === undefined || decision === undefined) return;
    const reason = decision.slice(decision.indexOf("=") + 1);
    const pod = inFlight.key.split("/")[2] ?? "";
    const since = (said: ReadonlyMap<string, number>): boolean => (said.get(pod) ?? -1) >= inFlight.askedMs;
    if (allowed && !isOnlyWarned && !UNASKED.has(reason) && !since(this.#yes))
      violation("probe", `${inFlight.key} was allowed (${reason}), and its owner did not say yes`);
    if (reason === "Probe:refused" && !since(this.#no))
      violation("probe", `${inFlight.key} was denied for its owner, who did not say no`);
  }

  #wire(): ProbeClient {
    let failures = 0;
    let leftAloneMs: number | undefined;
    let triedMs = Number.NEGATIVE_INFINITY;
    return {
      ask: async ({ podName }, signal) => {
        const nowMs = this.#nowMs();
        if (leftAloneMs !== undefined && nowMs > leftAloneMs) {
          if (nowMs - Math.max(triedMs, leftAloneMs) < LEFT_ALONE_MS)
            this.#world.violation("probe", `an owner that did not answer ${failures} probes is probed again and again`);
          triedMs = nowMs;
        }
        try {
          const reply = await this.#answer(podName, signal);
          failures = 0;
          leftAloneMs = undefined;
          return reply;
        } catch (error) {
          failures += 1;
          if (failures >= FAILURES) leftAloneMs ??= this.#nowMs();
          throw error;
        }
      },
      close: () => undefined,
    };
  }

  #answer(pod: string, signal: AbortSignal): Promise<ProbeResponse> {
    const { chance, ports } = this.#world;
    const mode = this.#mode;
    const delayMs = chance.exponential(mode === "slow" ? SLOW_MEAN_MS : ANSWER_MEAN_MS);
    return new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(new ProbeFailure("no answer in time")), { once: true });
      if (signal.aborted) reject(new ProbeFailure("no answer in time"));
      else if (mode !== "down")
        ports.timers.after(delayMs, () => {
          if (signal.aborted) return;
          if (mode === "flooding") reject(new BadProbeResponse("the response is too large"));
          else resolve(this.#say(pod, mode));
        });
    });
  }

  #say(pod: string, mode: Mode): ProbeResponse {
    const isAllowed = mode !== "picky" || !this.#world.chance.chance(NO_RATE);
    const error = mode === "lying" ? "not sure" : "";
    (isAllowed && error === "" ? this.#yes : this.#no).set(pod, this.#nowMs());
    return { isAllowed, error };
  }

  #nowMs(): number {
    return this.#world.ports.clock.monotonicMs();
  }
}

/** The probe in the protector's spec. */
export const PROBE = { endpoint: "owner.default:443", insecure: true, timeoutMillis: 2_000 };
