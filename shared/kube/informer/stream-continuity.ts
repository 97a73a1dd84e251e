import type { Ports } from "../../runtime/clock.ts";
import { StallDetector } from "../../runtime/stall-detector.ts";
import type { WatchFailureTag } from "../stream/watch-failure.ts";

/** A shorter break only concerns a connection: no server is restored in so short a time. */
const BREAKS_AFTER_MS = 1_000;
/** A server that kept a stream open for this long is there, whatever broke the stream. */
const HELD_AFTER_MS = 1_000;

/** kube-apiserver asks for 8 s at most, which a client spreads. Something in between may ask for a minute. */
const PATIENCE_MS = 10_000;

interface ContinuityOptions {
  readonly ports: Pick<Ports, "clock" | "timers">;
  /** Send time of the newest quorum LIST that the stream has reached. */
  readonly confirmedSentMs: () => number | undefined;
  /** Monotonic time of the last message in the stream. */
  readonly heardMs: () => number | undefined;
  readonly requestEvidence: () => void;
}

/**
 * Decides whether a stream may resume where it ended. A server that was restored, and has passed the position since,
 * would resume the stream as if nothing had happened (docs/design.md#lost-history). A restore takes time, and the
 * server does not respond meanwhile. This process notices, unless it stalled itself.
 */
export class StreamContinuity {
  readonly #options: ContinuityOptions;
  readonly #stalls: StallDetector;
  /** Monotonic time of the first failure since the last response. */
  #failingSinceMs: number | undefined;
  /** Monotonic time of the request for the present stream, or for the list before it. */
  #requestedMs = Number.NEGATIVE_INFINITY;
  /** Monotonic time of the request for the last stream, and whether the server opened it. */
  #stream = { sinceMs: 0, isOpen: false };

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

  /** Why the stream can't resume and a list is needed; undefined when it can resume. */
  get brokenBy(): "standstill" | "outage" | undefined {
    const { clock } = this.#options.ports;
    if (this.hasStalled) return "standstill";
    if (this.#failingSinceMs === undefined) return undefined;
    return clock.monotonicMs() - this.#failingSinceMs >= BREAKS_AFTER_MS ? "outage" : undefined;
  }

  /** Since when the server has held the last stream; undefined if it did so for no time that counts. */
  get heldSinceMs(): number | undefined {
    const { sinceMs, isOpen } = this.#stream;
    return isOpen && this.#options.ports.clock.monotonicMs() - sinceMs >= HELD_AFTER_MS ? sinceMs : undefined;
  }

  /** `retryMs`: in how much time the next request follows. */
  failed(tag: WatchFailureTag, retryMs = 0): void {
    // A throttling server responds, so it was not restored, and is not in so short a time.
    if (tag === "throttled" && retryMs <= PATIENCE_MS) return;
    // A timeout means an outage of at least that length.
    if (tag === "timeout") this.#failingSinceMs = Number.NEGATIVE_INFINITY;
    this.#failingSinceMs ??= this.#options.ports.clock.monotonicMs();
    // No server listens. It may have stopped right after the last message of the stream, because the network may report
    // the end of a connection late.
    if (tag === "refused") this.#failingSinceMs = Math.min(this.#failingSinceMs, this.#options.heardMs() ?? 0);
  }

  /** A stream is requested from the position where the last one ended. */
  resuming(nowMs: number): void {
    this.#stream = { sinceMs: nowMs, isOpen: false };
    if (!this.hasStalled) this.#requestedMs = nowMs;
  }

  /** The server has opened the stream. */
  resumed(): void {
    this.#stream.isOpen = true;
    this.#failingSinceMs = undefined;
  }

  /** A complete list, requested at `requestedMs`, has arrived. */
  listed(requestedMs: number): void {
    this.#requestedMs = requestedMs;
    this.#failingSinceMs = undefined;
  }
}
