/** `status --watch`: the table, then a line for each protector that changes, until a user ends it. */
import { sleep } from "../../shared/runtime/clock.ts";
import { messageOf } from "../../shared/runtime/errors.ts";
import { namespacedName } from "../../shared/schema/podprotector.ts";
import type { Context } from "./invocation/command.ts";
import { columns } from "./invocation/output.ts";
import { headOf, rowOf, type ShownView, type TableStyle } from "./status-table.ts";
import type { ProtectorView } from "./view.ts";

/** Interval between lists: as many requests as by a person who repeats the command. */
const EVERY_MS = 2_000;

interface Watched {
  readonly views: readonly ProtectorView[];
  readonly read: () => Promise<readonly ProtectorView[]>;
  readonly style: TableStyle;
}

/** Never resolves: a signal ends the process. */
export async function watchStatus(context: Context, { views, read, style }: Watched): Promise<never> {
  let shown = new Map<string, ProtectorView>();
  let now = views;
  let isFirst = true;
  context.progress.end();
  for (;;) {
    const changed = now.filter((view) => !isSame(shown.get(namespacedName(view)), view, style));
    const there = new Set(now.map(namespacedName));
    const gone = [...shown.values()].filter((view) => !there.has(namespacedName(view)));
    const deleted = gone.map((view): ShownView => ({ ...view, state: "deleted" }));
    const rows = [...changed, ...deleted].map((view) => rowOf(view, style));
    // Formats all rows together, so that the columns of later lines align with earlier ones.
    const [head = "", ...rest] = columns([headOf(style), ...rows, ...now.map((view) => rowOf(view, style))], "   ");
    const lines = [...(isFirst ? [head] : []), ...rest.slice(0, rows.length)];
    if (lines.length > 0) context.terminal.out(lines.map((line) => `${line.trimEnd()}\n`).join(""));
    shown = new Map(now.map((view) => [namespacedName(view), view]));
    isFirst = false;
    now = await later(context, read, now);
  }
}

/** The result of a later read; the previous one where the cluster does not answer. */
async function later(
  context: Context,
  read: Watched["read"],
  before: readonly ProtectorView[],
): Promise<readonly ProtectorView[]> {
  await sleep(context.ports, EVERY_MS);
  try {
    return await read();
  } catch (error) {
    context.terminal.err(`error: ${messageOf(error)}; trying again\n`);
    return before;
  }
}

/** Ignores ages, which grow all the time. */
function isSame(a: ProtectorView | undefined, b: ProtectorView, style: TableStyle): boolean {
  const row = (view: ProtectorView): string => rowOf({ ...view, oldestReservationMs: undefined }, style).join("\n");
  return a !== undefined && row(a) === row(b);
}
