import { SYNC_TIME_ALGORITHMS } from "../../shared/decide/settling/settle-history.ts";
import { coreOptions, observeOptions } from "../../shared/runtime/options/common-options.ts";
import {
  checkLeaderElection,
  kubeconfigOptions,
  leaderElectionOptions,
} from "../../shared/runtime/options/controller-options.ts";
import {
  boolean,
  choice,
  duration,
  integer,
  list,
  matching,
  option,
  optionalOption,
  requiredOption,
  text,
} from "../../shared/runtime/options/option-types.ts";
import { defineOptions, type OptionValues } from "../../shared/runtime/options/options.ts";
import { version } from "../../shared/runtime/version.ts";
import { MAX_SHARDS } from "../../shared/schema/resource-version.ts";

const CELL_ID = /^(?!\.{1,2}$)[A-Za-z0-9._~-]{1,253}$/;

const SCALABLE = /^[a-z0-9][a-z0-9.-]*(\/[a-z0-9][a-z0-9.-]*){2}$/;

function isPowerOfTwo(count: number): boolean {
  return Number.isInteger(Math.log2(count));
}

/** The value of `--ca-cluster` for the cell's own cluster. */
export const OWN_CLUSTER = "cell";

function isKnownCluster(name: string, cores: readonly { readonly name: string }[]): boolean {
  return name === "" || name === OWN_CLUSTER || cores.some((core) => core.name === name);
}

/**
 * A pod that leaves the selector would be settled as dead (R1 of docs/design.md#settling) while its eviction can still
 * be committed.
 */
const NO_POD_SELECTOR =
  "--pod-selector: a cell cannot be a label selector, because a pod whose labels change would count as deleted while " +
  "it can still be evicted; make each namespace a cell of its own instead (--namespace, with its own --cell-id)";

