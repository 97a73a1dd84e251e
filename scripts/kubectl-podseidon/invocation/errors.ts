/** The error and the exit code that end a command. */

/** 0: yes, or done. 1: no, or a problem was found. 2: unknown, or the command line is wrong. */
export const EXIT = { yes: 0, no: 1, unknown: 2 } as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** The command can't continue; the message has the remedy. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

/**
 * For `catch`, where a command can do without the result: returns what stands in for it. An error that is no sentence
 * for the user is a mistake in this code, and is thrown.
 */
export const orElse =
  <T>(instead: (error: CommandError) => T) =>
  (error: unknown): T => {
    if (error instanceof CommandError) return instead(error);
    throw error;
  };
