import type { ReflectorEvent } from "../../shared/kube/informer/reflector-options.ts";
import type { Clock } from "../../shared/runtime/clock.ts";

/** A core that was silent for this long may have been restored. In a shorter break, only a connection broke. */
export const OUTAGE_MIN_MS = 1_000;
/**
 * No reservation is made for this long after an outage: longer than a watch in backoff takes to notice lost history.
 */
export const RECOVERY_MS = 12_000;

/** Tags of failures without any response from the server. */
const SILENT: ReadonlySet<string> = new Set(["timeout", "dns"]);

/**
 * Notices when a core cluster comes back from an outage, in which it may have been restored to an older state
 * (docs/design.md#lost-history). Only the processes that wrote after that state was taken can tell: the aggregators,
 * and the replicas whose reservations are lost. No replica reserves until they have had the time to put cells on hold.
 */
export class OutageDetector {
  readonly #clock: Clock;
  #lastSuccessMs: number | undefined;
  #failingSinceMs: number | undefined;
  #recoveredMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Takes an event of the core's watch. A core that throttles responds, so it was not restored. */
  observe(event: ReflectorEvent): void {
    if (event.kind === "failed") {
      if (event.tag !== "throttled") this.failed(SILENT.has(event.tag));
    } else if (event.kind === "listed" && event.reason === "standstill") this.assumeOutage();
    else if (event.kind === "listed" || event.kind === "watching" || event.kind === "confirmed") this.succeeded();
  }

  /** A call or a stream failed. After a `silent` failure, the outage may be as old as the last success. */
  failed(silent: boolean): void {
    const nowMs = this.#clock.monotonicMs();
    this.#failingSinceMs ??= silent ? (this.#lastSuccessMs ?? nowMs) : nowMs;
  }

  succeeded(): void {
    const nowMs = this.#clock.monotonicMs();
    const sinceMs = this.#failingSinceMs;
    this.#failingSinceMs = undefined;
    this.#lastSuccessMs = nowMs;
    if (sinceMs !== undefined && nowMs - sinceMs >= OUTAGE_MIN_MS) this.#recoveredMs = nowMs;
  }

  /** The core has answered, perhaps after an outage that this process did not see. */
  assumeOutage(): void {
    this.succeeded();
    this.#recoveredMs = this.#clock.monotonicMs();
  }

  /** The newest call or stream failed. Only the next response shows whether this is an outage, and how long it was. */
  get isFailing(): boolean {
    return this.#failingSinceMs !== undefined;
  }

  get isRecovering(): boolean {
    return this.#clock.monotonicMs() - this.#recoveredMs < RECOVERY_MS;
  }
}
