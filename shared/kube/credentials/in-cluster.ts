import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { mounted } from "../../runtime/mount-root.ts";
import { AccessError, type ClusterAccess } from "./cluster-access.ts";
import { CredentialFile } from "./credential-file.ts";
import { FileCredentials } from "./file-credentials.ts";

type Environment = Readonly<Record<string, string | undefined>>;

const SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount";

/** Access by the pod's service account. Rejects with {@link AccessError} outside of a pod. */
export async function inClusterAccess(env: Environment): Promise<ClusterAccess> {
  const host = env.KUBERNETES_SERVICE_HOST;
  const port = env.KUBERNETES_SERVICE_PORT_HTTPS ?? env.KUBERNETES_SERVICE_PORT;
  if (!host || !port) {
    const advice = "give the path of a kubeconfig, or run in a pod with a service account";
    throw new AccessError(
      "not-in-cluster",
      `no kubeconfig is given and KUBERNETES_SERVICE_HOST/PORT are not set: ${advice}`,
    );
  }
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
  });
  await credentials.current(Number.NEGATIVE_INFINITY);
  const server = `https://${host.includes(":") ? `[${host}]` : host}:${port}`;
  return { description: "in-cluster", server, namespace: await ownNamespace(directory), credentials };
}

async function ownNamespace(directory: string): Promise<string | undefined> {
  try {
    return (await readFile(join(directory, "namespace"), "utf8")).trim() || undefined;
  } catch {
    return undefined;
  }
}
