import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { styleText } from "node:util";
import type { Cluster } from "../control-plane/cluster.ts";
import { type Asker, askersOf, type Recorder } from "../report/record.ts";

/** Prints the demo: headings, sentences, and one line of counts that a terminal replaces in place. */
export interface Narrator {
  heading(text: string): void;
  say(text: string): void;
  /** A command, as a user would type it. */
  command(text: string): void;
  /** The output of another program, indented; long lines are folded. */
  quote(text: string): void;
  verdict(held: boolean, text: string): void;
  /** The present counts; shown after a change, in a log at most every second. */
  counts(text: string): void;
}

const LOG_INTERVAL_MS = 1_000;
const INDENT = "         ";
const FALLBACK_COLUMNS = 120;

/** Folds at blanks, so that no line is longer than `width`; those at the beginning stay. */
export function fold(text: string, width: number): string[] {
  const lines: string[] = [];
  const [first = "", ...words] = text.split(" ");
  let line = first;
  for (const word of words) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = `${line} ${word}`;
  }
  return [...lines, line];
}

/** Writes to standard output; times are seconds since its creation. */
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
    heading: (text) => print(`\n${styleText("bold", `${time()}  ${text}`)}`),
    say: (text) => print(`${time()}  ${paragraph(text)}`),
    command: (text) => print(`${INDENT}${styleText("cyan", `$ ${text}`)}`),
    quote: (text) => {
      for (const line of text.trimEnd().split("\n"))
        print(`${INDENT}${styleText("dim", fold(line, width()).join(`\n${INDENT}  `))}`);
    },
    verdict: (held, text) =>
      print(`${time()}  ${held ? styleText("green", "HELD") : styleText("red", "BROKEN")}  ${text}`),
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

/** Commands that remove pods are marked as faults in the report. */
const DISRUPTS = /\b(delete|drain)\b/;

/** Prints like `narrator`, and marks everything in the recorder, if one is active. */
export function recordingNarrator(narrator: Narrator, recorder: () => Recorder | undefined): Narrator {
  return {
    ...narrator,
    heading: (text) => {
      recorder()?.mark("scene", text);
      narrator.heading(text);
    },
    say: (text) => {
      recorder()?.mark("note", text);
      narrator.say(text);
    },
    command: (text) => {
      recorder()?.mark(DISRUPTS.test(text) ? "fault" : "command", DISRUPTS.test(text) ? `$ ${text}` : text);
      narrator.command(text);
    },
    verdict: (held, text) => {
      recorder()?.mark(held ? "held" : "broken", text);
      narrator.verdict(held, text);
    },
  };
}

/** The users who requested deletions, from the logs of the webhook's replicas in these clusters. */
export function askersIn(clusters: readonly Cluster[]): readonly Asker[] {
  const lines = clusters.flatMap(({ directory }) => {
    const logs = join(directory, "logs");
    const files = existsSync(logs) ? readdirSync(logs).filter((name) => name.startsWith("podseidon-webhook")) : [];
    return files.flatMap((file) => readFileSync(join(logs, file), "utf8").split("\n"));
  });
  return askersOf(lines);
}
