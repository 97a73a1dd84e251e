/**
 * Reads and merges kubeconfig files like kubectl: the first file that names a cluster, user or context has precedence.
 * The KubeConfig of `@kubernetes/client-node` rejects files with the same names.
 */
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import * as v from "valibot";
import { messageOf } from "../../../shared/runtime/errors.ts";
import { CommandError } from "./errors.ts";

export type PluginEnvironment = Readonly<Record<string, string | undefined>>;

/** Files of `--kubeconfig`, `KUBECONFIG` or the home directory. */
export function kubeconfigPaths(flag: string | undefined, environment: PluginEnvironment): readonly string[] {
  if (flag !== undefined && flag !== "") return [flag];
  const listed = (environment.KUBECONFIG ?? "").split(delimiter).filter((path) => path !== "");
  if (listed.length > 0) return [...new Set(listed)];
  return [join(environment.HOME || homedir(), ".kube", "config")];
}

/** Keys of clusters and users whose values are paths, relative to their file. */
const PATHS = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

const Named = v.looseObject({ name: v.string() });
const named = v.nullish(v.array(Named));
const File = v.looseObject({
  "current-context": v.nullish(v.string()),
  clusters: named,
  contexts: named,
  users: named,
});
type Named = v.InferOutput<typeof Named>;

export interface Kubeconfig {
  /** For messages, and as the base of relative paths. */
  readonly path: string;
  /** JSON of all files merged; undefined without a file, so that a pod uses its own service account. */
  readonly text: string | undefined;
  readonly contexts: readonly string[];
  readonly currentContext: string | undefined;
}

/** Reads and merges the files. Ignores missing files, as long as there is one. */
export async function readKubeconfigs(paths: readonly string[], explicit: boolean): Promise<Kubeconfig> {
  const files: v.InferOutput<typeof File>[] = [];
  for (const path of paths) {
    const text = await readText(path, explicit);
    if (text !== undefined) files.push(await parse(path, text));
  }
  const [first = ""] = paths;
  if (files.length === 0) return { path: first, text: undefined, contexts: [], currentContext: undefined };
  const merged = {
    "current-context": files.map((file) => file["current-context"]).find((name) => name),
    clusters: firstOfName(files.flatMap(({ clusters }) => clusters ?? [])),
    contexts: firstOfName(files.flatMap(({ contexts }) => contexts ?? [])),
    users: firstOfName(files.flatMap(({ users }) => users ?? [])),
  };
  return {
    path: paths.join(delimiter),
    text: JSON.stringify(merged),
    contexts: merged.contexts.map(({ name }) => name),
    currentContext: merged["current-context"] ?? undefined,
  };
}

async function readText(path: string, explicit: boolean): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    const missing = error instanceof Error && "code" in error && error.code === "ENOENT";
    if (missing && !explicit) return undefined;
    const several = explicit && path.includes(delimiter) ? "; KUBECONFIG takes several files, --kubeconfig one" : "";
    throw new CommandError(`the kubeconfig ${path} can't be read: ${messageOf(error)}${several}`);
  }
}

async function parse(path: string, text: string): Promise<v.InferOutput<typeof File>> {
  const yaml = await import("js-yaml");
  let raw: unknown;
  try {
    // Like kubectl: an empty file has nothing, and of several documents the first one counts.
    raw = yaml.loadAll(text)[0] ?? {};
  } catch {
    // The parser's message quotes the text, which contains credentials.
    throw new CommandError(`${path} is not YAML; check that it is a kubeconfig`);
  }
  const directory = dirname(resolve(path));
  // A command without a slash is searched in PATH.
  const isPath = (key: string, value: string): boolean =>
    PATHS.includes(key) ? value !== "" : key === "command" && value.includes("/");
  const absolute = (key: string, value: unknown): unknown =>
    typeof value === "string" && isPath(key, value) ? resolve(directory, value) : value;
  const parsed = v.safeParse(File, JSON.parse(JSON.stringify(raw, absolute)));
  if (!parsed.success) throw new CommandError(`${path} is no kubeconfig; write it with kubectl config`);
  return parsed.output;
}

function firstOfName(items: readonly Named[]): readonly Named[] {
  return items.filter(({ name }, index) => items.findIndex((one) => one.name === name) === index);
}
