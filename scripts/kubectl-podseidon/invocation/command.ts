/** What all commands share: flags, the clusters that they name, and output. */
import { dump } from "js-yaml";
import { OWN_NAMESPACE } from "../../../shared/recovery/register/register-format.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { type ClusterClient, connect } from "./cluster.ts";
import { CommandError, type ExitCode } from "./errors.ts";
import type { Flag } from "./flag.ts";
import { type Kubeconfig, kubeconfigPaths, type PluginEnvironment, readKubeconfigs } from "./kubeconfig.ts";
import { IMPERSONATION_FLAGS, KUBECTL_FLAGS, overridesOf, PLACE_FLAGS } from "./kubectl-flags.ts";
import { parseDuration } from "./output.ts";
import { flagsText } from "./printed-commands.ts";
import { ProgressLine, type Terminal } from "./progress.ts";

/** Names the context of the core cluster without a flag. */
const CORE_CONTEXT_VARIABLE = "PODSEIDON_CORE_CONTEXT";

export const GLOBAL_FLAGS = {
  context: {
    type: "string",
    value: "NAME",
    help: "The context of the cluster that has the pods. Default: the current context.",
  },
  "core-context": {
    type: "string",
    value: "NAME",
    help:
      "The context of the core cluster, which has the PodProtectors. " +
      `Default: ${CORE_CONTEXT_VARIABLE}, else that of --context.`,
  },
  kubeconfig: { type: "string", value: "FILE", help: "The kubeconfig. Default: KUBECONFIG, else ~/.kube/config." },
  ...KUBECTL_FLAGS,
  namespace: { type: "string", short: "n", value: "NAMESPACE", help: "The namespace. Default: that of the context." },
  "all-namespaces": { type: "boolean", short: "A", help: "All namespaces." },
  output: {
    type: "string",
    short: "o",
    value: "json|yaml|wide",
    help: "The format. wide is the default text with more columns, where a command has more.",
  },
  help: { type: "boolean", short: "h", help: "Says what the command does." },
} as const satisfies Record<string, Flag>;

export const YES = {
  yes: { type: "boolean", help: "Do it. Without this nothing is changed." },
} as const satisfies Record<string, Flag>;

export const SYSTEM_NAMESPACE = {
  "system-namespace": { type: "string", value: "NAMESPACE", help: `Where podseidon runs. Default: ${OWN_NAMESPACE}.` },
} as const satisfies Record<string, Flag>;

export const CELL = {
  cell: {
    type: "string",
    value: "ID",
    help: "The cell of the cluster, where its webhook configuration can't be read.",
  },
} as const satisfies Record<string, Flag>;

export type FlagValues = Readonly<Record<string, string | boolean | readonly string[] | undefined>>;

export interface Command {
  readonly name: string;
  /** The command's arguments, such as `POD`. */
  readonly usage: string;
  readonly summary: string;
  /** The text of the progress line before the first step. */
  readonly doing: string;
  readonly description: string;
  readonly flags: Readonly<Record<string, Flag>>;
  /** The minimum and maximum number of arguments. */
  readonly arity: readonly [number, number];
  /** The kind of the first argument, for completion. */
  readonly completes?: "protectors" | "pods" | "nodes" | "cells" | "shells";
  readonly run: (context: Context, args: readonly string[]) => Promise<ExitCode>;
}

export interface Surroundings {
  readonly terminal: Terminal;
  readonly ports: Ports;
  readonly environment: PluginEnvironment;
}

/** One invocation. */
export class Context {
  readonly flags: FlagValues;
  readonly terminal: Terminal;
  readonly ports: Ports;
  readonly progress: ProgressLine;
  readonly #environment: PluginEnvironment;
  #config: Promise<Kubeconfig> | undefined;
  readonly #clients = new Map<string, Promise<ClusterClient>>();
  /** Two logins at one terminal would read from each other's prompt. */
  #lastClient: Promise<unknown> = Promise.resolve();

  constructor(flags: FlagValues, { terminal, ports, environment }: Surroundings) {
    this.flags = flags;
    this.terminal = terminal;
    this.ports = ports;
    this.progress = new ProgressLine(terminal, ports);
    this.#environment = environment;
  }

  /** A flag's text; undefined when it was not given. */
  text(name: string): string | undefined {
    const value = this.flags[name];
    return typeof value === "string" && value !== "" ? value : undefined;
  }

  /** Milliseconds; undefined when it was not given. An empty text, as of an unset variable of the shell, is refused. */
  duration(name: string, example: string): number | undefined {
    const text = this.flags[name];
    if (typeof text !== "string") return undefined;
    const ms = parseDuration(text);
    if (ms === undefined) throw new CommandError(`--${name} ${text}: write it as ${example}`);
    return ms;
  }

  /** The cell that the user names. */
  get cell(): string | undefined {
    const text = this.text("cell");
    return text === undefined ? undefined : cellId(text);
  }

  is(name: string): boolean {
    return this.flags[name] === true;
  }

  /** Whether the output is for a program. */
  get isForPrograms(): boolean {
    return this.text("output") === "json" || this.text("output") === "yaml";
  }

  get isWide(): boolean {
    return this.text("output") === "wide";
  }

