/** The command line of `npm run demo`. */
import { parseArgs } from "node:util";

export interface DemoOptions {
  /** End after the last scene, with 0 when every promise held and 1 when not. */
  readonly once: boolean;
  /** Leave the logs of all processes in a folder that stays. */
  readonly keep: boolean;
  /** Where the report is written; undefined for none. */
  readonly report: string | undefined;
}

export const HELP = `npm run demo [-- OPTIONS]

Starts a core cluster and two worker clusters of Kubernetes, real ones, on loopback addresses; runs this project in them; and
shows what it refuses and what it lets pass. Stays up afterwards, so that you can try it yourself with kubectl; Ctrl-C ends it
and leaves nothing behind.

  --once    end after the last scene: exit code 0 when every promise held, 1 when not; the last line is a summary of counts
  --keep    keep the logs of all processes, and say where they are
  --report FILE
            write what happened as one HTML page: availability against the promise, answers, faults, who asked
  --help    this text
`;

/** Returns the options, or a text to print instead, with the exit code. */
export function demoOptions(args: readonly string[]): DemoOptions | { readonly text: string; readonly code: number } {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        once: { type: "boolean" },
        keep: { type: "boolean" },
        report: { type: "string" },
        help: { type: "boolean", short: "h" },
      },
    });
    if (values.help) return { text: HELP, code: 0 };
    return { once: values.once ?? false, keep: values.keep ?? false, report: values.report };
  } catch (error) {
    return { text: `${error instanceof Error ? error.message : String(error)}\n\n${HELP}`, code: 2 };
  }
}
