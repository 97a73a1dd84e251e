/** What each fault cost, for the notes: printed at the end of a run. */

export interface FaultRow {
  readonly name: string;
  /** From the fault to the first failure that was reported; undefined when none was. */
  readonly noticedMs: number | undefined;
  /** From the mending to the first write after it that was seen. */
  readonly recoveredMs: number;
  readonly lists: readonly string[];
  /** In the first ten seconds. */
  readonly requests: { readonly stream: number; readonly confirm: number };
}

const rows: FaultRow[] = [];

export function faultRow(row: FaultRow): void {
  rows.push(row);
}

export function printFaultTable(): void {
  const seconds = (ms: number | undefined): string => (ms === undefined ? "-" : `${(ms / 1000).toFixed(2)} s`);
  const lines = rows.map(
    ({ name, noticedMs, recoveredMs, lists, requests }) =>
      `| ${name} | ${seconds(noticedMs)} | ${seconds(recoveredMs)} | ${lists.join(", ") || "none"} | ${requests.stream} + ${requests.confirm} |`,
  );
  const head =
    "| fault | noticed after | caught up after its end | lists | requests in 10 s (stream + confirming) |\n|---|---|---|---|---|";
  process.stdout.write(`${head}\n${lines.join("\n")}\n`);
}
