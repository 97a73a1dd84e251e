/** Controllers of neighbours as processes beside a cluster, with their CRDs. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import { conditionStatus, field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { type Launch, ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import { reservePort } from "../../../scripts/control-plane/ports.ts";
import { ensureNeighbour } from "./binaries.ts";
import { SOURCE_DEFINITIONS } from "./flux.ts";

const START_TIMEOUT_MS = 5 * 60_000;
const ADDRESS = "127.0.0.1";
const CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

interface Ports {
  readonly health: number;
  readonly metrics: number;
}

/** Its health check answers when it works. */
export async function startArgoRollouts(cluster: Cluster): Promise<ManagedProcess> {
  const { binary, definitions } = await ensureNeighbour("argo-rollouts");
  await establish(cluster, definitions);
  // Where its settings for notifications would be.
  await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: "argo-rollouts" } }]);
  return await start(cluster, "argo-rollouts", "healthz", ({ health, metrics }) => ({
    binary,
    args: [
      ...[`--kubeconfig=${cluster.kubeconfig}`, "--leader-elect=false"],
      ...[`--healthzPort=${health}`, `--metricsPort=${metrics}`],
    ],
  }));
}

/** With the provider that makes Nodes for KWOK to manage. */
export async function startKarpenter(cluster: Cluster): Promise<ManagedProcess> {
  const { binary, definitions } = await ensureNeighbour("karpenter");
  await establish(cluster, definitions);
  return await start(cluster, "karpenter", "readyz", ({ health, metrics }) => ({
    binary,
    args: [
      ...["--disable-leader-election=true", "--log-level=debug", "--batch-idle-duration=100ms"],
      ...[`--health-probe-port=${health}`, `--metrics-port=${metrics}`],
    ],
    environment: { KUBECONFIG: cluster.kubeconfig, SYSTEM_NAMESPACE: "kube-system" },
  }));
}

/** Flux's kustomize-controller, which applies and prunes. */
export async function startKustomizeController(cluster: Cluster): Promise<ManagedProcess> {
  const { binary, definitions } = await ensureNeighbour("kustomize-controller");
  await establish(cluster, [...definitions, ...SOURCE_DEFINITIONS]);
  return await start(cluster, "kustomize-controller", "readyz", ({ health, metrics }) => ({
    binary,
    args: [`--health-addr=${ADDRESS}:${health}`, `--metrics-addr=${ADDRESS}:${metrics}`],
    environment: { KUBECONFIG: cluster.kubeconfig, RUNTIME_NAMESPACE: "default", TMPDIR: cluster.directory },
  }));
}

/** The updater, without the admission controller that gives new pods what is recommended. */
export async function startVerticalPodAutoscaler(cluster: Cluster): Promise<ManagedProcess> {
  const { binary, definitions } = await ensureNeighbour("vertical-pod-autoscaler");
  await establish(cluster, definitions);
  return await start(cluster, "vertical-pod-autoscaler", "health-check", ({ health }) => ({
    binary,
    args: [
      ...[`--kubeconfig=${cluster.kubeconfig}`, `--address=${ADDRESS}:${health}`, "--v=2"],
      ...["--use-admission-controller-status=false", "--updater-interval=5s"],
    ],
  }));
}

async function establish(cluster: Cluster, definitions: readonly string[]): Promise<void> {
  // Some are larger than the annotation of a client-side apply may be.
  const { code, stderr } = await cluster.kubectl(["apply", "--server-side", "--filename", "-"], {
    input: definitions.join("\n---\n"),
  });
  if (code !== 0) throw new Error(stderr);
  const names = loadAll(definitions.join("\n---\n")).flatMap((one) => field(one, "metadata", "name") ?? []);
  for (const name of names) {
    await cluster.waitFor(`${String(name)} to be established`, async () => {
      return conditionStatus(await cluster.admin.get(`${CRDS}/${String(name)}`), "Established") === "True";
    });
  }
}

async function start(
  cluster: Cluster,
  name: string,
  healthPath: string,
  launch: (ports: Ports) => Launch,
): Promise<ManagedProcess> {
  const workingDirectory = join(cluster.directory, name);
  mkdirSync(workingDirectory);
  const ports = { health: await reservePort(ADDRESS), metrics: await reservePort(ADDRESS) };
  const process = new ManagedProcess({
    name,
    logFile: join(cluster.directory, "logs", `${name}.log`),
    workingDirectory,
    launch: () => launch(ports),
    isReady: async (signal) => (await fetch(`http://${ADDRESS}:${ports.health}/${healthPath}`, { signal })).ok,
    startTimeoutMs: START_TIMEOUT_MS,
    onUnexpectedEnd: (description) => globalThis.process.stderr.write(`${description}\n`),
  });
  await process.start();
  return process;
}
