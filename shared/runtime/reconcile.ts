import type { Ports } from "./clock.ts";
import type { WorkQueue } from "./work-queue.ts";

/** The contract of every reconciler: what happens with its key next. */
export type ReconcileOutcome =
  /** The state is as wanted. */
  | { readonly kind: "done" }
  /**
   * The state is as wanted for now; reconcile again after `afterMs`. Not a failure. `asked` is false where no server
   * was asked, so that a backoff goes on if the next try fails.
   */
  | { readonly kind: "later"; readonly afterMs: number; readonly asked?: boolean }
  /**
   * The state is not as wanted. If `retriable`, reconcile again after a backoff, no sooner than `retryAfterMs`.
   * Otherwise, only when the key is added again, because only a change can help.
   */
  | { readonly kind: "failed"; readonly error: Error; readonly retriable: boolean; readonly retryAfterMs?: number };

export const DONE: ReconcileOutcome = { kind: "done" };

export function later(afterMs: number): ReconcileOutcome {
  return { kind: "later", afterMs };
}

/** As {@link later}, of a try that asked no server. */
export function untried(afterMs: number): ReconcileOutcome {
  return { kind: "later", afterMs, asked: false };
}

export function failed(error: Error, retriable: boolean, retryAfterMs?: number): ReconcileOutcome {
  return retryAfterMs === undefined
    ? { kind: "failed", error, retriable }
    : { kind: "failed", error, retriable, retryAfterMs };
}

interface ReconcileContext {
  /** Aborts when the workers stop at once. */
  readonly signal: AbortSignal;
  /** Failures of this key in a row before this try. */
  readonly failures: number;
}

export type Reconcile<K> = (key: K, context: ReconcileContext) => Promise<ReconcileOutcome>;

export interface ReconcileWorkerOptions<K> {
  /** Number of keys that are reconciled at once. */
  readonly workers: number;
  readonly ports: Ports;
  readonly onOutcome?: (key: K, outcome: ReconcileOutcome) => void;
  /**
   * Called for a violated invariant, after which this process must not continue. By default, the error is thrown
   * outside of any promise: the handler of uncaught errors ends the process, and another candidate takes the lease.
   */
  readonly onInvariantFailure?: (error: Error) => void;
}

export interface Workers {
  /** Takes no more keys, and resolves when work in progress has ended; `abort` asks it to end at once. */
  stop(options?: { readonly abort?: boolean }): Promise<void>;
}

/** Longer work without yielding to I/O would delay health checks and watch streams. */
const SLICE_MS = 10;

/** Reconciles the keys of the queue until `stop`. An error that a reconciler throws is a retriable failure. */
export function runWorkers<K>(
  queue: WorkQueue<K>,
  reconcile: Reconcile<K>,
  options: ReconcileWorkerOptions<K>,
): Workers {
  const { ports } = options;
  const controller = new AbortController();
  const slice = new Slice(ports);

  const attempt = async (key: K): Promise<ReconcileOutcome> => {
    try {
      return await reconcile(key, { signal: controller.signal, failures: queue.failures(key) });
    } catch (thrown) {
      const error =
        thrown instanceof Error
          ? thrown
          : new Error("a reconciler threw something that is no error", { cause: thrown });
      if (isInvariantFailure(error)) (options.onInvariantFailure ?? throwOutside)(error);
      return { kind: "failed", error, retriable: true };
    }
  };

  const work = async (): Promise<void> => {
    for (let key = await queue.take(); key !== undefined; key = await queue.take()) {
      slice.begin();
      const outcome = await attempt(key);
      settle(queue, key, outcome);
      queue.done(key);
      options.onOutcome?.(key, outcome);
      await slice.rest();
    }
  };

  const running = Promise.all(Array.from({ length: options.workers }, work));
  return {
    async stop({ abort = false } = {}) {
      queue.stop();
      if (abort) controller.abort();
      await running;
    },
  };
}

function settle<K>(queue: WorkQueue<K>, key: K, outcome: ReconcileOutcome): void {
  if (outcome.kind === "failed" && outcome.retriable) {
    queue.addRateLimited(key, outcome.retryAfterMs);
    return;
  }
  if (outcome.kind === "later" && outcome.asked === false) queue.ease(key);
  else queue.forget(key);
  if (outcome.kind === "later") queue.addAfter(key, outcome.afterMs);
}

/**
 * Yields to I/O: work that never waits runs from promise to promise, and blocks the event loop. A timer at the start of
 * a slice shows whether the loop has turned since. If it has not for too long, work waits until it does.
 */
class Slice {
  readonly #ports: Ports;
  #sinceMs = 0;
  #turn: Promise<void> | undefined;

  constructor(ports: Ports) {
    this.#ports = ports;
  }

  begin(): void {
    if (this.#turn !== undefined) return;
    this.#sinceMs = this.#ports.clock.monotonicMs();
    this.#turn = new Promise((resolve) => {
      this.#ports.timers.after(0, () => {
        this.#turn = undefined;
        resolve();
      });
    });
  }

  async rest(): Promise<void> {
    if (this.#turn !== undefined && this.#ports.clock.monotonicMs() - this.#sinceMs > SLICE_MS) await this.#turn;
  }
}

/** A failed assertion: `node:assert`, or an error named InvariantError. */
function isInvariantFailure(error: Error): boolean {
  return error.name === "InvariantError" || error.name === "AssertionError";
}

function throwOutside(error: Error): void {
  queueMicrotask(() => {
    throw error;
  });
}
