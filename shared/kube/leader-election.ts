import { Backoff } from "../runtime/backoff.ts";
import { type Ports, sleep, type Timer } from "../runtime/clock.ts";
import { ApiClient } from "./api.ts";
import type { ApiResult } from "./api-result.ts";
import {
  durationMsOf,
  heldLease,
  holderOf,
  type Lease,
  newLease,
  parseLease,
  recordOf,
  releasedLease,
} from "./lease.ts";
import type { Transport } from "./transport.ts";

export type LeaderEvent =
  | { readonly kind: "leading"; readonly transitions: number }
  | { readonly kind: "stopped"; readonly reason: StopReason }
  /** Another holder than before was seen; empty when the lease was released. */
  | { readonly kind: "observed"; readonly holder: string }
  | { readonly kind: "failed"; readonly during: LeaseCall; readonly error: Error; readonly retryMs: number };

/** `expired`: could not renew in time. `lost`: another holds it. `released`: given up by `stop`. */
export type StopReason = "expired" | "lost" | "released";
export type LeaseCall = "get" | "create" | "update";

export interface LeaderElectorOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  readonly namespace: string;
  /** Name of the Lease (design 12). */
  readonly name: string;
  /** Unique among all candidates that ever were: `POD_RANDOM`. */
  readonly identity: string;
  /** How long others wait after the last renewal that they saw. Default 15,000. */
  readonly leaseDurationMs?: number;
  /** How long after it sent its last successful renewal a leader goes on. Default 10,000. */
  readonly renewDeadlineMs?: number;
  /** Default 2,000. */
  readonly retryPeriodMs?: number;
  /** `signal` aborts when leadership ends, whatever the reason. */
  readonly onStartedLeading: (signal: AbortSignal) => void;
  /** Resolves when nothing of the leadership's work runs any more; the lease is released only then. */
  readonly onStoppedLeading: () => void | Promise<void>;
  readonly onEvent?: (event: LeaderEvent) => void;
}

/** Candidates spread their tries over this multiple of the retry period, as client-go's do. */
const CANDIDATE_JITTER = 1.2;
const MAX_BACKOFF_MS = 15_000;

type Attempt =
  | { readonly kind: "held" }
  | { readonly kind: "waiting" }
  | { readonly kind: "failed"; readonly during: LeaseCall; readonly error: Error; readonly retryAfterMs: number };

interface Leadership {
  readonly controller: AbortController;
  /** Monotonic: from then on another may hold the lease, as far as this process knows. */
  untilMs: number;
  expiry: Timer;
}

/**
 * Leader election on a Lease with client-go's semantics: candidates time the record's changes by their own monotonic
 * clock and never compare another machine's time; every write is a compare-and-swap.
 *
 * A leader's time runs from the moment it *sent* its last successful renewal, for the renew deadline; others wait the
 * longer lease duration from the moment they *saw* it. So `isLeader` turns false before the lease can pass on, even when
 * requests hang, responses are lost or the process was stopped. What no election can exclude (a lease that is deleted, a
 * machine that was asleep) is fenced where the leader writes (design 5.2, 5.4).
 */
export class LeaderElector {
  readonly #options: LeaderElectorOptions;
  readonly #ports: Ports;
  readonly #api: ApiClient;
  readonly #path: string;
  readonly #leaseDurationMs: number;
  readonly #renewDeadlineMs: number;
  readonly #retryPeriodMs: number;
  readonly #backoff: Backoff;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #lease: Lease | undefined;
  #record: string | undefined;
  /** Monotonic time at which this process first saw the record as it is. */
  #recordSinceMs = 0;
  #leadership: Leadership | undefined;
  /** The end of the last leadership's work, and whether it is still to come. */
  #ended: Promise<void> = Promise.resolve();
  #ending = false;