export const aggregatorOptions = defineOptions({
  name: "podseidon-aggregator",
  version,
  summary: "Counts the pods of one cell and accounts for the deletions that were admitted.",
  options: {
    cellId: requiredOption(
      matching(CELL_ID, "a name that is a valid path segment", "ID"),
      "",
      "Id of the cell, as in the path of the webhook's URL.",
    ),
    ...kubeconfigOptions,
    ...coreOptions,
    namespace: option(text("NAMESPACE"), "", "Count the pods of this namespace only; empty is all of them."),
    podSelector: option(
      text("SELECTOR"),
      "",
      "Refused, because a pod whose labels change leaves a filtered watch alive: a cell is a cluster or a --namespace.",
    ),
    updateTriggerNamespace: option(
      text("NAMESPACE"),
      "",
      "Where the update trigger's pod is. Empty is --namespace, or the namespace of the kubeconfig or of the process.",
    ),
    podShards: option(
      integer(1, MAX_SHARDS),
      1,
      "Watch the pods in so many streams, a power of two, where the apiserver offers shardSelector; 1 is one stream.",
    ),
    protectorSelector: option(
      text("SELECTOR"),
      "",
      "Count for protectors with such labels alone; empty is all. The others stay as they are: " +
        "see docs/migration-from-upstream.md#a-selector-of-protectors.",
    ),
    settlePeriod: option(
      duration({ minMs: 100 }),
      75_000,
      "How long after its admission a deletion may still be committed; the same as the webhook's.",
    ),
    syncTimeAlgorithm: option(
      choice(SYNC_TIME_ALGORITHMS),
      "exact",
      "How admissions are settled: pod by pod, or by upstream's comparison of clocks.",
    ),
    voidAfter: option(
      duration(),
      0,
      "Annotate a pod whose deletion was admitted for so long without " +
        "happening, which frees its reservation; 0 is never.",
    ),
    scalable: option(
      list("GROUP/VERSION/RESOURCE"),
      [],
      "A custom resource with spec.replicas and spec.template that counts where budgets ask how many pods there " +
        "should be, beside Kubernetes' own workloads.",
    ),
    protectorMetrics: option(
      boolean(),
      false,
      "Serve podseidon_protector_pods, five series for each protector, " +
        "by which an alert reaches the team that owns it.",
    ),
    metricLabels: option(
      list("LABEL"),
      [],
      "A label of protectors that podseidon_protector_labels shows, as kube-state-metrics does.",
    ),
    markNamespaces: option(
      boolean(),
      false,
      "Label the cell's namespaces that have protectors podseidon.kubewharf.io/enforced-namespace=true, " +
        "and count a protector for the first time 10 s after that.",
    ),
    heartbeatInterval: option(
      duration({ minMs: 1000 }),
      120_000,
      "The longest time between two writes to one protector, with jitter.",
    ),
    aggregationRate: optionalOption(
      duration({ maxMs: 3_600_000 }),
      "How long counts wait after a pod's change and after a write, for a protector that does not set " +
        "aggregationRateMillis. Default: 0, and 5 s with the algorithms clock and status.",
    ),
    coalescePeriod: option(
      duration({ maxMs: 60_000 }),
      5,
      "How long a pod's change waits for others that go into the same write.",
    ),
    countedGateBound: option(
      duration({ minMs: 100 }),
      30_000,
      "The longest that a pod with the readiness gate podseidon.kubewharf.io/counted " +
        "waits for its count to be stored; then it becomes Ready without.",
    ),
    coreWriteConcurrency: option(integer(1, 256), 16, "Writes under way at once in each core cluster."),
    coreTimeout: option(
      duration({ minMs: 100, maxMs: 60_000 }),
      5_000,
      "How long one call to a core cluster may take.",
    ),
    outlive: option(
      boolean(),
      true,
      "Keep lost protectors in force: back protectors up in the " +
        "cell, and create those again that vanished without a release.",
    ),
    systemNamespace: option(
      text("NAMESPACE"),
      "podseidon-system",
      "Where the backups of protectors are in the cell, the release " +
        "register in a core, and what --ca-cluster publishes.",
    ),
    restoreAfter: option(
      duration(),
      30_000,
      "How long the generator may try to create a vanished protector again before this cell does.",
    ),
    keepRegistration: option(
      boolean(),
      true,
      "Restore the cell's webhook configurations when they are missing, or altered otherwise than by kubectl apply.",
    ),
    registrationFile: option(
      text("FILE"),
      "",
      "YAML of the desired webhook configurations, CELL in paths for the cell's id, read at the start; " +
        "empty is what was last applied.",
    ),
    copyInterval: option(duration({ minMs: 100 }), 5_000, "The least time between two writes of the backups."),
    caCluster: option(
      text("NAME"),
      "",
      "Where the webhook's certificates are made: the name of a --core, or `cell` for " +
        "the cell's own cluster. caBundle of the cell's webhook configuration is kept as it " +
        "is published there, in --system-namespace; empty leaves it alone.",
    ),
    caInterval: option(
      duration({ minMs: 50, maxMs: 3_600_000 }),
      15_000,
      "Pause between two reads of the published CAs.",
    ),
    secretPath: option(
      boolean(),
      false,
      "Keep a secret segment, which follows the published CAs, at the beginning of the webhook's path in the " +
        "cell's webhook configuration. See --secret-path-file of the webhook.",
    ),
    registration: option(
      text("NAME"),
      "podseidon",
      "Name of the cell's ValidatingWebhookConfiguration and MutatingWebhookConfiguration.",
    ),
    ...leaderElectionOptions,
    ...observeOptions,
  },
  check: (values) => [
    ...(values.podSelector === undefined || values.podSelector === "" ? [] : [NO_POD_SELECTOR]),
    ...(isPowerOfTwo(values.podShards ?? 1) ? [] : ["--pod-shards: must be a power of two"]),
    ...checkLeaderElection(values),
    ...(isKnownCluster(values.caCluster ?? "", values.core ?? [])
      ? []
      : ["--ca-cluster: must be `cell` or the name of a --core"]),
    ...(values.scalable ?? [])
      .filter((one) => !SCALABLE.test(one))
      .map((one) => `--scalable: must be group/version/resource such as apps.kruise.io/v1alpha1/clonesets, not ${one}`),
    ...((values.voidAfter ?? 0) > 0 && (values.voidAfter ?? 0) < 1000 ? ["--void-after: at least 1s, or 0"] : []),
  ],
});

export type AggregatorFlags = OptionValues<(typeof aggregatorOptions)["options"]>;
