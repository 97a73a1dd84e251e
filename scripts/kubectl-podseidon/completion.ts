/** Shell completion: the candidates for a word, and the scripts that request them. */
import { podPath } from "../../shared/kube/client/api-path.ts";
import { valueAt } from "../../shared/schema/check.ts";
import { type Command, type Context, GLOBAL_FLAGS } from "./invocation/command.ts";
import { CommandError, EXIT, type ExitCode } from "./invocation/errors.ts";
import type { Flag } from "./invocation/flag.ts";

/** The candidates for the last of `words`, which may be empty. Never throws, because a shell must not show errors. */
export async function candidates(
  commands: readonly Command[],
  words: readonly string[],
  contextOf: (before: readonly string[]) => Context | undefined,
): Promise<readonly string[]> {
  const word = words.at(-1) ?? "";
  const before = words.slice(0, -1);
  const command = commands.find(({ name }) => before.includes(name));
  const flags: Readonly<Record<string, Flag>> = { ...GLOBAL_FLAGS, ...command?.flags };
  const previous = before.at(-1) ?? "";
  const flag = Object.entries(flags).find(([name, { short }]) => previous === `--${name}` || previous === `-${short}`);
  const found = async (): Promise<readonly string[]> => {
    if (flag?.[1].type === "string") return await valuesOf(flag[0], contextOf(before.slice(0, -1)));
    if (word.startsWith("-")) return Object.keys(flags).map((name) => `--${name}`);
    if (command === undefined) return commands.map(({ name }) => name);
    return await objects(command.completes, contextOf(before));
  };
  try {
    return (await found()).filter((one) => one.startsWith(word)).sort();
  } catch {
    return [];
  }
}

async function valuesOf(flag: string, context: Context | undefined): Promise<readonly string[]> {
  if (flag === "output") return ["json", "wide", "yaml"];
  if (context === undefined) return [];
  if (flag === "context" || flag === "core-context") return (await context.kubeconfig()).contexts;
  if (flag === "namespace") return (await (await context.cluster()).list("/api/v1/namespaces")).map(nameOf);
  return [];
}

async function objects(kind: Command["completes"], context: Context | undefined): Promise<readonly string[]> {
  if (kind === "shells") return ["bash", "zsh"];
  if (kind === undefined || context === undefined) return [];
  if (kind === "nodes") return (await (await context.cluster()).list("/api/v1/nodes")).map(nameOf);
  const namespace = await context.namespace();
  if (kind === "pods") return (await (await context.cluster()).list(podPath(namespace))).map(nameOf);
  const protectors = await (await context.core()).protectors(kind === "cells" ? undefined : namespace);
  if (kind === "protectors") return protectors.map(({ metadata }) => metadata.name);
  return [...new Set(protectors.flatMap(({ status }) => status?.cells?.map(({ cellID }) => cellID) ?? []))];
}

const nameOf = (object: unknown): string => String(valueAt(object, "metadata", "name") ?? "");

const BASH = `# bash completion of kubectl-podseidon: source <(kubectl podseidon completion bash)
_kubectl_podseidon() {
  local IFS=$'\\n'
  COMPREPLY=($(kubectl-podseidon __complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | grep -v '^:'))
}
complete -F _kubectl_podseidon kubectl-podseidon
`;

const ZSH = `#compdef kubectl-podseidon
# zsh completion of kubectl-podseidon: source <(kubectl podseidon completion zsh)
_kubectl_podseidon() {
  local -a found
  found=("\${(@f)$(kubectl-podseidon __complete "\${(@)words[2,CURRENT]}" 2>/dev/null | grep -v '^:')}")
  compadd -- $found
}
compdef _kubectl_podseidon kubectl-podseidon
`;

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  const script = { bash: BASH, zsh: ZSH }[args[0] ?? ""];
  if (script === undefined) throw new CommandError("completion is there for bash and zsh");
  context.terminal.out(script);
  return EXIT.yes;
}

export const completion: Command = {
  name: "completion",
  usage: "bash|zsh",
  summary: "A script that completes commands and names in your shell.",
  doing: "writing the script",
  description:
    "source <(kubectl podseidon completion bash). For `kubectl podseidon` itself put " +
    "kubectl_complete-podseidon beside kubectl-podseidon on the PATH; kubectl asks it.",
  flags: {},
  arity: [1, 1],
  completes: "shells",
  run,
};
