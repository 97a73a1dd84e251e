import { dirname, resolve } from "node:path";
import { mounted } from "../../runtime/mount-root.ts";
import { AccessError, type ClusterAccess, type CredentialSource } from "./cluster-access.ts";
import { CredentialFile } from "./credential-file.ts";
import { FileCredentials, type Given } from "./file-credentials.ts";
import { inClusterAccess } from "./in-cluster.ts";
import { readKubeconfig, type SelectedContext } from "./kubeconfig-file.ts";

export interface LoadOptions {
  /** Default `process.env`; `KUBERNETES_SERVICE_HOST` and so on are read from it. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Context instead of `current-context`. */
  readonly context?: string;
  /** The kubeconfig's text instead of the file's, as when several files make one; relative paths in it are beside `path`. */
  readonly text?: string;
}

/**
 * Reads how to reach a cluster: a kubeconfig file, or, for the empty path, the pod's service account.
 * Rejects with {@link AccessError}, whose message says what to do.
 */
export async function loadClusterAccess(path: string, options: LoadOptions = {}): Promise<ClusterAccess> {
  const env = options.env ?? process.env;
  return path === "" ? await inClusterAccess(env) : await fileAccess(mounted(path, env), options);
}

async function fileAccess(path: string, options: LoadOptions): Promise<ClusterAccess> {
  const selected = await readKubeconfig(path, options.context, options.text);
  const server = serverUrl(path, selected);
  const credentials = await credentialsOf(path, selected);
  return {
    description: `${path} (context ${selected.name})`,
    server,
    namespace: selected.namespace,
    credentials,
  };
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

async function credentialsOf(path: string, selected: SelectedContext): Promise<CredentialSource> {
  const { user, cluster, name } = selected;
  if (user.as) {
    throw new AccessError(
      "malformed",
      `${path}: context "${name}" impersonates a user; give credentials of its own instead`,
    );
  }
  if (user.exec || user["auth-provider"] || cluster["proxy-url"]) {
    // Loaded on demand: the client library is large, and most processes never need it (design 8).
    const { PluginCredentials } = await import("./plugin-credentials.ts");
    return new PluginCredentials(path, selected);
  }
  const credentials = fileCredentials(path, selected);
  await credentials.current(Number.NEGATIVE_INFINITY);
  return credentials;
}

function fileCredentials(path: string, { user, cluster, name }: SelectedContext): FileCredentials {
  const where = `${path} (context ${name})`;
  const given = (data: string | null | undefined, file: string | null | undefined, what: string): Given => {
    if (data) return Buffer.from(data, "base64").toString("utf8");
    return file ? new CredentialFile(resolve(dirname(path), file), what) : undefined;
  };
  return new FileCredentials({
    where,
    token: user.token || (user.tokenFile ? given(undefined, user.tokenFile, "the token file") : undefined),
    basic: user.username ? { username: user.username, password: user.password ?? "" } : undefined,
    ca: given(cluster["certificate-authority-data"], cluster["certificate-authority"], "the certificate authority"),
    cert: given(user["client-certificate-data"], user["client-certificate"], "the client certificate"),
    key: given(user["client-key-data"], user["client-key"], "the client key"),
    serverName: cluster["tls-server-name"] ?? undefined,
    skipVerification: cluster["insecure-skip-tls-verify"] ?? false,
  });
}
