/** The generator, run in the process of a test against a real kube-apiserver, with the permissions of the manifests. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Generator } from "../../../controllers/generator/generator.ts";
import type { GeneratorEvent } from "../../../controllers/generator/protectors/events.ts";
import { type PluginOptions, plugins } from "../../../controllers/generator/sources/plugins.ts";
import { type Election, LeaderRunner } from "../../../controllers/run-controller.ts";
import { ApiError, field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { root } from "../../../scripts/root.ts";
import { createHttpsTransport } from "../../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { loadClusterAccess } from "../../../shared/kube/credentials/kubeconfig.ts";
import { systemPorts as ports } from "../../../shared/runtime/system-ports.ts";

export const GROUP = "podseidon.kubewharf.io";

/** Applies the generator's namespace, CRD, roles and Deployment as a user would. */
export async function installGenerator(cluster: Cluster): Promise<void> {
  for (const base of ["namespace", "crds", "generator"]) {
    const { code, stderr } = await cluster.kubectl(["apply", "-k", join(root, "manifests/base", base)]);
    if (code !== 0) throw new Error(stderr);
  }
}

/** Grants the permissions that an administrator grants for a kind of `--scalable`. */
export async function grantScalable(cluster: Cluster, group: string, resource: string): Promise<void> {
  const name = `podseidon-generator-${resource}`;
  await cluster.apply([
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name },
      rules: [{ apiGroups: [group], resources: [resource], verbs: ["list", "watch", "patch"] }],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name },
      subjects: [{ kind: "ServiceAccount", name: "podseidon-generator", namespace: "podseidon-system" }],
    },
  ]);
}

/** A transport with the generator's ServiceAccount. */
export async function generatorTransport(cluster: Cluster): Promise<Transport> {
  const serviceAccount = { namespace: "podseidon-system", name: "podseidon-generator" };
  const access = await loadClusterAccess(await cluster.kubeconfigFor({ serviceAccount }));
  return createHttpsTransport(access, { ports, userAgent: "test" });
}

export interface RunningGenerator {
  readonly generator: Generator;
  readonly events: GeneratorEvent[];
  /** Stops the generator and releases its Lease. */
  stop(): Promise<void>;
}

export interface GeneratorHarnessOptions {
  readonly plugins?: Partial<PluginOptions>;
  /** Without an election the generator leads from the start. */
  readonly election?: Election;
  readonly concurrency?: number;
}

export function startGenerator(transport: Transport, options: GeneratorHarnessOptions = {}): RunningGenerator {
  const events: GeneratorEvent[] = [];
  const observer = { generator: (event: GeneratorEvent) => events.push(event), watch: () => {}, queue: () => {} };
  const all = plugins({ protectSelector: `${GROUP}/protect=true`, protectNonZero: true, ...options.plugins });
  const { election, concurrency = 16 } = options;
  const mayWrite = (): boolean => leader.isLeader;
  const generator = new Generator({ transport, ports, plugins: all, concurrency, mayWrite, observer });
  const leader = new LeaderRunner(election, (signal) => generator.lead(signal));
  leader.start();
  return { generator, events, stop: () => leader.stop() };
}

/** Applies a CRD of `test/support/generator/crds` and waits until it is served. */
export async function installCrd(cluster: Cluster, name: string): Promise<void> {
  await cluster.apply(readFileSync(join(root, "test/support/generator/crds", `${name}.yaml`), "utf8"));
  await cluster.waitFor(`${name} to be served`, async () => {
    const found = await cluster.admin.get(`/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`);
    const group = field(found, "spec", "group");
    const version = field(found, "spec", "versions", 0, "name");
    const resource = field(found, "spec", "names", "plural");
    return (await cluster.admin.request("GET", `/apis/${group}/${version}/${resource}`)).status === 200;
  });
}

/** The object at `path`; undefined when it does not exist. */
export async function readObject(cluster: Cluster, path: string): Promise<unknown> {
  const answer = await cluster.admin.request("GET", path);
  if (answer.status === 404) return undefined;
  if (answer.status >= 400) throw new ApiError("GET", path, answer);
  return answer.body;
}

export function protectorPath(namespace: string, name?: string): string {
  const path = `/apis/${GROUP}/v1alpha1/namespaces/${namespace}/podprotectors`;
  return name === undefined ? path : `${path}/${name}`;
}

/** Resolves to the object at `path` once `check` accepts it; rejects with its last state. */
export async function eventually(
  cluster: Cluster,
  path: string,
  check: (object: unknown) => boolean,
  timeoutMs?: number,
): Promise<unknown> {
  let last: unknown;
  const isThere = async (): Promise<boolean> => {
    last = await readObject(cluster, path);
    return check(last);
  };
  await cluster.waitFor(path, isThere, timeoutMs).catch((cause: unknown) => {
    throw new Error(`${path} stayed at ${JSON.stringify(last)}`, { cause });
  });
  return last;
}
