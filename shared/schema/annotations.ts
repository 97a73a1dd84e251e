/** Every label, annotation, finalizer and fixed name that the project reads or writes. */

export const GROUP = "podseidon.kubewharf.io";
export const VERSION = "v1alpha1";
export const KIND = "PodProtector";
export const PLURAL = "podprotectors";

export const GENERATOR_FINALIZER = `${GROUP}/generator`;
export const PROTECT_LABEL = `${GROUP}/protect`;
/** On a source: "true" asks for protection, "false" declines it. Overrides the label. */
export const PROTECT_ANNOTATION = `${GROUP}/protect`;
/** The annotation's value that the generator writes on a source that came back without the label. */
export const ADOPTED = "adopted";
/** On a workload of any kind: how many of its pods stay available or may be unavailable, a count or a percentage. */
export const MIN_AVAILABLE_ANNOTATION = `${GROUP}/min-available`;
export const MAX_UNAVAILABLE_ANNOTATION = `${GROUP}/max-unavailable`;
/** On a workload of any kind: how many of its pods stay in phase Running, Ready or not, as a second minimum. */
export const MIN_RUNNING_ANNOTATION = `${GROUP}/min-running`;
export const SOURCE_NAME_LABEL = `${GROUP}/source-name`;
export const SOURCE_GROUP_LABEL = `${GROUP}/source-group`;
export const SOURCE_KIND_LABEL = `${GROUP}/source-kind`;
export const SOURCE_RESOURCE_LABEL = `${GROUP}/source-resource`;

export const FORCE_DELETE_ANNOTATION = `${GROUP}/force-delete`;
/** On a suspended XPodDisruptionBudget: the cells in which it is suspended, comma-separated; absent for all cells. */
export const SUSPEND_CELLS_ANNOTATION = `${GROUP}/suspend-cells`;
/** On a budget: how many pods there should be, or whose workloads count: `core` or `cells`. */
export const EXPECTED_PODS_ANNOTATION = `${GROUP}/expected-pods`;
/** OpenKruise's annotation on a pod: "true" exempts it from PodUnavailableBudgets. */
export const NO_PROTECT_ANNOTATION = "pub.kruise.io/no-protect";
export const HEALTH_CRITERION_ANNOTATION = `${GROUP}/health-criterion`;
/** On a protector: who last suspended or resumed it, and when; written by the kubectl plugin. */
export const SUSPENSION_CHANGED_BY_ANNOTATION = `${GROUP}/suspension-changed-by`;
export const REMOVE_CELL_ONCE_ANNOTATION = `${GROUP}/remove-cell-once`;
/** On a pod: an aggregator writes it to raise the pod's resourceVersion, which voids a reservation (`--void-after`). */
export const VOIDED_ANNOTATION = `${GROUP}/reservation-voided`;
/** The counted readiness gate and condition. */
export const COUNTED_CONDITION = `${GROUP}/counted`;
/** Opt-in to the counted gate: an annotation of a protector, or a label of a namespace; `enabled` or `disabled`. */
export const COUNTED_GATE = `${GROUP}/counted-gate`;
/** On a webhook configuration: the generation of the webhooks that every kube-apiserver was made to read once more. */
export const REFRESHED_GENERATION_ANNOTATION = `${GROUP}/refreshed-generation`;
/** On a protector: how its numbers were derived, for people. */
export const DERIVATION_ANNOTATION = `${GROUP}/derivation`;
/** On a protector: the release, written before the finalizer is removed. */
export const RELEASED_ANNOTATION = `${GROUP}/released`;
/** On a protector: it was restored from a backup, so that each cell starts on hold. */
export const RESTORED_ANNOTATION = `${GROUP}/restored`;

export const UPDATE_TRIGGER_POD = "podseidon-update-trigger";
export const UPDATE_TRIGGER_ANNOTATION = `${GROUP}/update-trigger-time`;
/** On the dummy pod: how often it was patched. A smaller number shows that the cell's etcd was restored. */
export const UPDATE_TRIGGER_COUNTER_ANNOTATION = `${GROUP}/update-trigger-counter`;
/**
 * On the dummy pod: the counter at which each process began, so that a restore shows after the counter has caught up.
 */
export const UPDATE_TRIGGER_LINEAGE_ANNOTATION = `${GROUP}/update-trigger-lineage`;
export const UPDATE_TRIGGER_SCHEDULER = "do-not-schedule";

export const MIRROR_POD_ANNOTATION = "kubernetes.io/config.mirror";
export const PRE_ACTIVITY_PREFIX = "pre-activity.xpdb.form3.tech/";
/** On a pod whose disruption a pre-activity delays: a client asked for the disruption (x-pdb's name). */
export const PENDING_DISRUPTION_ANNOTATION = "xpdb.form3.tech/has-pending-disruption";

/** On a workload or budget: `spec.enforcement` of its protector; has precedence over the namespace's label. */
export const ENFORCEMENT_ANNOTATION = `${GROUP}/enforcement`;
/**
 * On a namespace of a core: the enforcement of workloads and budgets that state none; has precedence over the
 * generator's default.
 */
export const ENFORCEMENT_LABEL = `${GROUP}/enforcement`;

/** On a namespace of a cell: it has protectors. A webhook configuration may select only such namespaces. */
export const ENFORCED_NAMESPACE_LABEL = `${GROUP}/enforced-namespace`;

/** Labels of the project's own pods (manifests), whose disruption is allowed without asking a core. */
export const PART_OF_LABEL = "app.kubernetes.io/part-of";
export const PART_OF_PODSEIDON = "podseidon";

export const AGGREGATOR_LEASE = "podseidon-aggregator";
export const GENERATOR_LEASE = "podseidon-generator";

/** On the Secret of the webhook's certificate authority: requests a new authority; removed once there is one. */
export const ROTATE_CA_ANNOTATION = `${GROUP}/rotate-ca-once`;

/** On an XPodDisruptionBudget of the core that represents those of worker clusters: true. */
export const CLUSTER_BUDGETS_LABEL = `${GROUP}/cluster-budgets`;
/** On such a budget: its name in the clusters, and the limits of each cluster. The strictest counts. */
export const CLUSTER_BUDGETS_ANNOTATION = `${GROUP}/cluster-budgets`;
