import type { Ports } from "../../runtime/clock.ts";
import { StallDetector } from "../../runtime/stall-detector.ts";
import type { WatchFailureTag } from "../stream/watch-event.ts";

/** A break shorter than this is a connection's: no server is restored in so short a time. */
const BREAKS_AFTER_MS = 1_000;

export interface ContinuityOptions {
  readonly ports: Pick<Ports, "clock" | "timers">;
  /** Send time of the newest quorum LIST that the stream has reached. */
  readonly confirmedSentMs: () => number | undefined;
  readonly requestEvidence: () => void;
}

/**
 * Whether a stream may be resumed where it ended. A server that was restored and has passed the position would go on as if nothing had
 * happened (design 5.4, docs/decisions 0003 and 0005), and a restore takes time: in which the server did not answer, or in which this
 * process stood still and could not see that.
 */
export class StreamContinuity {
  readonly #options: ContinuityOptions;
  readonly #standstill: StallDetector;
  /** Monotonic time of the first failure since the server has answered. */
  #failingSinceMs: number | undefined;
  /** When the stream that is read was asked for, or the list before it. */
  #askedMs = Number.NEGATIVE_INFINITY;

  constructor(options: ContinuityOptions) {
    this.#options = options;
    const { ports, requestEvidence } = options;
    this.#standstill = new StallDetector(ports, BREAKS_AFTER_MS, requestEvidence);
  }

  start(): void {
    this.#standstill.start();
  }

  stop(): void {
    this.#standstill.stop();
  }

  /**
   * This process stood still, and nothing shows yet that the stream went on meanwhile. Ends when the stream reaches a LIST that was sent
   * after, or with a complete list.
   */
  get isDoubtful(): boolean {
    const { wokeMs } = this.#standstill;
    return wokeMs > this.#askedMs && wokeMs > (this.#options.confirmedSentMs() ?? Number.NEGATIVE_INFINITY);
  }

  /** What has broken it, so that everything is to be listed anew; undefined: resume. */
  get brokenBy(): "standstill" | "outage" | undefined {
    const { clock } = this.#options.ports;
    if (this.isDoubtful) return "standstill";
    if (this.#failingSinceMs === undefined) return undefined;
    return clock.monotonicMs() - this.#failingSinceMs >= BREAKS_AFTER_MS ? "outage" : undefined;
  }

  failed(tag: WatchFailureTag): void {
    // A server that asks for patience is there, and was not restored.
    if (tag === "throttled") return;
    // An idle deadline that has passed is an outage of its length.
    if (tag === "timeout") this.#failingSinceMs = Number.NEGATIVE_INFINITY;
    this.#failingSinceMs ??= this.#options.ports.clock.monotonicMs();
  }

  /** A stream is asked for, from where the one before ended. */
  resuming(nowMs: number): void {
    if (!this.isDoubtful) this.#askedMs = nowMs;
  }

  resumed(): void {
    this.#failingSinceMs = undefined;
  }

  /** A complete list that was asked for at `askedMs` is the beginning of another one. */
  begun(askedMs: number): void {
    this.#askedMs = askedMs;
    this.#failingSinceMs = undefined;
  }
}
