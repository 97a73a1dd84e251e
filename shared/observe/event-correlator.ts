import { BoundedMap } from "../runtime/bounded-map.ts";
import type { Ports } from "../runtime/clock.ts";
import { TokenBucket } from "../runtime/token-bucket.ts";

/** The object of an Event. */
export interface ObjectReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
}

export interface EventNote {
  readonly regarding: ObjectReference;
  readonly type: "Normal" | "Warning";
  /** CamelCase, from a small set. */
  readonly reason: string;
  readonly message: string;
  /** Notes with the same object, type, reason and series are one Event with a count, and with the last message. */
  readonly series?: string;
}

/** The Event that a note belongs to, by key; `limited` when its object had too many Events. */
type Correlation =
  | { readonly kind: "event"; readonly key: string; readonly note: EventNote }
  | { readonly kind: "limited" };

/** Events of one object: 25 at once, then one in five minutes (client-go's spam filter). */
const OBJECT_BUCKET = { burst: 25, perSecond: 1 / 300 };
/** More messages of one reason and object than this in the interval become one Event (client-go's aggregator). */
const MAX_MESSAGES = 10;
const MESSAGES_INTERVAL_MS = 600_000;
/** Objects and reasons in memory. Forgetting the oldest costs at most another Event. */
const MAX_REMEMBERED = 4096;
/** The API's bound on `message`. */
const MAX_MESSAGE_LENGTH = 1024;
const COMBINED = "(combined from similar events): ";

interface Messages {
  readonly sinceMs: number;
  readonly seen: Set<string>;
}

/** Aggregates and limits notes like client-go's EventCorrelator, in bounded memory. */
export class EventCorrelator {
  readonly #clock: Ports["clock"];
  readonly #buckets: BoundedMap<string, TokenBucket>;
  readonly #messages: BoundedMap<string, Messages>;

  constructor({ clock }: Pick<Ports, "clock">) {
    this.#clock = clock;
    this.#buckets = new BoundedMap(MAX_REMEMBERED);
    this.#messages = new BoundedMap(MAX_REMEMBERED);
  }

  correlate(note: EventNote): Correlation {
    const { kind, namespace, name, uid } = note.regarding;
    const object = JSON.stringify([kind, namespace, name, uid]);
    const group = JSON.stringify([object, note.type, note.reason]);
    // No limit by object: the waiting notes are sent as one request, however many they are.
    if (note.series !== undefined)
      return { kind: "event", key: JSON.stringify([group, { of: note.series }]), note: shortened(note) };
    const bucket = this.#buckets.getOrMake(object, () => new TokenBucket(OBJECT_BUCKET, this.#clock));
    if (!bucket.tryTake()) return { kind: "limited" };

    const nowMs = this.#clock.monotonicMs();
    let messages = this.#messages.get(group);
    if (messages === undefined || nowMs - messages.sinceMs > MESSAGES_INTERVAL_MS)
      messages = { sinceMs: nowMs, seen: new Set() };
    this.#messages.set(group, messages);
    const known = messages.seen.has(note.message);
    if (!known && messages.seen.size >= MAX_MESSAGES) {
      return { kind: "event", key: group, note: shortened(note, COMBINED) };
    }
    messages.seen.add(note.message);
    return { kind: "event", key: JSON.stringify([group, note.message]), note: shortened(note) };
  }
}

function shortened(note: EventNote, prefix = ""): EventNote {
  const message = prefix + note.message;
  const fits = message.length <= MAX_MESSAGE_LENGTH;
  return { ...note, message: fits ? message : `${message.slice(0, MAX_MESSAGE_LENGTH - 3)}...` };
}
