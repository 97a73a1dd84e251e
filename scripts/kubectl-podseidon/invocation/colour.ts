/**
 * Colours words about states for people on a terminal. Only colours whole words in the columns of these states, so that
 * a tenant's choice of names is never coloured.
 */
const RED = 31;
const GREEN = 32;
const YELLOW = 33;

const BAD = "below minimum|no disruption possible|no pods match|not counted|workload vanished|deleted";
const WAITS =
  "at minimum|busy|cell stale|cell on hold|waits to be deleted|being deleted|(?:partly )?suspended|released|only warns";

/** Each pattern's first group is painted. */
const PAINTED: readonly (readonly [RegExp, number])[] = [
  [new RegExp(`(?<= {3})(${BAD})$`, "gm"), RED],
  [new RegExp(`(?<= {3})(${WAITS})$`, "gm"), YELLOW],
  [/(?<= {3})(ok)$/gm, GREEN],
  [/^(UNPROTECTED)\b/gm, RED],
  [/^(FAIL)(?= {3})/gm, RED],
  [/^(WARN)(?= {3})/gm, YELLOW],
  [/^(ok)(?= {3})/gm, GREEN],
  [/(?<=^(?:Deletion|Eviction): +)(no)(?=: )/gm, RED],
  [/(?<=^(?:Deletion|Eviction): +)(yes)(?=: )/gm, GREEN],
];

export function coloured(text: string): string {
  return PAINTED.reduce((painted, [pattern, code]) => painted.replace(pattern, `\u001b[${code}m$1\u001b[0m`), text);
}

/** Whether standard output has colours: it is a terminal, and NO_COLOR is not set (https://no-color.org). */
export function takesColour(isTerminal: boolean, environment: Readonly<Record<string, string | undefined>>): boolean {
  return isTerminal && !environment.NO_COLOR && environment.TERM !== "dumb";
}
