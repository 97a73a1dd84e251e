/** The command `status`. */
import type { Command, Context } from "./command.ts";
import { CommandError, EXIT, type ExitCode } from "./errors.ts";
import { statusDetail, statusTable } from "./status.ts";
import { viewProtector } from "./view.ts";

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  const core = await context.core();
  const wanted = args.map((name) => name.replace(/^(ppr|podprotectors?)\//, ""));
  const namespace = await context.namespaces();
  const found = await context.progress.during(`reading the protectors of ${core.name}`, () =>
    core.protectors(namespace),
  );
  const views = found.map((protector) => viewProtector(protector, context.nowMs()));
  if (wanted.length === 0) {
    const none =
      namespace === undefined
        ? "There are no protectors.\n"
        : `There are no protectors in namespace ${namespace}; -A shows all.\n`;
    context.print(views, views.length === 0 ? none : statusTable(views, namespace === undefined));
    return EXIT.yes;
  }
  const chosen = wanted.flatMap((name) => {
    // In all namespaces several can have the name.
    const named = views.filter((one) => one.name === name);
    if (named.length === 0)
      throw new CommandError(`there is no PodProtector ${name} in ${namespace ?? "any namespace"} of ${core.name}`);
    return named;
  });
  context.print(chosen, chosen.map(statusDetail).join("\n"));
  return EXIT.yes;
}

export const status: Command = {
  name: "status",
  usage: "[PROTECTOR ...]",
  summary: "All protectors, one line each; a named one with its cells, reservations and ages.",
  doing: "looking for the cluster",
  description:
    "CELLS is how many of the protector's cells are counted and current; OLDEST is since when the oldest reservation is under way.",
  flags: {},
  arity: [0, 100],
  completes: "protectors",
  run,
};
