import { ApiClient } from "../kube/client/api-client.ts";
import { corePath } from "../kube/client/api-path.ts";
import type { ApiResult } from "../kube/client/api-result.ts";
import type { Transport } from "../kube/client/transport.ts";
import { Backoff } from "../runtime/backoff.ts";
import { BoundedMap } from "../runtime/bounded-map.ts";
import { type Ports, sleep } from "../runtime/clock.ts";
import { TokenBucket } from "../runtime/token-bucket.ts";
import { scrub } from "./error-fields.ts";
import { EventCorrelator, type EventNote, type ObjectReference } from "./event-correlator.ts";
import type { EventOutcome } from "./event-outcome.ts";

export type { EventNote, ObjectReference } from "./event-correlator.ts";
export type { EventOutcome } from "./event-outcome.ts";

interface EventRecorderOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  /** `source.component`. */
  readonly component: string;
  /** Namespace of Events about objects that have none. Default `default`. */
  readonly defaultNamespace?: string;
  readonly onOutcome?: (outcome: EventOutcome) => void;
}

/** Different Events that wait to be sent. */
const MAX_PENDING = 1000;
/** Limit of all objects together, so that a burst of denials is no burst of writes. */
const SEND_BUCKET = { burst: 50, perSecond: 10 };
const REQUEST_TIMEOUT_MS = 5000;
const MAX_TRIES = 5;
const RETRY = { initialMs: 1000, maxMs: 30_000 };
/** Events whose count can be raised; older ones are created again. The API keeps them for an hour. */
const MAX_REMEMBERED = 4096;
const MAX_NAME_LENGTH = 200;

interface Pending {
  note: EventNote;
  readonly firstMs: number;
  lastMs: number;
  count: number;
  /** From its first try on: a try without an answer may have stored it. */
  name?: string;
}

interface Sent {
  readonly path: string;
  count: number;
}

/**
 * Writes Kubernetes Events, aggregated and limited as in client-go. Never blocks and never throws: Events are for
 * people, and no work may wait for them. Sends one at a time, in order.
 */
export class EventRecorder {
  readonly #options: EventRecorderOptions;
  readonly #ports: Ports;
  readonly #api: ApiClient;
  readonly #correlator: EventCorrelator;
  readonly #bucket: TokenBucket;
  readonly #pending = new Map<string, Pending>();
  /** Pending Events by namespace. */
  readonly #counts = new Map<string | undefined, number>();
  readonly #sent = new BoundedMap<string, Sent>(MAX_REMEMBERED);
  readonly #abort = new AbortController();
  #stopped = false;
  #sending: Promise<void> | undefined;

  constructor(options: EventRecorderOptions) {
    this.#options = options;
    this.#ports = options.ports;
    this.#api = new ApiClient(options.transport);
    this.#correlator = new EventCorrelator(options.ports);
    this.#bucket = new TokenBucket(SEND_BUCKET, options.ports.clock);
  }

  record(note: EventNote): void {
    const outcome = this.#accept(note);
    if (outcome !== undefined) this.#told(outcome);
  }

