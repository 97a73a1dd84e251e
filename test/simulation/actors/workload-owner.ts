/**
 * The owner of the workload, as a server of probes (design 9): it says yes, no, both at once, answers slowly, with what is no answer, or
 * not at all. What asks it is the shipping code, behind the port of its connections. Nothing passes without its yes, and while it is
 * down it is left alone.
 */
import type { Ports } from "../../../shared/runtime/clock.ts";
import { BadProbeResponse, type ProbeResponse } from "../../../webhook/probe/message.ts";
import { type ProbeClient, ProbeFailure } from "../../../webhook/probe/probe-client.ts";
import { ProbeEndpoints } from "../../../webhook/probe/probe-endpoints.ts";
import type { AskOwner } from "../../../webhook/probe/probe-request.ts";
import type { SeenRule } from "../judge/coverage.ts";
import type { Chance } from "../world/random.ts";
import type { Answered, InFlight } from "./admission-requests.ts";

export const OWNER_MODES = ["yes", "picky", "lying", "slow", "down", "flooding"] as const;
type Mode = (typeof OWNER_MODES)[number];

const ANSWER_MEAN_MS = 5;
const SLOW_MEAN_MS = 1_500;
const NO_RATE = 0.3;
/** Failures in a row after which a replica leaves an owner alone for a while; and the shortest such while, with its jitter. */
const FAILURES = 5;
const LEFT_ALONE_MS = 1_500;
/** Reasons for which nobody is asked: the disruption costs nothing, or goes whatever anybody says. */
const UNASKED: ReadonlySet<string> = new Set([
  ...["Finished", "Terminating", "Mirror", "Pending", "PinnedPending", "Forced", "Suspended", "NotProtected"],
]);

export interface OwnerWorld {
  readonly ports: Ports;
  readonly chance: Chance;
  /** The protector that asks. */
  readonly protector: string;
  rule(name: SeenRule): void;
  violation(invariant: string, message: string): void;
}

export class Owner {
  readonly #world: OwnerWorld;
  #mode: Mode = "yes";
  /** When the owner last said so of a pod, by its name. */
  readonly #yes = new Map<string, number>();
  readonly #no = new Map<string, number>();

  constructor(world: OwnerWorld) {
    this.#world = world;
  }

  turn(mode: Mode): void {
    this.#mode = mode;
  }

  /** How one replica asks. */
  askedBy(ports: Ports): AskOwner {
    const probes = new ProbeEndpoints({
      ports,
      onAsked: ({ result }) => this.#world.rule(`owner: ${result}`),
      connect: () => this.#wire(),
    });
    return (question) => probes.ask(question);
  }

  answered(flight: InFlight | undefined, { decisions, allowed, isOnlyWarned }: Answered): void {
    const { protector, violation } = this.#world;
    const decision = decisions.find((one) => one.includes(`/${protector}=`));
    if (flight === undefined || decision === undefined) return;
    const reason = decision.slice(decision.indexOf("=") + 1);
    const pod = flight.key.split("/")[2] ?? "";
    const since = (said: ReadonlyMap<string, number>): boolean => (said.get(pod) ?? -1) >= flight.askedMs;
    if (allowed && !isOnlyWarned && !UNASKED.has(reason) && !since(this.#yes))
      violation("probe", `${flight.key} was let go (${reason}), and its owner did not say yes`);
    if (reason === "Probe:refused" && !since(this.#no))
      violation("probe", `${flight.key} was refused for its owner, who did not say no`);
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
            this.#world.violation("probe", `an owner who has not answered ${failures} times is asked again and again`);
          triedMs = nowMs;
        }
        try {
          const reply = await this.#reply(podName, signal);
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

  #reply(pod: string, signal: AbortSignal): Promise<ProbeResponse> {
    const { chance, ports } = this.#world;
    const mode = this.#mode;
    const delayMs = chance.exponential(mode === "slow" ? SLOW_MEAN_MS : ANSWER_MEAN_MS);
    return new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(new ProbeFailure("no answer in time")), { once: true });
      if (signal.aborted) reject(new ProbeFailure("no answer in time"));
      else if (mode !== "down")
        ports.timers.after(delayMs, () => {
          if (signal.aborted) return;
          if (mode === "flooding") reject(new BadProbeResponse("the answer is larger than anybody wants"));
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

/** What the protector's spec says of its owner. */
export const PROBE = { endpoint: "owner.default:443", insecure: true, timeoutMillis: 2_000 };
