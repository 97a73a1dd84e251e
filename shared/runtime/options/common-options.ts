/** Options that several components share; spread them into `defineOptions({ options: { ...observeOptions } })`. */
import {
  bindAddress,
  boolean,
  choice,
  duration,
  namedPaths,
  option,
  optionalOption,
  requiredOption,
  text,
} from "./option-types.ts";

const LOG_LEVELS = ["trace", "debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const EVERYWHERE = { host: undefined };

export const observeOptions = {
  healthProbeBindAddress: option(
    bindAddress(),
    { ...EVERYWHERE, port: 8081 },
    "Where /healthz and /readyz are served, in plain HTTP; 0 for nowhere.",
  ),
  metricsBindAddress: option(
    bindAddress(),
    { ...EVERYWHERE, port: 8080 },
    "Where /metrics is served, in plain HTTP; 0 for nowhere.",
  ),
  metricsAuth: option(
    text("KUBECONFIG"),
    "",
    "Serve /metrics by HTTPS to those whom this cluster, or in-cluster, lets get it.",
  ),
  logLevel: option(choice(LOG_LEVELS), "info", "The least severe log lines that are written."),
};

export const leaderElectionOptions = {
  leaderElect: option(boolean(), true, "Work only while holding a lease, so that of several replicas one works."),
  leaderElectNamespace: optionalOption(
    text("NAMESPACE"),
    "Namespace of the lease. Unset, it is the namespace that the process itself runs in.",
  ),
  leaseDuration: option(
    duration({ minMs: 100 }),
    15_000,
    "How long a replica that stands by waits after the last renewal before it takes the lease.",
  ),
  renewDeadline: option(
    duration({ minMs: 50 }),
    10_000,
    "How long the leader tries to renew before it stops working. Shorter than --lease-duration.",
  ),
  retryPeriod: option(
    duration({ minMs: 10 }),
    2000,
    "Pause between two attempts at the lease. Shorter than --renew-deadline.",
  ),
};

/** Checks lease times against each other; for a definition's `check`. */
export function checkLeaderElection(values: {
  readonly leaseDuration?: number;
  readonly renewDeadline?: number;
  readonly retryPeriod?: number;
}): readonly string[] {
  const { leaseDuration, renewDeadline, retryPeriod } = values;
  const problems: string[] = [];
  if (leaseDuration !== undefined && renewDeadline !== undefined && renewDeadline >= leaseDuration) {
    problems.push("--renew-deadline: must be shorter than --lease-duration");
  }
  // At least one retry fits before the deadline, with its jitter, as in client-go.
  if (renewDeadline !== undefined && retryPeriod !== undefined && retryPeriod * 1.2 >= renewDeadline) {
    problems.push("--retry-period: 1.2 times of it must be shorter than --renew-deadline");
  }
  return problems;
}

/** `--core`: the clusters that host the PodProtectors. Each `path` is a kubeconfig file; empty is in-cluster. */
export const coreOptions = {
  core: requiredOption(
    namedPaths("NAME=KUBECONFIG"),
    [],
    "A core cluster, which hosts PodProtectors, and its kubeconfig; " +
      "an empty path is the cluster of the process itself.",
  ),
};

export const kubeconfigOptions = {
  kubeconfig: option(text("FILE"), "", "The cluster's kubeconfig; empty is the cluster that the process runs in."),
};
