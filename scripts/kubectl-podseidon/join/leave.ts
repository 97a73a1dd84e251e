/** The command `leave`: removes the objects of `join`. The core comes first, so that the tokens end at once. */
import { describeFailure } from "../../../shared/kube/client/api-result.ts";
import { messageOf } from "../../../shared/runtime/errors.ts";
import { CALL_TIMEOUT_MS, type ClusterClient } from "../invocation/cluster.ts";
import { type Command, type Context, SYSTEM_NAMESPACE, YES } from "../invocation/command.ts";
import { CommandError, EXIT, type ExitCode } from "../invocation/errors.ts";
import { inLine } from "../invocation/output.ts";
import { flagsText } from "../invocation/printed-commands.ts";
import { accountObjects, boundSecret, type CellObject, COMPONENTS, kubeconfigSecret } from "./cell-objects.ts";
import { heldKubeconfig, type JoinTarget, type Step, stepsText, targetOf, tellingSteps } from "./join.ts";

const GONE = "was not there";
const DELETED = "deleted";
const KEPT = "kept:";

async function remove(cluster: ClusterClient, { name, path }: CellObject, done: boolean): Promise<Step> {
  const result = await cluster.api.delete(path, { timeoutMs: CALL_TIMEOUT_MS, dryRun: !done });
  if (result.kind !== "ok" && result.kind !== "gone")
    throw new CommandError(`${cluster.name}: ${name}: ${describeFailure(result)}`);
  const outcome = result.kind === "gone" ? GONE : done ? DELETED : "would be deleted (server dry run)";
  return { cluster: cluster.name, object: name, outcome };
}

/** Removes the kubeconfigs in the worker cluster, except for those of another cell. */
async function removeKubeconfigs(target: JoinTarget, done: boolean): Promise<readonly Step[]> {
  const { cell, worker, namespace } = target;
  const steps: Step[] = [];
  for (const component of COMPONENTS) {
    const secret = kubeconfigSecret(component, namespace, "");
    const held = await heldKubeconfig(target, component);
    if (held === undefined || held.cell === cell) steps.push(await remove(worker, secret, done));
    else
      steps.push({ cluster: worker.name, object: secret.name, outcome: `${KEPT} it is of ${held.cell ?? "no cell"}` });
  }
  return steps;
}

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  const target = await targetOf(context, args);
  const { cell, core, worker, namespace } = target;
  const done = context.is("yes");
  const steps: Step[] = [];
  const accounts = COMPONENTS.flatMap((component) => accountObjects(component, cell, namespace));
  const revoke = async (): Promise<void> => {
    for (const one of [boundSecret(cell, namespace, ""), ...accounts]) steps.push(await remove(core, one, done));
  };
  const made = (): readonly Step[] => steps.filter(({ outcome }) => outcome === DELETED);
  await context.progress.during(`revoking ${cell} in ${core.name}`, () => tellingSteps(made, revoke));
  let left = "";
  try {
    steps.push(...(await removeKubeconfigs(target, done)));
  } catch (error) {
    // The tokens of a compromised or vanished cluster are revoked anyway.
    const what = done
      ? "may still have its kubeconfigs, which are of no use"
      : "may have kubeconfigs, which stay there";
    left = `Warning: ${worker.name} ${what}: ${inLine(messageOf(error))}\n`;
  }
  if (steps.every(({ outcome }) => outcome === GONE || outcome.startsWith(KEPT))) {
    const [flags] = await context.flagsFor(worker);
    const doctor = `kubectl podseidon doctor${flags}${context.systemFlag}`;
    throw new CommandError(`no cluster has joined ${core.name} as ${cell}; see ${doctor}`);
  }
  const advice = done
    ? `The pods of ${cell} still count as they did last. If the cluster is gone for good, or gets another id:\n` +
      `  kubectl podseidon remove-cell ${cell} --all-namespaces${flagsText({ "core-context": core.name })} --yes` +
      `${context.repeated("kubeconfig", "system-namespace")}\n`
    : "Nothing was changed. Repeat the command with --yes to do it: then the cluster's webhook denies deletions.\n";
  context.print({ cell, done, steps, ...(left !== "" && { warning: left }) }, `${stepsText(steps)}${left}\n${advice}`);
  return done ? EXIT.yes : EXIT.no;
}

export const leave: Command = {
  name: "leave",
  usage: "CELL",
  summary: "Revoke the accounts of a worker cluster in the core.",
  doing: "looking for the clusters",
  description:
    "Deletes what join made: in the core the Secret that the tokens are bound to, the ServiceAccounts and their " +
    "permissions, and in the cluster of --context its kubeconfigs. Every token of the cell is rejected from then on, " +
    "and no other cell notices. Without --yes the command is a dry run, and changes nothing.",
  flags: { ...SYSTEM_NAMESPACE, ...YES },
  arity: [1, 1],
  completes: "cells",
  run,
};
