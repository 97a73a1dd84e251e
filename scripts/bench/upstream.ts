/** Upstream podseidon's binaries as processes beside this project's, for comparisons in one run. */
import { join } from "node:path";
import type { Cluster } from "../control-plane/cluster.ts";
import { ManagedProcess } from "../control-plane/managed-process.ts";
import { reservePort } from "../control-plane/ports.ts";
import { servingFiles } from "../environment/component.ts";

const START_TIMEOUT_MS = 30_000;
const CORE_RATE = ["--core-kube-qps", "5000", "--core-kube-burst", "5000"];
const QUIET = ["--healthz-enable=false", "--pprof-enable=false", "--prometheus-http-enable=false", "--klog-v", "1"];

export interface UpstreamWebhook {
  readonly process: ManagedProcess;
  readonly url: string;
}

/** Starts upstream's webhook; ready means that its TLS port answers anything. */
export async function startUpstreamWebhook(binary: string, cluster: Cluster, name: string): Promise<UpstreamWebhook> {
  const address = "127.0.0.1";
  const [plain, secure] = [await reservePort(address), await reservePort(address)];
  const files = await servingFiles(cluster, join(cluster.directory, `${name}-tls`), ["localhost"], [address]);
  const args = [
    ...["--core-kube-config", cluster.kubeconfig, ...CORE_RATE],
    ...[
      "--webhook-bind-addr",
      address,
      "--webhook-port",
      String(plain),
      "--webhook-https-enable",
      "--webhook-https-bind-addr",
      address,
    ],
    ...[
      "--webhook-https-port",
      String(secure),
      "--webhook-https-cert-file",
      files.certFile,
      "--webhook-https-key-file",
      files.keyFile,
    ],
    ...["--webhook-path-prefix", "/webhook", ...QUIET],
  ];
  const url = `https://${address}:${secure}`;
  const process = upstreamProcess(binary, args, cluster, name, (signal) =>
    fetchAny(`http://${address}:${plain}/`, signal),
  );
  await process.start();
  return { process, url };
}

/** Starts upstream's aggregator of one cell; it tells nothing of its readiness, so running is all there is. */
export async function startUpstreamAggregator(
  binary: string,
  cluster: Cluster,
  name: string,
  extra: readonly string[],
): Promise<ManagedProcess> {
  const args = [
    ...["--core-kube-config", cluster.kubeconfig, "--worker-kube-config", cluster.kubeconfig, ...CORE_RATE],
    ...["--worker-kube-qps", "5000", "--worker-kube-burst", "5000", "--aggregator-cell-id", "cell"],
    ...["--aggregator-leader-elector-enable=false", ...QUIET, ...extra],
  ];
  const process = upstreamProcess(binary, args, cluster, name, () => Promise.resolve(true));
  await process.start();
  return process;
}

function upstreamProcess(
  binary: string,
  args: readonly string[],
  cluster: Cluster,
  name: string,
  isReady: (signal: AbortSignal) => Promise<boolean>,
): ManagedProcess {
  return new ManagedProcess({
    name,
    logFile: join(cluster.directory, "logs", `${name}.log`),
    workingDirectory: cluster.directory,
    launch: () => ({ binary, args }),
    isReady,
    startTimeoutMs: START_TIMEOUT_MS,
    onUnexpectedEnd: (description) => process.stderr.write(`${description}\n`),
  });
}

async function fetchAny(url: string, signal: AbortSignal): Promise<boolean> {
  await fetch(url, { signal });
  return true;
}
