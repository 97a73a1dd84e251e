/** Says on standard error what is being waited for, once that takes longer than a second. */
import type { Ports } from "../../shared/runtime/clock.ts";

export interface Terminal {
  out(text: string): void;
  err(text: string): void;
  /** Whether standard error is a terminal, on which a line can be taken back. */
  readonly interactive: boolean;
}

const QUIET_MS = 1000;
const TICK_MS = 500;

export class Progress {
  readonly #terminal: Terminal;
  readonly #ports: Pick<Ports, "timers" | "clock">;
  #shown = false;

  constructor(terminal: Terminal, ports: Pick<Ports, "timers" | "clock">) {
    this.#terminal = terminal;
    this.#ports = ports;
  }

  /** Runs `work`; `detail` is asked for what to add to the line (`12 of 40`). */
  async during<T>(what: string, work: Promise<T>, detail: () => string = () => ""): Promise<T> {
    const sinceMs = this.#ports.clock.monotonicMs();
    const tick = (): void => {
      this.#show(what, detail(), this.#ports.clock.monotonicMs() - sinceMs);
      timer = this.#ports.timers.after(TICK_MS, tick);
    };
    let timer = this.#ports.timers.after(QUIET_MS, tick);
    try {
      return await work;
    } finally {
      timer.cancel();
      if (this.#shown && this.#terminal.interactive) this.#terminal.err("\r\x1b[K");
      this.#shown = false;
    }
  }

  #show(what: string, detail: string, tookMs: number): void {
    const line = `${what}${detail === "" ? "" : ` (${detail})`} ...`;
    if (this.#terminal.interactive) this.#terminal.err(`\r\x1b[K${line} ${Math.floor(tookMs / 1000)} s`);
    // In a log one line says that it takes its time; more would say nothing new.
    else if (!this.#shown) this.#terminal.err(`${line}\n`);
    this.#shown = true;
  }
}
