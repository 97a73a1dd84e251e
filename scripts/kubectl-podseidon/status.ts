/** `status`: every protector in one line, or one protector in full. */
import { findProtectors, requireProtectors } from "./find-protectors.ts";
import type { Command, Context } from "./invocation/command.ts";
import { CommandError, EXIT, type ExitCode, orElse } from "./invocation/errors.ts";
import { age, fields, plural, table } from "./invocation/output.ts";
import { statusTable } from "./status-table.ts";
import { watchStatus } from "./status-watch.ts";
import { type CellView, type ProtectorView, type ReservationView, suspensionText, viewProtector } from "./view.ts";
import { waitingEvictions } from "./waiting-evictions.ts";

const MAX_RESERVATIONS_SHOWN = 20;

export function statusDetail(view: ProtectorView): string {
  const suspended = suspensionText(view);
  const how = view.derivation === undefined ? "" : ` (${view.derivation})`;
  const parts = [
    fields([
      ["PodProtector", `${view.namespace}/${view.name}`],
      ["Source", view.source ?? (view.managed ? "unknown" : "none: made by hand")],
      ["Promise", `${plural(view.required, `${view.counted} pod`)}${how}`],
      [capitalized(view.counted), `${view.available} of ${view.total} pods, ${view.reserved} of them reserved`],
      ["Allowed", `${plural(view.allowed, "disruption")} now`],
      ["State", view.state],
      ...(suspended === "" ? [] : [["Suspended", suspended] as const]),
      ...(view.released === undefined ? [] : [["Released", view.released] as const]),
    ]),
    `\nCells:\n${cellTable(view.cells)}`,
    reservationText(view.reservations),
    conditionText(view),
  ];
  return parts.join("");
}

function capitalized(word: string): string {
  return `${word.slice(0, 1).toUpperCase()}${word.slice(1)}`;
}

function cellTable(cells: readonly CellView[]): string {
  if (cells.length === 0) return "  none: no aggregator has counted it yet\n";
  const head = ["CELL", "AVAILABLE", "RESERVED", "HEARTBEAT", "LAST EVENT", "STATE"];
  const rows = cells.map((cell) => [
    cell.cell,
    `${cell.available}/${cell.total}`,
    String(cell.reserved),
    age(cell.heartbeatAgeMs),
    age(cell.lastEventAgeMs),
    cell.hold === undefined ? cell.state : `${cell.state}: ${cell.hold.split("/")[0]}`,
  ]);
  return table(head, rows, "  ");
}

/** The reservations, for `status` and `why`. */
export function reservationText(reservations: readonly ReservationView[]): string {
  if (reservations.length === 0) return "\nReservations: none\n";
  const head = ["CELL", "POD", "OPERATION", "HOLDS", "ADMITTED", "FIRST"];
  const rows = reservations
    .slice(0, MAX_RESERVATIONS_SHOWN)
    .map((one) => [
      one.cell,
      one.pod ?? "(packed)",
      one.operation,
      one.weight === 0 ? "nothing: it was not available" : String(one.weight),
      `${age(one.ageMs)} ago`,
      `${age(one.firstAgeMs)} ago`,
    ]);
  const more = reservations.length - rows.length;
  return `\nReservations, the oldest first:\n${table(head, rows, "  ")}${more > 0 ? `  and ${more} more\n` : ""}`;
}

function conditionText({ conditions }: ProtectorView): string {
  if (conditions.length === 0) return "";
  const rows = conditions.map(({ type, status, reason, message }) => [type, status, reason, message]);
  return `\nConditions:\n${table(["TYPE", "STATUS", "REASON", "MESSAGE"], rows, "  ")}`;
}

async function waitingIn(context: Context, namespace: string | undefined): Promise<string> {
  // A kubeconfig of the core alone, without a current context, has no cluster with pods.
  const cluster = await context.cluster().catch(orElse(() => undefined));
  if (cluster === undefined) return "";
  return await context.progress.during(`reading the pods of tainted nodes of ${cluster.name}`, () =>
    waitingEvictions(cluster, namespace),
  );
}

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  const isWatched = context.is("watch");
  if (isWatched && context.isForPrograms)
    throw new CommandError("--watch prints lines for people: leave --output away");
  const [core, namespace] = [await context.core(), await context.namespaces()];
  // A named context has to be there, although the protectors are shown without the cluster.
  if (context.text("context") !== undefined) await context.cluster();
  const style = { allNamespaces: namespace === undefined, isWide: context.isWide };
  const readBy = async (find: typeof requireProtectors): Promise<readonly ProtectorView[]> => {
    const found = await core.protectors(namespace);
    const chosen = args.length === 0 ? found : args.flatMap((word) => find(word, found, namespace, core));
    return chosen.map((protector) => viewProtector(protector, core.nowMs()));
  };
  const reading = `reading the protectors of ${core.name}`;
  const views = await context.progress.during(reading, () => readBy(requireProtectors));
  // A deleted protector may come back, as for `kubectl get --watch`.
  if (isWatched) return await watchStatus(context, { views, read: () => readBy(findProtectors), style });
  if (args.length === 0) {
    const none =
      namespace === undefined
        ? "There are no protectors.\n"
        : `There are no protectors in namespace ${namespace}; -A shows all.\n`;
    context.print(views, views.length === 0 ? none : statusTable(views, style));
    // Afterwards: the protectors do not wait for a cluster that does not answer.
    if (!context.isForPrograms) context.printMore(await waitingIn(context, namespace));
    return EXIT.yes;
  }
  context.print(views, views.map(statusDetail).join("\n"));
  return EXIT.yes;
}

export const status: Command = {
  name: "status",
  usage: "[PROTECTOR ...]",
  summary: "All protectors, one line each; a named one with its cells, reservations and ages.",
  doing: "looking for the cluster",
  description:
    "CELLS says how many of the cells with pods of the protector are counted and current. OLDEST is the age of " +
    "the oldest reservation. Below the table are the pods of this cluster that wait on tainted nodes for their " +
    "eviction.",
  flags: { watch: { type: "boolean", short: "w", help: "Go on, and print each protector that changes." } },
  arity: [0, 100],
  completes: "protectors",
  run,
};