  /** Throws a RangeError for times that could make two leaders. */
  constructor(options: LeaderElectorOptions) {
    const { leaseDurationMs = 15_000, renewDeadlineMs = 10_000, retryPeriodMs = 2000, namespace } = options;
    if (
      !(leaseDurationMs > renewDeadlineMs && renewDeadlineMs > retryPeriodMs * CANDIDATE_JITTER && retryPeriodMs > 0)
    ) {
      throw new RangeError(
        `leader election needs leaseDuration > renewDeadline > ${CANDIDATE_JITTER} * retryPeriod > 0`,
      );
    }
    this.#options = options;
    this.#ports = options.ports;
    this.#api = new ApiClient(options.transport);
    this.#path = `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/leases`;
    this.#leaseDurationMs = leaseDurationMs;
    this.#renewDeadlineMs = renewDeadlineMs;
    this.#retryPeriodMs = retryPeriodMs;
    this.#backoff = new Backoff(
      { initialMs: retryPeriodMs, maxMs: Math.max(MAX_BACKOFF_MS, retryPeriodMs), jitter: 0.2 },
      options.ports.random,
    );
  }

  /** The holder as last observed; undefined before the first read, empty when released. */
  get holder(): string | undefined {
    return this.#lease === undefined ? undefined : holderOf(this.#lease);
  }

  /** True only while no other candidate can hold the lease, by this process's monotonic clock. Ask before each write. */
  isLeader(): boolean {
    return this.#leadership !== undefined && this.#nowMs() < this.#leadership.untilMs;
  }

  /** Becomes a candidate, again after each loss; idempotent. */
  start(): void {
    this.#running ??= this.#run();
  }

  /** Gives up candidacy; a leader releases its lease, once its work has ended, so that another can take over at once. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    const leadership = this.#leadership;
    if (leadership === undefined) return this.#ended;
    const leftMs = leadership.untilMs - this.#nowMs();
    this.#endLeadership("released");
    // Work that goes on for longer than the lease is not covered by a release: the lease expires by itself.
    const timeout = new AbortController();
    const ended = await Promise.race([
      this.#ended.then(() => true),
      sleep(this.#ports, leftMs, timeout.signal).then(() => false),
    ]);
    timeout.abort();
    if (ended) await this.#release();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#ended;
      const attempt = await this.#attempt();
      if (signal.aborted) return;
      await sleep(this.#ports, this.#pauseMs(attempt), signal);
    }
  }

  /** How long until the next try. */
  #pauseMs(attempt: Attempt): number {
    if (attempt.kind === "held") {
      this.#backoff.reset();
      return this.#retryPeriodMs;
    }
    if (attempt.kind === "waiting") {
      this.#backoff.reset();
      const jitter = this.isLeader() ? 0 : CANDIDATE_JITTER;
      return this.#retryPeriodMs * (1 + jitter * this.#ports.random.fraction());
    }
    const leftMs = (this.#leadership?.untilMs ?? 0) - this.#nowMs();
    // A leader tries at its period for as long as it leads; a candidate can wait.
    const wantedMs = leftMs > 0 ? this.#retryPeriodMs : this.#backoff.nextMs();
    const patienceMs = leftMs > 0 ? Math.max(this.#retryPeriodMs, leftMs / 2) : Number.POSITIVE_INFINITY;
    const retryMs = Math.min(Math.max(wantedMs, attempt.retryAfterMs), patienceMs);
    this.#options.onEvent?.({ kind: "failed", during: attempt.during, error: attempt.error, retryMs });
    return retryMs;
  }

  async #attempt(): Promise<Attempt> {
    // A leader's usual renewal needs no read: the compare-and-swap fails when anything has changed.
    if (this.isLeader() && this.#lease !== undefined) {
      const renewal = await this.#write(this.#lease);
      if (renewal.kind !== "conflict" && renewal.kind !== "gone") return this.#attemptOf("update", renewal);
    }
    const read = await this.#api.get(this.#leasePath(), parseLease, this.#call());
    if (read.kind === "gone") return this.#attemptOf("create", await this.#create());
    if (read.kind !== "ok") return this.#attemptOf("get", read);
    this.#observe(read.object);
    const holder = holderOf(read.object);
    if (holder !== "" && holder !== this.#options.identity) {
      if (this.#leadership !== undefined) {
        this.#endLeadership("lost");
        return { kind: "waiting" };
      }
      const expiresMs = this.#recordSinceMs + durationMsOf(read.object, this.#leaseDurationMs);
      if (this.#nowMs() < expiresMs) return { kind: "waiting" };
    }
    return this.#attemptOf("update", await this.#write(read.object));
  }

  #attemptOf(during: LeaseCall, result: ApiResult<Lease>): Attempt {
    switch (result.kind) {
      case "ok":
        return { kind: this.isLeader() ? "held" : "waiting" };
      case "conflict":
      case "gone":
        // Another candidate was faster; what it did is read at the next try.
        return { kind: "waiting" };
      case "rejected":
        return { kind: "failed", during, error: new Error(result.message), retryAfterMs: 0 };
      case "unavailable":
        return { kind: "failed", during, error: result.error, retryAfterMs: result.retryAfterMs ?? 0 };
    }
  }

  async #write(lease: Lease): Promise<ApiResult<Lease>> {
    const sentMs = this.#nowMs();
    const result = await this.#api.update(
      this.#leasePath(),
      heldLease(lease, this.#holding()),
      parseLease,
      this.#call(),
    );
    return this.#written(sentMs, result);
  }

  async #create(): Promise<ApiResult<Lease>> {
    const sentMs = this.#nowMs();
    const body = newLease(this.#options.namespace, this.#options.name, this.#holding());
    return this.#written(sentMs, await this.#api.create(this.#path, body, parseLease, this.#call()));
  }

  #written(sentMs: number, result: ApiResult<Lease>): ApiResult<Lease> {
    if (result.kind !== "ok") return result;
    this.#observe(result.object);
    const untilMs = sentMs + this.#renewDeadlineMs;
    // An answer that comes too late, while stopping, or before the last leadership's work has ended leads nowhere; the next
    // try finds the lease held by itself.
    const late = this.#nowMs() >= untilMs || this.#stop.signal.aborted || this.#ending;
    if (!late) this.#lead(untilMs, result.object.spec?.leaseTransitions ?? 0);
    return result;
  }

  #lead(untilMs: number, transitions: number): void {
    const expiry = this.#ports.timers.after(untilMs - this.#nowMs(), () => this.#endLeadership("expired"));
    if (this.#leadership !== undefined && this.isLeader()) {
      this.#leadership.expiry.cancel();
      this.#leadership.untilMs = untilMs;
      this.#leadership.expiry = expiry;
      return;
    }
    // Its time had run out before the timer came to say so (a process that was stopped): the old work ends first.
    if (this.#leadership !== undefined) {
      expiry.cancel();
      this.#endLeadership("expired");
      return;
    }
    const controller = new AbortController();
    this.#leadership = { controller, untilMs, expiry };
    this.#options.onEvent?.({ kind: "leading", transitions });
    this.#options.onStartedLeading(controller.signal);
  }

  #endLeadership(reason: StopReason): void {
    const leadership = this.#leadership;
    if (leadership === undefined) return;
    this.#leadership = undefined;
    leadership.expiry.cancel();
    leadership.controller.abort();
    this.#options.onEvent?.({ kind: "stopped", reason });
    this.#ending = true;
    // A rejection is left unhandled: work that can't be ended must end with the process.
    this.#ended = (async () => {
      await this.#options.onStoppedLeading();
      this.#ending = false;
    })();
  }

  async #release(): Promise<void> {
    let lease = this.#lease;
    // The second try is for a renewal whose answer was lost: it raised the version.
    for (let tries = 0; tries < 2 && lease !== undefined && holderOf(lease) === this.#options.identity; tries += 1) {
      const options = { timeoutMs: this.#requestTimeoutMs() };
      const result = await this.#api.update(
        this.#leasePath(),
        releasedLease(lease, this.#ports.clock.nowMs()),
        parseLease,
        options,
      );
      if (result.kind === "ok") this.#observe(result.object);
      if (result.kind !== "conflict") return;
      const read = await this.#api.get(this.#leasePath(), parseLease, options);
      lease = read.kind === "ok" ? read.object : undefined;
    }
  }

  #observe(lease: Lease): void {
    const before = this.holder;
    const record = recordOf(lease);
    this.#lease = lease;
    if (record !== this.#record) {
      this.#record = record;
      this.#recordSinceMs = this.#nowMs();
    }
    if (holderOf(lease) !== before) this.#options.onEvent?.({ kind: "observed", holder: holderOf(lease) });
  }

  #nowMs(): number {
    return this.#ports.clock.monotonicMs();
  }

  #holding() {
    return {
      identity: this.#options.identity,
      leaseDurationMs: this.#leaseDurationMs,
      nowMs: this.#ports.clock.nowMs(),
    };
  }

  /** Two tries fit into the renew deadline. */
  #requestTimeoutMs(): number {
    return this.#renewDeadlineMs / 2;
  }

  #call() {
    return { timeoutMs: this.#requestTimeoutMs(), signal: this.#stop.signal };
  }

  #leasePath(): string {
    return `${this.#path}/${encodeURIComponent(this.#options.name)}`;
  }
}
