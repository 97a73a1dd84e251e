/** What the demo says: headings, sentences, and one line of counts that changes in place on a terminal. */
export interface Narrator {
  heading(text: string): void;
  /** A sentence of the story. */
  say(text: string): void;
  /** What a person would have typed. */
  command(text: string): void;
  /** The output of something else, indented; long lines are folded. */
  quote(text: string): void;
  /** Whether a promise held. */
  verdict(held: boolean, text: string): void;
  /** The present counts; shown when they changed, in a log at most every second. */
  counts(text: string): void;
}

const LOG_INTERVAL_MS = 1_000;
const INDENT = "         ";
const FALLBACK_COLUMNS = 120;

function paint(code: number, text: string): string {
  return process.stdout.isTTY ? `\x1b[${code}m${text}\x1b[0m` : text;
}

/** Folds at blanks, so that no line is longer than `width`. */
export function fold(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

/** Writes to standard output; times are seconds since it was made. */
export function narrator(): Narrator {
  const terminal = process.stdout.isTTY;
  const startMs = performance.now();
  let unfinished = false;
  let last = "";
  let lastMs = 0;
  const time = (): string => `${((performance.now() - startMs) / 1000).toFixed(1).padStart(5)} s`;
  const print = (text: string): void => {
    process.stdout.write(`${unfinished ? "\r\x1b[K" : ""}${text}\n`);
    unfinished = false;
  };
  const width = (): number => Math.min(process.stdout.columns ?? FALLBACK_COLUMNS, FALLBACK_COLUMNS) - INDENT.length;
  const paragraph = (text: string): string => fold(text, width()).join(`\n${INDENT}`);
  return {
    heading: (text) => print(`\n${paint(1, `${time()}  ${text}`)}`),
    say: (text) => print(`${time()}  ${paragraph(text)}`),
    command: (text) => print(`${INDENT}${paint(36, `$ ${text}`)}`),
    quote: (text) => {
      for (const line of text.trimEnd().split("\n"))
        print(`${INDENT}${paint(2, fold(line, width()).join(`\n${INDENT}  `))}`);
    },
    verdict: (held, text) => print(`${time()}  ${held ? paint(32, "HELD") : paint(31, "BROKEN")}  ${text}`),
    counts: (text) => {
      const nowMs = performance.now();
      if (text === last || (!terminal && nowMs - lastMs < LOG_INTERVAL_MS)) return;
      last = text;
      lastMs = nowMs;
      if (!terminal) return print(`${time()}  ${text}`);
      process.stdout.write(`\r\x1b[K${time()}  ${text.slice(0, width())}`);
      unfinished = true;
    },
  };
}