  /** Prints `value` in the format of `--output`, or `text` for people. */
  print(value: unknown, text: string): void {
    this.progress.clear();
    // Converts to JSON first, because the YAML library does not accept classes or undefined fields.
    const json = this.isForPrograms ? JSON.stringify(value, undefined, 2) : "";
    if (!this.isForPrograms) this.terminal.out(text);
    else this.terminal.out(this.text("output") === "yaml" ? dump(JSON.parse(json)) : `${json}\n`);
  }

  /** Prints a text for people below what was printed. */
  printMore(text: string): void {
    this.progress.clear();
    this.terminal.out(text);
  }

  kubeconfig(): Promise<Kubeconfig> {
    const flag = this.text("kubeconfig");
    this.#config ??= readKubeconfigs(kubeconfigPaths(flag, this.#environment), flag !== undefined);
    return this.#config;
  }

  /** The cluster that has the pods. */
  cluster(): Promise<ClusterClient> {
    return this.named(this.text("context"));
  }

  /** The cluster that has the protectors. */
  core(): Promise<ClusterClient> {
    return this.named(this.#coreContext ?? this.text("context"));
  }

  /** Whether the core is named explicitly, instead of assumed to be the cluster with the pods. */
  get namesCore(): boolean {
    return this.#coreContext !== undefined;
  }

  get #coreContext(): string | undefined {
    return this.text("core-context") ?? (this.#environment[CORE_CONTEXT_VARIABLE] || undefined);
  }

  /** The texts of a flag that may be given several times. */
  texts(name: string): readonly string[] {
    const value = this.flags[name];
    return Array.isArray(value) ? value.filter((text) => text !== "") : [];
  }

  /** Those of the flags that were given, and the impersonated user, for a printed command. */
  repeated(...names: readonly string[]): string {
    const given = [...names, ...IMPERSONATION_FLAGS].map(
      (name) => [name, this.text(name) ?? this.texts(name)] as const,
    );
    return flagsText(Object.fromEntries(given));
  }

  /**
   * Flags by which printed commands of the plugin, and of kubectl, find `cluster` and this core. A variable of the
   * shell is still there. `both` names both, as `join` needs it.
   */
  async flagsFor(cluster: ClusterClient): Promise<readonly [plugin: string, kubectl: string, both: string]> {
    const [core, { contexts, currentContext }] = [await this.core(), await this.kubeconfig()];
    const isImplied = cluster.name === currentContext || !contexts.includes(cluster.name);
    const [kubeconfig, context] = [this.text("kubeconfig"), isImplied ? undefined : cluster.name];
    const unnamed = this.namesCore || cluster === core ? undefined : core.name;
    const own = { "core-context": this.text("core-context") ?? unnamed };
    const isNamed = this.namesCore && cluster === core;
    const isPlace = cluster.name === (this.text("context") ?? currentContext);
    const same = (isPlaced: boolean): string => this.repeated(...(isPlaced ? PLACE_FLAGS : []));
    return [
      flagsText({ kubeconfig, ...own, context: isNamed ? undefined : context }) + same(isPlace && !isNamed),
      flagsText({ kubeconfig, context }) + same(isPlace),
      flagsText({ kubeconfig, "core-context": core.name, context: cluster.name }) + same(isPlace),
    ];
  }

  async namespace(): Promise<string> {
    return this.text("namespace") ?? (await this.cluster()).namespace;
  }

  get systemNamespace(): string {
    return this.text("system-namespace") ?? OWN_NAMESPACE;
  }

  /** For printed commands of the plugin that take it. */
  get systemFlag(): string {
    return flagsText({ "system-namespace": this.text("system-namespace") });
  }

  /** The namespace, or undefined for all. */
  async namespaces(): Promise<string | undefined> {
    return this.is("all-namespaces") ? undefined : await this.namespace();
  }

  nowMs(): number {
    return this.ports.clock.nowMs();
  }

  async close(): Promise<void> {
    for (const client of await Promise.allSettled(this.#clients.values()))
      if (client.status === "fulfilled") client.value.close();
  }

  /** The cluster of a context, which has one client. */
  async named(context: string | undefined): Promise<ClusterClient> {
    const config = await this.kubeconfig();
    const key = context ?? config.currentContext ?? "";
    const isPlace = key === (this.text("context") ?? config.currentContext ?? "");
    const overrides = overridesOf(this, isPlace);
    const open = (): Promise<ClusterClient> => connect(config, context, this.ports, this.#environment, overrides);
    const known = this.#clients.get(key) ?? this.#lastClient.then(open, open);
    this.#clients.set(key, known);
    this.#lastClient = known;
    return await known;
  }
}

/** The argument at `index`, which the arity guarantees. */
export function argument(args: readonly string[], index: number, what: string): string {
  const value = args[index];
  if (value === undefined) throw new CommandError(`name ${what}`);
  return value;
}

/** The name in the first argument, which may begin with the kind, as `kubectl get --output name` prints it. */
export function objectName(args: readonly string[], kind: "pod" | "node"): string {
  const word = argument(args, 0, `a ${kind}`);
  const name = word.replace(/^(pod|node)s?\//, "");
  if (!/^[a-z\d.-]+$/.test(name)) throw new CommandError(`${word} is no name of a ${kind}: see kubectl get ${kind}s`);
  return name;
}

/** The text, which has to be an id of a cell. */
export function cellId(text: string): string {
  if (!/^[^/%,\s]+$/.test(text))
    throw new CommandError(`"${text}" is no id of a cell: see the column CELL of kubectl podseidon status NAME`);
  return text;
}
