/** CPU time and memory of a running process, from /proc. */
import { readFileSync } from "node:fs";

const CLOCK_TICKS_PER_SECOND = 100;

export interface ProcessFigures {
  /** User and system time so far. */
  readonly cpuMs: number;
  readonly residentBytes: number;
  readonly peakResidentBytes: number;
}

/** Throws when the process is not there. */
export function processFigures(pid: number): ProcessFigures {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The command name may hold spaces: count fields after its closing parenthesis.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const ticks = Number(fields[11]) + Number(fields[12]);
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const kilobytes = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1] ?? 0);
  return {
    cpuMs: (ticks * 1000) / CLOCK_TICKS_PER_SECOND,
    residentBytes: kilobytes("VmRSS") * 1024,
    peakResidentBytes: kilobytes("VmHWM") * 1024,
  };
}
