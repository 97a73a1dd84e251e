/** Shows the progress of a long step, one line at a time. */
export interface BuildProgress {
  /** A step began or ended; always shown. */
  step(line: string): void;
  /** Progress within the step; shown as often as fits the output. */
  detail(line: string): void;
}

const DETAIL_INTERVAL_MS = { terminal: 200, log: 15_000 };

/** Writes to standard error: details overwrite each other on a terminal, and appear every 15 s in a log. */
export function stderrProgress(): BuildProgress {
  const terminal = process.stderr.isTTY;
  const intervalMs = terminal ? DETAIL_INTERVAL_MS.terminal : DETAIL_INTERVAL_MS.log;
  let lastMs = performance.now();
  let unfinished = false;
  const clear = (): string => (unfinished ? "\r\x1b[K" : "");
  return {
    step(line) {
      process.stderr.write(`${clear()}control plane: ${line}\n`);
      unfinished = false;
      lastMs = performance.now();
    },
    detail(line) {
      if (performance.now() - lastMs < intervalMs) return;
      lastMs = performance.now();
      const text = `control plane:   ${line}`;
      const width = process.stderr.columns ?? 120;
      process.stderr.write(terminal ? `${clear()}${text.slice(0, width - 1)}` : `${text}\n`);
      unfinished = terminal;
    },
  };
}

export const silentProgress: BuildProgress = { step: () => {}, detail: () => {} };

export function teeProgress(...targets: readonly BuildProgress[]): BuildProgress {
  const all = (kind: keyof BuildProgress) => (line: string) => {
    for (const target of targets) target[kind](line);
  };
  return { step: all("step"), detail: all("detail") };
}
