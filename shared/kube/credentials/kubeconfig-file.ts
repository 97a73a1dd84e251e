import * as v from "valibot";
import { AccessError } from "./cluster-access.ts";

const text = v.nullish(v.string());

const Cluster = v.looseObject({
  server: text,
  "certificate-authority": text,
  "certificate-authority-data": text,
  "insecure-skip-tls-verify": v.nullish(v.boolean()),
  "tls-server-name": text,
  "proxy-url": text,
});

const User = v.looseObject({
  token: text,
  tokenFile: text,
  username: text,
  password: text,
  "client-certificate": text,
  "client-certificate-data": text,
  "client-key": text,
  "client-key-data": text,
  exec: v.optional(v.unknown()),
  "auth-provider": v.optional(v.unknown()),
});

const Context = v.looseObject({ cluster: text, user: text, namespace: text });

const Kubeconfig = v.looseObject({
  "current-context": text,
  clusters: v.nullish(v.array(v.looseObject({ name: v.string(), cluster: Cluster }))),
  contexts: v.nullish(v.array(v.looseObject({ name: v.string(), context: Context }))),
  users: v.nullish(v.array(v.looseObject({ name: v.string(), user: v.nullish(User) }))),
});

export type KubeconfigCluster = v.InferOutput<typeof Cluster>;
export type KubeconfigUser = v.InferOutput<typeof User>;

/** The part of a kubeconfig that one context selects. */
export interface SelectedContext {
  readonly name: string;
  /** Undefined also for an empty namespace. */
  readonly namespace: string | undefined;
  readonly cluster: KubeconfigCluster;
  readonly user: KubeconfigUser;
  /** The text of the whole file. */
  readonly text: string;
}

/** Parses a kubeconfig (YAML or JSON) and selects a context. Rejects with {@link AccessError}, which names `path`. */
export async function parseKubeconfig(
  path: string,
  wanted: string | undefined,
  content: string,
): Promise<SelectedContext> {
  const parsed = v.safeParse(Kubeconfig, await parseText(path, content));
  if (!parsed.success) {
    const problems = v.flatten(parsed.issues).nested ?? {};
    const fields = Object.keys(problems).join(", ") || "it is no mapping";
    throw new AccessError("malformed", `${path} is no kubeconfig (${fields}); write it with kubectl config`);
  }
  const config = parsed.output;
  const contexts = config.contexts ?? [];
  const name = wanted ?? config["current-context"] ?? "";
  const known = contexts.map((context) => context.name).join(", ") || "none";
  if (name === "") {
    const advice = "run kubectl config use-context NAME, or name a context";
    throw new AccessError("no-context", `${path} has no current-context (contexts: ${known}); ${advice}`);
  }
  const context = contexts.find((candidate) => candidate.name === name)?.context;
  if (context === undefined) {
    throw new AccessError("no-context", `${path} has no context "${name}" (contexts: ${known}); choose one of these`);
  }
  const cluster = config.clusters?.find((candidate) => candidate.name === context.cluster)?.cluster;
  if (cluster === undefined) {
    const message = `${path}: context "${name}" names the cluster "${context.cluster ?? ""}", which is not in the file`;
    throw new AccessError("unknown-cluster", `${message}; add it with kubectl config set-cluster`);
  }
  return {
    name,
    namespace: context.namespace || undefined,
    cluster,
    user: userOf(config, path, name, context.user),
    text: content,
  };
}

function userOf(
  config: v.InferOutput<typeof Kubeconfig>,
  path: string,
  context: string,
  name: string | null | undefined,
): KubeconfigUser {
  if (!name) return {};
  const found = config.users?.find((candidate) => candidate.name === name);
  if (found === undefined) {
    const message = `${path}: context "${context}" names the user "${name}", who is not in the file`;
    throw new AccessError("unknown-user", `${message}; add it with kubectl config set-credentials`);
  }
  return found.user ?? {};
}

async function parseText(path: string, content: string): Promise<unknown> {
  try {
    // JSON is valid YAML, but needs no library.
    if (content.trimStart().startsWith("{")) return JSON.parse(content);
    const yaml = await import("js-yaml");
    return yaml.load(content);
  } catch {
    // Without the cause: the parser's message quotes the text, which contains credentials.
    throw new AccessError("malformed", `${path} is not YAML; check that it is a kubeconfig and not cut off`);
  }
}
