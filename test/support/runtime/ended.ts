import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";

export interface Ended {
  /** -1 where a signal ended it. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What a process has printed when it ends; rejects when it can't be started. */
export async function ended(child: ChildProcess): Promise<Ended> {
  const all = (stream: NodeJS.ReadableStream | null) => (stream === null ? "" : text(stream));
  const [stdout, stderr] = await Promise.all([all(child.stdout), all(child.stderr), once(child, "close")]);
  return { code: child.exitCode ?? -1, stdout, stderr };
}
