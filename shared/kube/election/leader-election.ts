import { Backoff } from "../../runtime/backoff.ts";
import { type Ports, sleep } from "../../runtime/clock.ts";
import type { ApiResult } from "../client/api-result.ts";
import { Leadership, type StopReason } from "./leadership.ts";
import { durationMsOf, holderOf, type Lease, LeaseClient, type LeaseClientOptions, recordOf } from "./lease.ts";

export type LeaderEvent =
  | { readonly kind: "leading"; readonly transitions: number }
  | { readonly kind: "stopped"; readonly reason: StopReason }
  /** The lease has a new holder; empty after a release. */
  | { readonly kind: "observed"; readonly holder: string }
  | { readonly kind: "failed"; readonly during: LeaseCall; readonly error: Error; readonly retryMs: number };

export type { StopReason } from "./leadership.ts";
export type LeaseCall = "get" | "create" | "update";

export interface LeaderElectorOptions
  extends Pick<LeaseClientOptions, "transport" | "namespace" | "name" | "identity"> {
  readonly ports: Ports;
  /** Milliseconds that other candidates wait after the last renewal that they saw. Default 15,000. */
  readonly leaseDurationMs?: number;
  /** Milliseconds that a leader leads after it sent its last successful renewal. Default 10,000. */
  readonly renewDeadlineMs?: number;
  /** Default 2,000. */
  readonly retryPeriodMs?: number;
  /** `signal` aborts when leadership ends, for any reason. */
  readonly onStartedLeading: (signal: AbortSignal) => void;
  /** Resolves when the leader's work has ended; the lease is released only then. */
  readonly onStoppedLeading: () => void | Promise<void>;
  readonly onEvent?: (event: LeaderEvent) => void;
  /** Called with the resourceVersion of the Lease after each read and write. */
  readonly onSeen?: (version: string) => void;
}

/** Candidates spread their tries over this multiple of the retry period, as in client-go. */
const CANDIDATE_JITTER = 1.2;
const MAX_BACKOFF_MS = 15_000;
/** The least pause after a failed try, as a part of the retry period: towards its end a term leaves no other. */
const LEAST_PAUSE = 0.1;

type Attempt =
  | { readonly kind: "held" }
  | { readonly kind: "waiting" }
  | { readonly kind: "failed"; readonly during: LeaseCall; readonly error: Error; readonly retryAfterMs: number };

/**
 * Leader election on a Lease with client-go's semantics: candidates time the changes of the record by their own
 * monotonic clocks and never compare the time of another machine. Every write is a compare-and-swap.
 *
 * A leader leads for the renew deadline from the moment it *sent* its last successful renewal. Other candidates wait
 * the longer lease duration from the moment they *saw* it. So `isLeader` becomes false before another candidate can
 * take the lease, even when requests hang, responses are lost, or the process was stopped. An election can't exclude a
 * deleted lease or a machine that slept; fences protect the leader's writes in these cases (docs/design.md#fences).
 */
export class LeaderElector {
  readonly #options: LeaderElectorOptions;
  readonly #ports: Ports;
  readonly #client: LeaseClient;
  readonly #leadership: Leadership;
  readonly #leaseDurationMs: number;
  readonly #renewDeadlineMs: number;
  readonly #retryPeriodMs: number;
  readonly #backoff: Backoff;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #lease: Lease | undefined;
  #record: string | undefined;
  /** Monotonic time at which this process first saw the present record. */
  #recordSinceMs = 0;

