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
/** On a workload of any kind: how many of its pods stay in phase Running, whatever is Ready, as a second floor. */
export const MIN_RUNNING_ANNOTATION = `${GROUP}/min-running`;
export const SOURCE_NAME_LABEL = `${GROUP}/source-name`;
export const SOURCE_GROUP_LABEL = `${GROUP}/source-group`;
export const SOURCE_KIND_LABEL = `${GROUP}/source-kind`;
export const SOURCE_RESOURCE_LABEL = `${GROUP}/source-resource`;

export const FORCE_DELETE_ANNOTATION = `${GROUP}/force-delete`;
/** On a suspended XPodDisruptionBudget: the cells in which it is suspended, comma-separated; all without it. */
export const SUSPEND_CELLS_ANNOTATION = `${GROUP}/suspend-cells`;
/** On a budget: how many pods there should be, or who counts them: `core` or `cells`. */
export const EXPECTED_PODS_ANNOTATION = `${GROUP}/expected-pods`;
/** OpenKruise's, on a pod: "true" exempts it from PodUnavailableBudgets. */
export const NO_PROTECT_ANNOTATION = "pub.kruise.io/no-protect";
export const HEALTH_CRITERION_ANNOTATION = `${GROUP}/health-criterion`;
/** On a protector: who suspended or resumed it last, and when, as the kubectl plugin says. */
export const SUSPENSION_CHANGED_BY_ANNOTATION = `${GROUP}/suspension-changed-by`;
export const REMOVE_CELL_ONCE_ANNOTATION = `${GROUP}/remove-cell-once`;
/** On a pod: an aggregator writes it to raise the pod's resourceVersion, which voids a reservation (`--void-after`). */
export const VOIDED_ANNOTATION = `${GROUP}/reservation-voided`;
/** The counted readiness gate and condition. */
export const COUNTED_CONDITION = `${GROUP}/counted`;
/** Opt-in to the counted gate: an annotation of a protector, or a label of a namespace; `enabled` or `disabled`. */
export const COUNTED_GATE = `${GROUP}/counted-gate`;
/** On a protector: how its numbers were derived, for people. */
export const DERIVATION_ANNOTATION = `${GROUP}/derivation`;
/** On a protector: the release, written before the finalizer is removed. */
export const RELEASED_ANNOTATION = `${GROUP}/released`;
/** On a protector: it was restored from a backup, so that its first counts are not trusted alone. */
export const RESTORED_ANNOTATION = `${GROUP}/restored`;

export const UPDATE_TRIGGER_POD = "podseidon-update-trigger";
export const UPDATE_TRIGGER_ANNOTATION = `${GROUP}/update-trigger-time`;
/** On the dummy pod: how often it was patched. A lower number than before shows that the cell's etcd was restored. */
export const UPDATE_TRIGGER_COUNTER_ANNOTATION = `${GROUP}/update-trigger-counter`;
/**
 * On the dummy pod: the counter at which each process began, so that a restore shows after the counter has caught up.
 */
export const UPDATE_TRIGGER_LINEAGE_ANNOTATION = `${GROUP}/update-trigger-lineage`;
export const UPDATE_TRIGGER_SCHEDULER = "do-not-schedule";

export const MIRROR_POD_ANNOTATION = "kubernetes.io/config.mirror";
export const PRE_ACTIVITY_PREFIX = "pre-activity.xpdb.form3.tech/";
/** On a pod whose disruption a pre-activity holds back: a client asked for it (x-pdb's name). */
export const PENDING_DISRUPTION_ANNOTATION = "xpdb.form3.tech/has-pending-disruption";

/** Of a workload or budget: `spec.enforcement` of its protector, before that of its namespace. */
export const ENFORCEMENT_ANNOTATION = `${GROUP}/enforcement`;
/** Of a namespace of a core: what its workloads and budgets have that state none, before the generator's default. */
export const ENFORCEMENT_LABEL = `${GROUP}/enforcement`;

/** On a namespace of a cell: it has protectors. A webhook configuration may ask about such namespaces alone. */
export const ENFORCED_NAMESPACE_LABEL = `${GROUP}/enforced-namespace`;

/** Labels of the project's own pods (manifests), whose disruption is allowed without asking a core. */
export const PART_OF_LABEL = "app.kubernetes.io/part-of";
export const PART_OF_PODSEIDON = "podseidon";

export const AGGREGATOR_LEASE = "podseidon-aggregator";
export const GENERATOR_LEASE = "podseidon-generator";

/** On the Secret of the webhook's certificate authority: asks for a new authority; removed once there is one. */
export const ROTATE_CA_ANNOTATION = `${GROUP}/rotate-ca-once`;

/** On an XPodDisruptionBudget of the core that stands for those of worker clusters: true. */
export const CLUSTER_BUDGETS_LABEL = `${GROUP}/cluster-budgets`;
/** On such a budget: its name in the clusters, and what each of them asks for. The strictest counts. */
export const CLUSTER_BUDGETS_ANNOTATION = `${GROUP}/cluster-budgets`;
