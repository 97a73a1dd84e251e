import type { Ports } from "../../runtime/clock.ts";
import { StallDetector } from "../../runtime/stall-detector.ts";
import type { WatchFailureTag } from "../stream/watch-failure.ts";

/** A shorter break is a connection's: no server is restored in so short a time. */
const BREAKS_AFTER_MS = 1_000;

interface ContinuityOptions {
  readonly ports: Pick<Ports, "clock" | "timers">;
  /** Send time of the newest quorum LIST that the stream has reached. */
  readonly confirmedSentMs: () => number | undefined;
  /** When the stream was heard last. */
  readonly heardMs: () => number | undefined;
  readonly requestEvidence: () => void;
}

/**
 * Decides whether a stream may resume where it ended. A server that was restored, and has passed the position since,
 * would resume the stream as if nothing had happened (docs/design.md#lost-history). A restore takes time: the server
 * does not respond meanwhile, unless this process stalled and could not see that.
 */
export class StreamContinuity {
  readonly #options: ContinuityOptions;
  readonly #stalls: StallDetector;
  /** Monotonic time of the first failure since the server has responded. */
  #failingSinceMs: number | undefined;
  /** Monotonic time of the request for the stream that is read, or for the list before it. */
  #requestedMs = Number.NEGATIVE_INFINITY;

  constructor(options: ContinuityOptions) {
    this.#options = options;
    const { ports, requestEvidence } = options;
    this.#stalls = new StallDetector(ports, BREAKS_AFTER_MS, requestEvidence);
  }

  start(): void {
    this.#stalls.start();
  }

  stop(): void {
    this.#stalls.stop();
  }

  /** True after a stall of this process, until the stream reaches a later LIST, or until the next complete list. */
  get hasStalled(): boolean {
    const { wokeMs } = this.#stalls;
    return wokeMs > this.#requestedMs && wokeMs > (this.#options.confirmedSentMs() ?? Number.NEGATIVE_INFINITY);
  }

  /** Why the stream can't resume and a list is needed; undefined: it resumes. */
  get brokenBy(): "standstill" | "outage" | undefined {
    const { clock } = this.#options.ports;
    if (this.hasStalled) return "standstill";
    if (this.#failingSinceMs === undefined) return undefined;
    return clock.monotonicMs() - this.#failingSinceMs >= BREAKS_AFTER_MS ? "outage" : undefined;
  }

  failed(tag: WatchFailureTag): void {
    // A throttling server is there, and was not restored.
    if (tag === "throttled") return;
    // A timeout is the end of an outage of that length.
    if (tag === "timeout") this.#failingSinceMs = Number.NEGATIVE_INFINITY;
    this.#failingSinceMs ??= this.#options.ports.clock.monotonicMs();
    // Nothing listens there. It may have stopped when the stream was heard last: the network delivers an end late.
    if (tag === "refused") this.#failingSinceMs = Math.min(this.#failingSinceMs, this.#options.heardMs() ?? 0);
  }

  /** A stream is requested from where the last one ended. */
  resuming(nowMs: number): void {
    if (!this.hasStalled) this.#requestedMs = nowMs;
  }

  /** The server has opened the stream. */
  resumed(): void {
    this.#failingSinceMs = undefined;
  }

  /** A complete list, requested at `requestedMs`, is in. */
  listed(requestedMs: number): void {
    this.#requestedMs = requestedMs;
    this.#failingSinceMs = undefined;
  }
}
