/**
 * Turns a kubeconfig or a service account into access to a cluster. Related files: `kubeconfig-file.ts` (the file),
 * `kubeconfig-credentials.ts` (a file that is replaced), `file-credentials.ts` (tokens and certificates),
 * `exec-credentials.ts` (exec plugins), `plugin-credentials.ts` (OIDC), `impersonation.ts`, `proxy.ts`.
 */
import { readFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { Ports } from "../../runtime/clock.ts";
import { mounted } from "../../runtime/mount-root.ts";
import { systemPorts } from "../../runtime/system-ports.ts";
import { AccessError, type ClusterAccess, type CredentialSource, type KubeconfigEvent } from "./cluster-access.ts";
import { CredentialFile, FileCredentials, type Given } from "./file-credentials.ts";
import { KubeconfigCredentials } from "./kubeconfig-credentials.ts";
import { type KubeconfigUser, parseKubeconfig, type SelectedContext } from "./kubeconfig-file.ts";
import type { ProxySettings } from "./proxy.ts";

type Environment = Readonly<Record<string, string | undefined>>;

const SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount";
/** Exit code of a process whose options or files can't be used. */
const EXIT_CONFIGURATION = 2;

interface LoadOptions {
  /** The source of `KUBERNETES_SERVICE_HOST` and similar variables. Default `process.env`. */
  readonly env?: Environment;
  /** The context to use instead of `current-context`. */
  readonly context?: string;
  /** The text to use instead of the file's, merged from several files. Its paths are relative to `path`. */
  readonly text?: string;
  /** Ports for exec plugins. Default: those of the process. */
  readonly ports?: Ports;
  /** Called when the kubeconfig has changed, it or a file of it is no longer usable, or it checks no server. */
  readonly onEvent?: (event: KubeconfigEvent) => void;
}

/** As {@link loadClusterAccess}, but without access, prints the flag and the remedy, and exits with 2. */
export async function accessOrExit(
  component: string,
  flag: string,
  path: string,
  onEvent: (event: KubeconfigEvent) => void,
): Promise<ClusterAccess> {
  try {
    return await loadClusterAccess(path, { env: process.env, onEvent });
  } catch (error) {
    if (!(error instanceof AccessError)) throw error;
    process.stderr.write(`${component}: ${flag}: ${error.message}\n`);
    process.exit(EXIT_CONFIGURATION);
  }
}

/**
 * Resolves with the access to the cluster of a kubeconfig file, or, for the empty path, of the pod's service account.
 * Rejects with {@link AccessError}.
 */
export async function loadClusterAccess(path: string, options: LoadOptions = {}): Promise<ClusterAccess> {
  const env = options.env ?? process.env;
  return path === "" ? await inClusterAccess(env, options) : await fileAccess(mounted(path, env), options);
}

async function inClusterAccess(env: Environment, { onEvent }: LoadOptions): Promise<ClusterAccess> {
  const host = env.KUBERNETES_SERVICE_HOST;
  const port = env.KUBERNETES_SERVICE_PORT_HTTPS ?? env.KUBERNETES_SERVICE_PORT;
  if (!host || !port) {
    const message = "no kubeconfig is given and KUBERNETES_SERVICE_HOST/PORT are not set";
    const advice = "give the path of a kubeconfig, or run in a pod with a service account";
    throw new AccessError("not-in-cluster", `${message}: ${advice}`);
  }
  const server = `https://${host.includes(":") ? `[${host}]` : host}:${port}`;
  const directory = mounted(SERVICE_ACCOUNT_DIR, env);
  const credentials = new FileCredentials({
    where: directory,
    token: new CredentialFile(join(directory, "token"), "the service account's token"),
    basic: undefined,
    ca: new CredentialFile(join(directory, "ca.crt"), "the cluster's CA"),
    cert: undefined,
    key: undefined,
    serverName: undefined,
    skipVerification: false,
    proxy: await proxyOf({ where: "in-cluster", server, proxyUrl: undefined, env }),
    onEvent,
  });
  await credentials.current(Number.NEGATIVE_INFINITY);
  return { description: "in-cluster", server, namespace: await ownNamespace(directory), credentials };
}

async function ownNamespace(directory: string): Promise<string | undefined> {
  try {
    return (await readFile(join(directory, "namespace"), "utf8")).trim() || undefined;
  } catch {
    return undefined;
  }
}

async function fileAccess(path: string, options: LoadOptions): Promise<ClusterAccess> {
  const file = new CredentialFile(path, "the kubeconfig");
  const text = options.text ?? (await file.read(Number.NEGATIVE_INFINITY));
  const selected = await parseKubeconfig(path, options.context, text);
  const server = serverUrl(path, selected);
  const source = await credentialsOf(path, selected, options);
  const description = `${path} (context ${selected.name})`;
  const open = async (renewed: string): Promise<CredentialSource> => {
    const again = await contextOf(path, selected.name, renewed, options.context);
    if (serverUrl(path, again) === server) return await credentialsOf(path, again, options);
    const message = `${path}: the server's address changed from ${server} to ${serverUrl(path, again)}`;
    throw new AccessError("server-changed", `${message}; restart this process to use it`);
  };
  const onEvent = options.onEvent ?? (() => {});
  // A given text is merged from several files for one short command, so it is not read again.
  const credentials =
    options.text === undefined ? new KubeconfigCredentials({ file, text, source, open, onEvent }) : source;
  return { description, server, namespace: selected.namespace, credentials };
}

/** The context with the same name as before; the current-context where the tool that renews the file has renamed it. */
async function contextOf(
  path: string,
  name: string,
  text: string,
  wanted: string | undefined,
): Promise<SelectedContext> {
  try {
    return await parseKubeconfig(path, name, text);
  } catch (error) {
    if (wanted !== undefined || !(error instanceof AccessError) || error.tag !== "no-context") throw error;
    return await parseKubeconfig(path, undefined, text);
  }
}

/** The proxy to the server. The rules are loaded only where a proxy is configured. */
async function proxyOf(settings: ProxySettings): Promise<string | undefined> {
  const isConfigured = Object.keys(settings.env).some((name) => /^https?_proxy$/i.test(name));
  if (!settings.proxyUrl && !isConfigured) return undefined;
  const { proxyFor } = await import("./proxy.ts");
  return proxyFor(settings);
}

function serverUrl(path: string, { cluster, name }: SelectedContext): string {
  const given = cluster.server ?? "";
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || (url.protocol !== "https:" && url.protocol !== "http:")) {
    const message = `${path}: the cluster of context "${name}" has no usable server address ("${given}")`;
    throw new AccessError("no-server", `${message}; set one like https://HOST:6443`);
  }
  return given.replace(/\/+$/, "");
}