  /** Throws a RangeError for times that would allow two leaders. */
  constructor(options: LeaderElectorOptions) {
    const { leaseDurationMs = 15_000, renewDeadlineMs = 10_000, retryPeriodMs = 2000 } = options;
    if (
      !(leaseDurationMs > renewDeadlineMs && renewDeadlineMs > retryPeriodMs * CANDIDATE_JITTER && retryPeriodMs > 0)
    ) {
      throw new RangeError(
        `leader election needs leaseDuration > renewDeadline > ${CANDIDATE_JITTER} * retryPeriod > 0`,
      );
    }
    this.#options = options;
    this.#ports = options.ports;
    this.#client = new LeaseClient({ ...options, clock: options.ports.clock, leaseDurationMs });
    this.#leadership = new Leadership(options.ports, {
      started: (signal) => {
        options.onEvent?.({ kind: "leading", transitions: this.#lease?.spec?.leaseTransitions ?? 0 });
        options.onStartedLeading(signal);
      },
      stopped: (reason) => {
        options.onEvent?.({ kind: "stopped", reason });
        return options.onStoppedLeading();
      },
    });
    this.#leaseDurationMs = leaseDurationMs;
    this.#renewDeadlineMs = renewDeadlineMs;
    this.#retryPeriodMs = retryPeriodMs;
    this.#backoff = new Backoff(
      { initialMs: retryPeriodMs, maxMs: Math.max(MAX_BACKOFF_MS, retryPeriodMs), jitter: 0.2 },
      options.ports.random,
    );
  }

  /** The last observed holder; undefined before the first read, empty after a release. */
  get holder(): string | undefined {
    return this.#lease === undefined ? undefined : holderOf(this.#lease);
  }

  /** True while no other candidate can hold the lease, by this process's monotonic clock. Ask before each write. */
  isLeader(): boolean {
    return this.#leadership.leftMs > 0;
  }

  /** Starts to run for leadership, and again after each loss; idempotent. */
  start(): void {
    this.#running ??= this.#run();
  }

  /** Stops running for leadership. A leader releases its lease when its work has ended. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    if (!this.#leadership.begun) return this.#leadership.ended;
    const { leftMs } = this.#leadership;
    this.#leadership.end("released");
    // If the leader's work does not end, the lease expires by itself.
    const timeout = new AbortController();
    const ended = await Promise.race([
      this.#leadership.ended.then(() => true),
      sleep(this.#ports, leftMs, timeout.signal).then(() => false),
    ]);
    timeout.abort();
    if (ended) await this.#release();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#leadership.ended;
      const startedMs = this.#nowMs();
      const attempt = await this.#attempt();
      if (signal.aborted) return;
      await sleep(this.#ports, this.#pauseMs(attempt, this.#nowMs() - startedMs), signal);
    }
  }

  /** Milliseconds until the next try. */
  #pauseMs(attempt: Attempt, tookMs: number): number {
    if (attempt.kind !== "failed") this.#backoff.reset();
    const { leftMs } = this.#leadership;
    // On a slow server the next try takes as long. With the whole period before it, each term would end beforehand.
    const leaderMs = Math.max(0, Math.min(this.#retryPeriodMs, leftMs - 2 * tookMs));
    if (attempt.kind === "held") return leaderMs;
    if (attempt.kind === "waiting") {
      const jitter = this.isLeader() ? 0 : CANDIDATE_JITTER;
      return this.#retryPeriodMs * (1 + jitter * this.#ports.random.fraction());
    }
    // A leader retries at its period while it leads; a candidate can wait.
    const wantedMs = leftMs > 0 ? Math.max(leaderMs, LEAST_PAUSE * this.#retryPeriodMs) : this.#backoff.nextMs();
    const longestMs = leftMs > 0 ? Math.max(this.#retryPeriodMs, leftMs / 2) : Number.POSITIVE_INFINITY;
    const retryMs = Math.min(Math.max(wantedMs, attempt.retryAfterMs), longestMs);
    this.#options.onEvent?.({ kind: "failed", during: attempt.during, error: attempt.error, retryMs });
    return retryMs;
  }

  async #attempt(): Promise<Attempt> {
    // A renewal needs no read: the compare-and-swap fails when anything has changed.
    if (this.isLeader() && this.#lease !== undefined) {
      const renewal = await this.#write(this.#lease);
      if (renewal.kind !== "conflict" && renewal.kind !== "gone") return this.#attemptOf("update", renewal);
    }
    const read = await this.#client.read(this.#call());
    if (read.kind === "gone") return this.#attemptToCreate();
    if (read.kind !== "ok") return this.#attemptOf("get", read);
    this.#observe(read.object);
    const holder = holderOf(read.object);
    if (holder !== "" && holder !== this.#options.identity) {
      if (this.#leadership.begun) {
        this.#leadership.end("lost");
        return { kind: "waiting" };
      }
      const expiresMs = this.#recordSinceMs + durationMsOf(read.object, this.#leaseDurationMs);
      if (this.#nowMs() < expiresMs) return { kind: "waiting" };
    }
    return this.#attemptOf("update", await this.#write(read.object));
  }

  /** The creation of an object results in `gone` only if the namespace is missing. */
  async #attemptToCreate(): Promise<Attempt> {
    const created = await this.#create();
    if (created.kind !== "gone") return this.#attemptOf("create", created);
    const error = new Error(`the namespace "${this.#options.namespace}" of the lease does not exist`);
    return { kind: "failed", during: "create", error, retryAfterMs: 0 };
  }

  #attemptOf(during: LeaseCall, result: ApiResult<Lease>): Attempt {
    switch (result.kind) {
      case "ok":
        return { kind: this.isLeader() ? "held" : "waiting" };
      case "conflict":
      case "gone":
        // Another candidate was faster; the next try reads its write.
        return { kind: "waiting" };
      case "rejected":
        return { kind: "failed", during, error: new Error(result.message), retryAfterMs: 0 };
      case "unavailable":
        return { kind: "failed", during, error: result.error, retryAfterMs: result.retryAfterMs ?? 0 };
    }
  }

  async #write(lease: Lease): Promise<ApiResult<Lease>> {
    const sentMs = this.#nowMs();
    return this.#written(sentMs, await this.#client.hold(lease, this.#call()), lease.metadata.resourceVersion);
  }

  async #create(): Promise<ApiResult<Lease>> {
    const sentMs = this.#nowMs();
    return this.#written(sentMs, await this.#client.create(this.#call()));
  }

  #written(sentMs: number, result: ApiResult<Lease>, before?: string): ApiResult<Lease> {
    if (result.kind !== "ok") return result;
    this.#observe(result.object);
    // Something in between, or a policy, may answer 200 without the write, which changes the record each time.
    if (holderOf(result.object) !== this.#options.identity || result.object.metadata.resourceVersion === before)
      return { kind: "conflict", message: "the answer shows no write" };
    // A late response does not start a term, nor does a response while this process stops or the last term's work ends.
    // The next try sees this holder.
    if (!this.#stop.signal.aborted) this.#leadership.extend(sentMs + this.#renewDeadlineMs);
    return result;
  }

  async #release(): Promise<void> {
    let lease = this.#lease;
    // The second try is for a renewal whose response was lost, but which has raised the version.
    for (let tries = 0; tries < 2 && lease !== undefined && holderOf(lease) === this.#options.identity; tries += 1) {
      const options = { timeoutMs: this.#requestTimeoutMs() };
      const result = await this.#client.release(lease, options);
      if (result.kind === "ok") this.#observe(result.object);
      if (result.kind !== "conflict") return;
      const read = await this.#client.read(options);
      lease = read.kind === "ok" ? read.object : undefined;
    }
  }

  #observe(lease: Lease): void {
    const before = this.holder;
    const record = recordOf(lease);
    this.#lease = lease;
    this.#options.onSeen?.(lease.metadata.resourceVersion);
    if (record !== this.#record) {
      this.#record = record;
      this.#recordSinceMs = this.#nowMs();
    }
    if (holderOf(lease) !== before) this.#options.onEvent?.({ kind: "observed", holder: holderOf(lease) });
  }

  #nowMs(): number {
    return this.#ports.clock.monotonicMs();
  }

  /** Half of the renew deadline, so that two tries fit into it. */
  #requestTimeoutMs(): number {
    return this.#renewDeadlineMs / 2;
  }

  #call() {
    return { timeoutMs: this.#requestTimeoutMs(), signal: this.#stop.signal };
  }
}