  /** Returns what becomes of the note at once; undefined when it will be sent. */
  #accept(note: EventNote): EventOutcome | undefined {
    if (this.#stopped) return "dropped";
    const correlation = this.#correlator.correlate({ ...note, message: scrub(note.message) });
    if (correlation.kind === "limited") return "limited";
    const nowMs = this.#ports.clock.nowMs();
    const waiting = this.#pending.get(correlation.key);
    if (waiting !== undefined) {
      waiting.note = correlation.note;
      waiting.count += 1;
      waiting.lastMs = nowMs;
      return "counted";
    }
    if (this.#pending.size >= MAX_PENDING && !this.#makeRoom(note.regarding.namespace)) return "dropped";
    this.#count(note.regarding.namespace, 1);
    this.#pending.set(correlation.key, { note: correlation.note, firstMs: nowMs, lastMs: nowMs, count: 1 });
    this.#sending ??= this.#send();
    return undefined;
  }

  /** The namespace with most Events gives way: its users can cause any number of them. */
  #makeRoom(namespace: string | undefined): boolean {
    const [most, count] = [...this.#counts].reduce((one, other) => (other[1] > one[1] ? other : one));
    // One more than others, so that the Event that is being sent stays.
    if (count <= (this.#counts.get(namespace) ?? 0) + 1) return false;
    const last = [...this.#pending].findLast(([, { note }]) => note.regarding.namespace === most);
    if (!last) return false;
    this.#told("dropped");
    this.#remove(...last);
    return true;
  }

  #remove(key: string, { note }: Pending): void {
    this.#pending.delete(key);
    this.#count(note.regarding.namespace, -1);
  }

  #count(namespace: string | undefined, change: number): void {
    const count = (this.#counts.get(namespace) ?? 0) + change;
    if (count > 0) this.#counts.set(namespace, count);
    else this.#counts.delete(namespace);
  }

  /** Sends the pending Events for at most `limitMs`, and ends. */
  async stop(limitMs: number): Promise<void> {
    this.#stopped = true;
    const timer = this.#ports.timers.after(limitMs, () => this.#abort.abort());
    await this.#sending;
    timer.cancel();
    this.#abort.abort();
  }

  async #send(): Promise<void> {
    const { signal } = this.#abort;
    for (let next = this.#first(); next !== undefined; next = this.#first()) {
      const [key, pending] = next;
      await sleep(this.#ports, this.#bucket.waitMs(), signal);
      this.#bucket.tryTake();
      // Removed only now, so that repeats during the wait count in the same request.
      this.#remove(key, pending);
      this.#told(signal.aborted ? "dropped" : await this.#deliver(key, pending));
    }
    this.#sending = undefined;
  }

  #first(): [string, Pending] | undefined {
    const [first] = this.#pending;
    return first;
  }

  async #deliver(key: string, pending: Pending): Promise<EventOutcome> {
    const backoff = new Backoff(RETRY, this.#ports.random);
    for (let tries = 1; tries <= MAX_TRIES && !this.#abort.signal.aborted; tries += 1) {
      const sent = this.#sent.get(key);
      const result = sent === undefined ? await this.#create(key, pending) : await this.#countUp(sent, pending);
      if (result.kind === "ok") return sent === undefined ? "created" : "counted";
      // The Event has expired meanwhile: it is created again.
      if (result.kind === "gone" && sent !== undefined) this.#sent.delete(key);
      else if (result.kind !== "unavailable") return "failed";
      else if (tries < MAX_TRIES)
        await sleep(this.#ports, Math.max(backoff.nextMs(), result.retryAfterMs ?? 0), this.#abort.signal);
    }
    return "failed";
  }

  async #create(key: string, pending: Pending): Promise<ApiResult<unknown>> {
    const { regarding, type, reason, message } = pending.note;
    const namespace = regarding.namespace ?? this.#options.defaultNamespace ?? "default";
    const { component } = this.#options;
    const isRepeat = pending.name !== undefined;
    pending.name ??= this.#newName(regarding);
    const { name } = pending;
    const body = {
      apiVersion: "v1",
      kind: "Event",
      metadata: { namespace, name },
      involvedObject: regarding,
      type,
      reason,
      message,
      count: pending.count,
      firstTimestamp: time(pending.firstMs),
      lastTimestamp: time(pending.lastMs),
      source: { component },
      reportingComponent: component,
    };
    const answer = await this.#api.create(corePath("events", namespace), body, (raw) => raw, this.#call());
    const result = isRepeat && answer.kind === "conflict" ? ({ kind: "ok", object: body } as const) : answer;
    if (result.kind === "ok") this.#sent.set(key, { path: corePath("events", namespace, name), count: pending.count });
    return result;
  }

  #newName({ name }: ObjectReference): string {
    const suffix = Math.floor(this.#ports.random.fraction() * 2 ** 52).toString(16);
    return `${name.slice(0, MAX_NAME_LENGTH)}.${suffix}`;
  }

  async #countUp(sent: Sent, pending: Pending): Promise<ApiResult<unknown>> {
    const count = sent.count + pending.count;
    const body = { count, message: pending.note.message, lastTimestamp: time(pending.lastMs) };
    const result = await this.#api.patch(sent.path, "application/merge-patch+json", body, (raw) => raw, this.#call());
    if (result.kind === "ok") sent.count = count;
    return result;
  }

  #call() {
    return { timeoutMs: REQUEST_TIMEOUT_MS, signal: this.#abort.signal };
  }

  #told(outcome: EventOutcome): void {
    this.#options.onOutcome?.(outcome);
  }
}

/** `metav1.Time`: whole seconds. */
function time(wallMs: number): string {
  return new Date(wallMs).toISOString().replace(/\.\d{3}Z$/, "Z");
}
