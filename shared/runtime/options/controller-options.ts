/**
 * Options that only controllers share. They have their own file because a bundle contains all options of every imported
 * file.
 */
import { boolean, duration, option, optionalOption, text } from "./option-types.ts";

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
  // As in client-go, at least one retry with its jitter must fit before the deadline.
  if (renewDeadline !== undefined && retryPeriod !== undefined && retryPeriod * 1.2 >= renewDeadline) {
    problems.push("--retry-period: 1.2 times of it must be shorter than --renew-deadline");
  }
  return problems;
}

export const kubeconfigOptions = {
  kubeconfig: option(text("FILE"), "", "The cluster's kubeconfig; empty is the cluster that the process runs in."),
};
