/**
 * Shows on standard error what a command waits for, if it takes longer than a second: on a terminal one line that is
 * replaced, in a log one line for each step. Standard output stays readable for programs.
 */
import type { Ports, Timer } from "../../../shared/runtime/clock.ts";
import { coloured } from "./colour.ts";
import { cut, escapeControls, widthOf } from "./output.ts";

export interface Terminal {
  out(text: string): void;
  err(text: string): void;
  /** Whether standard error is a terminal, where a line can be erased. */
  readonly interactive: boolean;
  /** Whether standard output shows colours. */
  readonly colours?: boolean;
  /** How wide standard error is now; undefined where it is no terminal. */
  width?(): number | undefined;
}

const ERASE_LINE = "\r\x1b[K";

/**
 * A terminal that escapes control characters. Colours and the erasure of the progress line are added after the escapes.
 */
export function plainTerminal(terminal: Terminal): Terminal {
  return {
    ...terminal,
    out: (text) => terminal.out(terminal.colours === true ? coloured(escapeControls(text)) : escapeControls(text)),
    err: (text) => {
      const erased = text.startsWith(ERASE_LINE) ? ERASE_LINE : "";
      terminal.err(erased + escapeControls(text.slice(erased.length)));
    },
  };
}

const QUIET_MS = 1000;
const TICK_MS = 500;
const ELLIPSIS = " ...";

interface Step {
  readonly what: string;
  readonly detail: () => string;
}

export class ProgressLine {
  readonly #terminal: Terminal;
  readonly #ports: Pick<Ports, "timers" | "clock">;
  /** The steps in progress, each a part of the one before; the last one is shown. */
  readonly #steps: Step[] = [];
  #timer: Timer | undefined;
  #sinceMs = 0;
  /** The step that the line shows. */
  #shown: Step | undefined;

  constructor(terminal: Terminal, ports: Pick<Ports, "timers" | "clock">) {
    this.#terminal = terminal;
    this.#ports = ports;
  }

  /** Runs `work`; `detail` returns an addition to the line (`12 of 40`). Nested steps replace the line. */
  async during<T>(what: string, work: () => Promise<T>, detail: () => string = () => ""): Promise<T> {
    const step = { what, detail };
    if (this.#steps.push(step) === 1) this.#begin();
    try {
      return await work();
    } finally {
      this.#steps.splice(this.#steps.indexOf(step), 1);
      if (this.#steps.length === 0) this.end();
    }
  }

  /** Erases the line before other output; the next tick shows it again. */
  clear(): void {
    if (this.#shown !== undefined && this.#terminal.interactive) this.#terminal.err(ERASE_LINE);
    if (this.#terminal.interactive) this.#shown = undefined;
  }

  /** Stops showing progress: the command has its data, and runs until a user ends it. */
  end(): void {
    this.#timer?.cancel();
    this.clear();
  }

  /** A line that the terminal wraps could not be erased. */
  #fitted(line: string, tookMs: number): string {
    const took = ` ${Math.floor(tookMs / 1000)} s`;
    const room = (this.#terminal.width?.() || Infinity) - took.length - 1;
    return (widthOf(line) <= room ? line : cut(line, room - ELLIPSIS.length) + ELLIPSIS) + took;
  }

  #begin(): void {
    this.#sinceMs = this.#ports.clock.monotonicMs();
    this.#shown = undefined;
    const tick = (): void => {
      this.#show(this.#ports.clock.monotonicMs() - this.#sinceMs);
      this.#timer = this.#ports.timers.after(TICK_MS, tick);
    };
    this.#timer = this.#ports.timers.after(QUIET_MS, tick);
  }

  #show(tookMs: number): void {
    const step = this.#steps.at(-1);
    if (step === undefined) return;
    const detail = step.detail();
    const line = `${step.what}${detail === "" ? "" : ` (${detail})`} ...`;
    if (this.#terminal.interactive) this.#terminal.err(`${ERASE_LINE}${this.#fitted(line, tookMs)}`);
    // In a log, one line for each step is enough.
    else if (this.#shown !== step) this.#terminal.err(`${line}\n`);
    this.#shown = step;
  }
}
