/** `explain`: what a denial, a failure, a condition or a hold means, and what to do about it. Needs no cluster. */
import type { Command, Context } from "../invocation/command.ts";
import { CommandError, EXIT, type ExitCode } from "../invocation/errors.ts";
import { didYouMean, isNear } from "../invocation/near-names.ts";
import { fields, table } from "../invocation/output.ts";
import { EXPLANATIONS, type Explained, explanationsOf } from "./explanations.ts";

function textOf({ name, kind, means, act }: Explained): string {
  return fields([
    ["Name", `${name} (${kind})`],
    ["Means", means],
    ["Do", act],
  ]);
}

/** Without the pattern: JSON has none, and would show it as an empty object. */
function forPrograms({ name, kind, means, act }: Explained): Omit<Explained, "text"> {
  return { name, kind, means, act };
}

async function run(context: Context, words: readonly string[]): Promise<ExitCode> {
  const text = words.join(" ");
  if (text === "") {
    const rows = EXPLANATIONS.map(({ name, kind, means }) => [name, kind, means]);
    context.print({ explanations: EXPLANATIONS.map(forPrograms) }, table(["NAME", "KIND", "MEANS"], rows));
    return EXIT.yes;
  }
  const found = explanationsOf(text);
  if (found.length === 0) {
    const near = EXPLANATIONS.map(({ name }) => name).filter((name) => isNear(name.toLowerCase(), text.toLowerCase()));
    throw new CommandError(`nothing is known of ${text}${didYouMean(near)}; kubectl podseidon explain lists all`);
  }
  context.print({ explanations: found.map(forPrograms) }, found.map(textOf).join("\n"));
  return EXIT.yes;
}

export const explain: Command = {
  name: "explain",
  usage: "[NAME | TEXT]",
  summary: "What does this denial, condition or hold mean, and what can you do?",
  doing: "looking it up",
  description:
    "NAME is a cause (AtMinimum), a condition (CellStale), its reason, or the cause of a hold. TEXT is the message " +
    "of a denial, pasted as it is. Without either, all names are listed. Exit code 0: explained; 2: not known.",
  flags: {},
  arity: [0, 200],
  run,
};
