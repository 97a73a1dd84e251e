/** OpenKruise's controller manager, as a process beside a cluster, with its CRDs and its webhooks by URL. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import { reservePort } from "../../../scripts/control-plane/ports.ts";
import type { Kruise } from "../cluster/test-tools.ts";

const START_TIMEOUT_MS = 5 * 60_000;
const ADDRESS = "127.0.0.1";
const CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/** Budgets are the project's own (docs/migration-from-podunavailablebudget.md). */
const WITHOUT_BUDGETS = ["PodUnavailableBudgetDeleteGate=false", "PodUnavailableBudgetUpdateGate=false"];

/** Resolves when the manager and its webhooks are ready. */
export async function startKruiseManager(
  cluster: Cluster,
  { manager, definitions, webhooks }: Kruise,
  gates: readonly string[] = WITHOUT_BUDGETS,
): Promise<ManagedProcess> {
  await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: "kruise-system" } }]);
  await cluster.apply(definitions.join("\n---\n"));
  await cluster.waitFor("OpenKruise's CRDs to be established", async () => {
    const all = items(await cluster.admin.get(CRDS)).filter((one) =>
      String(field(one, "spec", "group")).includes("kruise"),
    );
    return all.length === definitions.length && all.every((one) => field(one, "status", "acceptedNames", "kind"));
  });
  // The manager finds the configurations by the names of its chart, and writes its own address into them.
  await cluster.apply(
    loadAll(webhooks).map((one) => {
      const name = `kruise-${String(field(one, "metadata", "name"))}`;
      return { ...Object(one), metadata: { name } };
    }),
  );
  const directory = join(cluster.directory, "kruise");
  mkdirSync(directory);
  const [webhookPort, healthPort] = [await reservePort(ADDRESS), await reservePort(ADDRESS)];
  const process = new ManagedProcess({
    name: "kruise-manager",
    logFile: join(cluster.directory, "logs", "kruise-manager.log"),
    workingDirectory: directory,
    launch: () => ({
      binary: manager,
      args: [
        ...[`--kubeconfig=${cluster.kubeconfig}`, "--enable-leader-election=false", "--enable-pprof=false"],
        ...["--metrics-addr=0", `--health-probe-addr=${ADDRESS}:${healthPort}`],
        ...[
          `--protection-log-path=${directory}`, // No kubelet of a test runs OpenKruise's daemon.
          `--feature-gates=${["KruiseDaemon=false", ...gates].join(",")}`,
        ],
      ],
      environment: {
        WEBHOOK_HOST: "localhost",
        WEBHOOK_PORT: String(webhookPort),
        WEBHOOK_CERT_DIR: join(directory, "certificates"),
      },
    }),
    isReady: async (signal) => (await fetch(`http://${ADDRESS}:${healthPort}/readyz`, { signal })).ok,
    startTimeoutMs: START_TIMEOUT_MS,
    onUnexpectedEnd: (description) => globalThis.process.stderr.write(`${description}\n`),
  });
  await process.start();
  return process;
}
