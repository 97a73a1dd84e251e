/** What ends a command: a sentence for the user, and the exit code. */

/** 0: yes, or done. 1: no, or a problem was found. 2: it could not be told, or the command line is wrong. */
export const EXIT = { yes: 0, no: 1, unknown: 2 } as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** The command can't go on; the message says what to do. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
