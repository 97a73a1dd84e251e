import type { EventOutcome } from "../../shared/observe/event-outcome.ts";
import { BoundedMap } from "../../shared/runtime/bounded-map.ts";
import { TokenBucket } from "../../shared/runtime/token-bucket.ts";
import type { AdmissionOutcome, AdmissionRecord } from "./admission-response.ts";
import type { EventNotes, EventNotesOptions } from "./event-notes.ts";

/** Of one namespace and outcome: a catastrophe brings tens of thousands of denials. The recorder bounds the writes. */
const EVENT_RATE = { burst: 100, perSecond: 5 };
/** Rates in memory. A forgotten one begins again with its burst. */
const MAX_RATES = 1000;
/** How long the end of the process waits for Events that are not written yet. */
const STOP_MS = 1000;

const REPORTED: ReadonlySet<AdmissionOutcome> = new Set(["denied", "dryRunDenied", "forced", "lowered", "suspended"]);

interface DisruptionEventsOptions extends EventNotesOptions {
  /** Reports admitted disruptions, too. */
  readonly tellsAccepted?: boolean;
  /** Default: loads `event-notes.ts`. */
  readonly load?: () => Promise<Pick<EventNotes, "record" | "stop">>;
}

/** Chooses which admission requests Kubernetes Events report, and how many. `event-notes` is loaded with the first. */
export class DisruptionEvents {
  readonly #options: DisruptionEventsOptions;
  /** By outcome and namespace: the denials of a namespace must suppress neither its bypasses nor those of others. */
  readonly #buckets = new BoundedMap<string, TokenBucket>(MAX_RATES);
  #notes: Promise<Pick<EventNotes, "record" | "stop">> | undefined;

  constructor(options: DisruptionEventsOptions) {
    this.#options = options;
  }

  /** For almost every request, only checks the outcome. Never throws and never waits. */
  readonly record = (record: AdmissionRecord): void => {
    // A dry run has no side effects.
    const isAboutPods = record.pod !== undefined || record.node !== undefined;
    const isAccepted = record.outcome === "allowed";
    const isReported = isAccepted ? this.#options.tellsAccepted : REPORTED.has(record.outcome);
    if (isReported !== true || record.dryRun === true || !isAboutPods) return;
    const bucket = (): TokenBucket => new TokenBucket(EVENT_RATE, this.#options.ports.clock);
    if (!this.#buckets.getOrMake(`${record.outcome} ${record.pod?.namespace ?? ""}`, bucket).tryTake()) {
      this.#ended("limited");
      return;
    }
    this.#notes ??= this.#load();
    this.#notes.then(
      (notes) => notes.record(record),
      () => {
        // The next Event loads the module again.
        this.#notes = undefined;
        this.#ended("failed");
      },
    );
  };

  async stop(): Promise<void> {
    const notes = await this.#notes?.catch(() => undefined);
    await notes?.stop(STOP_MS);
  }

  async #load(): Promise<Pick<EventNotes, "record" | "stop">> {
    if (this.#options.load !== undefined) return this.#options.load();
    const { EventNotes } = await import("./event-notes.ts");
    return new EventNotes(this.#options);
  }

  #ended(outcome: EventOutcome): void {
    this.#options.onOutcome(outcome);
  }
}
