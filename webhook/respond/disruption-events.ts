/** Decides which reviews people are told of by Kubernetes Events, and how many; what makes the Events is loaded with the first one. */
import type { EventOutcome } from "../../shared/observe/event-outcomes.ts";
import { TokenBucket } from "../../shared/runtime/token-bucket.ts";
import type { AdmissionRecord } from "../handler.ts";
import type { Notices, NoticesOptions } from "./event-notes.ts";

/** Reviews that are told of, all together: a catastrophe is tens of thousands of refusals, of which nobody reads more. */
const NOTICED = { burst: 100, perSecond: 5 };
/** How long the end of the process waits for Events that are not written yet. */
const STOP_MS = 1000;

const TOLD: ReadonlySet<AdmissionRecord["outcome"]> = new Set(["denied", "dryRunDenied", "forced"]);

export interface NoticeDeskOptions extends NoticesOptions {
  /** The making of Events; the project's own by default. */
  readonly load?: () => Promise<Pick<Notices, "tell" | "stop">>;
}

export class DisruptionEvents {
  readonly #options: NoticeDeskOptions;
  readonly #bucket: TokenBucket;
  #notices: Promise<Pick<Notices, "tell" | "stop">> | undefined;

  constructor(options: NoticeDeskOptions) {
    this.#options = options;
    this.#bucket = new TokenBucket(NOTICED, options.ports.clock);
  }

  /** Costs a look at the outcome for almost every review; never throws and never waits. */
  readonly tell = (record: AdmissionRecord): void => {
    // A dry run has no side effects (design 5.9 S9).
    if (!TOLD.has(record.outcome) || record.dryRun === true || record.pod === undefined) return;
    if (!this.#bucket.tryTake()) {
      this.#told("limited");
      return;
    }
    this.#notices ??= this.#load();
    this.#notices.then(
      (notices) => notices.tell(record),
      () => this.#told("failed"),
    );
  };

  async stop(): Promise<void> {
    const notices = await this.#notices?.catch(() => undefined);
    await notices?.stop(STOP_MS);
  }

  async #load(): Promise<Pick<Notices, "tell" | "stop">> {
    if (this.#options.load !== undefined) return this.#options.load();
    const { Notices } = await import("./event-notes.ts");
    return new Notices(this.#options);
  }

  #told(outcome: EventOutcome): void {
    this.#options.onOutcome(outcome);
  }
}
