import { observed, type Transport } from "../../shared/kube/client/transport.ts";
import type { Clock } from "../../shared/runtime/clock.ts";

/** How far this machine's clock is from those of the apiservers, by the dates of their responses. */
export class ServerClock {
  readonly #clock: Pick<Clock, "nowMs">;
  #aheadMs: number | undefined;

  constructor(clock: Pick<Clock, "nowMs">) {
    this.#clock = clock;
  }

  /** Returns the same transport, whose responses set the clock. */
  watch(transport: Transport): Transport {
    return observed(transport, ({ headers }) => {
      const aheadMs = this.#clock.nowMs() - Date.parse(headers.date ?? "");
      if (Math.abs(aheadMs) < Math.abs(this.#aheadMs ?? Number.POSITIVE_INFINITY)) this.#aheadMs = aheadMs;
    });
  }

  /**
   * By how much this machine is ahead of the apiserver that agrees best with it, of those that have responded since the
   * last call: one of several may be wrong itself. Undefined without a date.
   */
  takeAheadMs(): number | undefined {
    const aheadMs = this.#aheadMs;
    this.#aheadMs = undefined;
    return aheadMs;
  }
}