async function credentialsOf(path: string, selected: SelectedContext, options: LoadOptions): Promise<CredentialSource> {
  const source = await ownCredentialsOf(path, selected, options);
  if (!Object.keys(selected.user).some((name) => /^as(-|$)/.test(name))) return source;
  const { impersonated } = await import("./impersonation.ts");
  return impersonated(source, path, selected);
}

/** The credentials without impersonation. */
async function ownCredentialsOf(
  path: string,
  selected: SelectedContext,
  { env = process.env, ports = systemPorts, onEvent }: LoadOptions,
): Promise<CredentialSource> {
  const { user, cluster, name } = selected;
  const where = `${path} (context ${name})`;
  refuseIgnoredAuthority(where, cluster);
  const server = serverUrl(path, selected);
  if (cluster["insecure-skip-tls-verify"] === true || server.startsWith("http:"))
    onEvent?.({ kind: "unverified", path: where });
  const proxy = await proxyOf({ where, server, proxyUrl: cluster["proxy-url"], env });
  // As in client-go, credentials in the file itself have precedence.
  const isGiven = [
    user.token,
    user.tokenFile,
    user.username,
    user["client-certificate"],
    user["client-certificate-data"],
  ];
  if (user.exec && !isGiven.some(Boolean)) {
    const { ExecCredentials } = await import("./exec-credentials.ts");
    const make = (given: KubeconfigUser): CredentialSource =>
      fileCredentials(path, { ...selected, user: given }, proxy, onEvent);
    return new ExecCredentials({ path, selected, ports, make });
  }
  if (user["auth-provider"]) {
    // Loaded on demand: the client library is large, and most processes never need it.
    const { PluginCredentials } = await import("./plugin-credentials.ts");
    return new PluginCredentials(path, selected, proxy);
  }
  const credentials = fileCredentials(path, selected, proxy, onEvent);
  await credentials.current(Number.NEGATIVE_INFINITY);
  return credentials;
}

/** As in client-go: a CA in the kubeconfig asks for a check of the server. */
function refuseIgnoredAuthority(where: string, cluster: SelectedContext["cluster"]): void {
  const hasAuthority = cluster["certificate-authority-data"] || cluster["certificate-authority"];
  if (cluster["insecure-skip-tls-verify"] !== true || !hasAuthority) return;
  const message = `${where}: a certificate authority and insecure-skip-tls-verify exclude each other`;
  throw new AccessError("certificate", `${message}; remove one of them`);
}

function fileCredentials(
  path: string,
  { user, cluster, name }: SelectedContext,
  proxy: string | undefined,
  onEvent: LoadOptions["onEvent"],
): FileCredentials {
  const given = (data: string | null | undefined, file: string | null | undefined, what: string): Given => {
    if (data) return Buffer.from(data, "base64").toString("utf8");
    return file ? new CredentialFile(resolve(dirname(path), file), what) : undefined;
  };
  return new FileCredentials({
    where: `${path} (context ${name})`,
    // As in client-go, the file wins.
    token: given(undefined, user.tokenFile, "the token file") ?? (user.token || undefined),
    inlineToken: user.token || undefined,
    basic: user.username ? { username: user.username, password: user.password ?? "" } : undefined,
    ca: given(cluster["certificate-authority-data"], cluster["certificate-authority"], "the certificate authority"),
    cert: given(user["client-certificate-data"], user["client-certificate"], "the client certificate"),
    key: given(user["client-key-data"], user["client-key"], "the client key"),
    serverName: cluster["tls-server-name"] || undefined,
    skipVerification: cluster["insecure-skip-tls-verify"] ?? false,
    proxy,
    onEvent,
  });
}
