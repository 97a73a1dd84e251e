/** The two aggregators of a side-by-side run: this project's bundle and upstream's binary, started the same way. */
import { join } from "node:path";
import type { Cluster } from "../control-plane/cluster.ts";
import { ManagedProcess } from "../control-plane/managed-process.ts";
import { reservePort } from "../control-plane/ports.ts";

export const CELL = "cell";

export interface AggregatorContender {
  readonly name: string;
  /** A fresh process, not started; undefined `metricsUrl` where there are no metrics to read. */
  process(): Promise<{ readonly process: ManagedProcess; readonly metricsUrl: string | undefined }>;
}

function managed(cluster: Cluster, name: string, binary: string, args: readonly string[]): ManagedProcess {
  return new ManagedProcess({
    name,
    logFile: join(cluster.directory, "logs", `${name}.log`),
    workingDirectory: cluster.directory,
    // The defaults of each runtime: the control plane's own setting of Go's collector is not for a benchmark.
    launch: () => ({ binary, args, environment: { GOGC: "100" } }),
    isReady: async () => true,
    startTimeoutMs: 30_000,
    onUnexpectedEnd: (description) => process.stderr.write(`${description}\n`),
  });
}

export function ourSide(cluster: Cluster, bundles: string, extra: readonly string[] = []): AggregatorContender {
  return {
    name: "this project",
    process: async () => {
      const address = `127.0.0.1:${await reservePort("127.0.0.1")}`;
      const args = [
        // As the manifests have it.
        "--max-semi-space-size=8",
        join(bundles, "aggregator.mjs"),
        ...["--cell-id", CELL, "--kubeconfig", cluster.kubeconfig, "--core", `core=${cluster.kubeconfig}`],
        ...["--leader-elect=false", "--health-probe-bind-address", address, "--metrics-bind-address", address],
        ...extra,
      ];
      return {
        process: managed(cluster, "our-aggregator", process.execPath, args),
        metricsUrl: `http://${address}/metrics`,
      };
    },
  };
}

export function theirSide(cluster: Cluster, binary: string): AggregatorContender {
  const args = [
    ...["--core-kube-config", cluster.kubeconfig, "--worker-kube-config", cluster.kubeconfig],
    ...[
      "--core-kube-qps",
      "5000",
      "--core-kube-burst",
      "5000",
      "--worker-kube-qps",
      "5000",
      "--worker-kube-burst",
      "5000",
    ],
    ...["--aggregator-cell-id", CELL, "--aggregator-leader-elector-enable=false"],
    ...["--healthz-enable=false", "--pprof-enable=false", "--prometheus-http-enable=false", "--klog-v", "1"],
  ];
  return {
    name: "upstream",
    process: async () => ({ process: managed(cluster, "upstream-aggregator", binary, args), metricsUrl: undefined }),
  };
}
