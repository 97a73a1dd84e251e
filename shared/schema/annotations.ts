/**
 * Every label, annotation, finalizer and fixed name that the project reads or writes. The comments of those for users
 * are the rows of docs/api.md: the object that has it, and after a colon what it means.
 */

export const GROUP = "podseidon.kubewharf.io";
export const VERSION = "v1alpha1";
export const KIND = "PodProtector";
export const PLURAL = "podprotectors";

/** protector and workload, finalizer: holds both until the protector is released */
export const GENERATOR_FINALIZER = `${GROUP}/generator`;
/** workload, label: `true`: the generator keeps a protector for it; `false`: it keeps none */
export const PROTECT_LABEL = `${GROUP}/protect`;
/**
 * workload or budget: `true` asks for protection, `false` does not; it overrides the label. `adopted`: written by the
 * generator
 */
export const PROTECT_ANNOTATION = `${GROUP}/protect`;
/** The annotation's value that the generator writes on a source that came back without the label. */
export const ADOPTED = "adopted";
/** workload: how many of its pods stay available, a count or a percentage, instead of what its strategy says */
export const MIN_AVAILABLE_ANNOTATION = `${GROUP}/min-available`;
/** workload: how many of its pods may be unavailable, a count or a percentage, instead of what its strategy says */
export const MAX_UNAVAILABLE_ANNOTATION = `${GROUP}/max-unavailable`;
/**
 * workload: how many of its pods stay in phase Running, Ready or not: a count, or a percentage of the replicas; a
 * second protector, with `healthCriterion: Running`
 */
export const MIN_RUNNING_ANNOTATION = `${GROUP}/min-running`;
/** protector, label: the workload's name */
export const SOURCE_NAME_LABEL = `${GROUP}/source-name`;
/** protector, label: the workload's API group */
export const SOURCE_GROUP_LABEL = `${GROUP}/source-group`;
/** protector, label: the workload's kind */
export const SOURCE_KIND_LABEL = `${GROUP}/source-kind`;
/** protector, label: the workload's resource */
export const SOURCE_RESOURCE_LABEL = `${GROUP}/source-resource`;

/** pod: any value: its deletion is allowed whatever the count; it uses quota and is audited */
export const FORCE_DELETE_ANNOTATION = `${GROUP}/force-delete`;
/** XPodDisruptionBudget: the cells in which its `spec.suspend` holds, comma-separated; all without it */
export const SUSPEND_CELLS_ANNOTATION = `${GROUP}/suspend-cells`;
/**
 * budget: how many pods there should be: a number, or who counts them: `core`, the workloads of the core cluster, or
 * `cells`, those of all cells
 */
export const EXPECTED_PODS_ANNOTATION = `${GROUP}/expected-pods`;
/** pod: OpenKruise's: `true` exempts it from protectors of PodUnavailableBudgets */
export const NO_PROTECT_ANNOTATION = "pub.kruise.io/no-protect";
/**
 * pod or eviction: `Available`, `Ready`, `Running` or `Scheduled`: which count is compared with `minAvailable` for this
 * request, where `spec.allowedHealthCriteria` or a permission allows it
 */
export const HEALTH_CRITERION_ANNOTATION = `${GROUP}/health-criterion`;
/** protector: who suspended or resumed it last, and when, as `kubectl podseidon` says */
export const SUSPENSION_CHANGED_BY_ANNOTATION = `${GROUP}/suspension-changed-by`;
/**
 * protector: comma-separated cells that the generator takes out of the status, once (`kubectl podseidon remove-cell`)
 */
export const REMOVE_CELL_ONCE_ANNOTATION = `${GROUP}/remove-cell-once`;
/** pod: written by an aggregator to void a reservation that was not used (`--void-after`), by the pod's new version */
export const VOIDED_ANNOTATION = `${GROUP}/reservation-voided`;
/** pod, readiness gate and condition: the pod is counted (KEP-580) */
export const COUNTED_CONDITION = `${GROUP}/counted`;
/** protector (annotation), namespace (label): `enabled` or `disabled`: whether new pods get the counted gate */
export const COUNTED_GATE = `${GROUP}/counted-gate`;
/**
 * webhook configuration: written by an aggregator after the webhooks changed, so that each kube-apiserver reads them
 * once more
 */
export const REFRESHED_GENERATION_ANNOTATION = `${GROUP}/refreshed-generation`;
/** protector: how its numbers were derived, for people */
export const DERIVATION_ANNOTATION = `${GROUP}/derivation`;
/** protector: any value: releases the protector of a vanished workload (`kubectl podseidon release`) */
export const RELEASED_ANNOTATION = `${GROUP}/released`;
/** protector: it was restored from a backup: each cell starts on hold, and its first counts are not trusted alone */
export const RESTORED_ANNOTATION = `${GROUP}/restored`;

export const UPDATE_TRIGGER_POD = "podseidon-update-trigger";
/** the dummy pod: when it was last patched */
export const UPDATE_TRIGGER_ANNOTATION = `${GROUP}/update-trigger-time`;
/** the dummy pod: how often it was patched; a smaller number shows that the cell's etcd was restored */
export const UPDATE_TRIGGER_COUNTER_ANNOTATION = `${GROUP}/update-trigger-counter`;
/** the dummy pod: the first count of each process, which shows a restore also after the count has caught up */
export const UPDATE_TRIGGER_LINEAGE_ANNOTATION = `${GROUP}/update-trigger-lineage`;
export const UPDATE_TRIGGER_SCHEDULER = "do-not-schedule";

export const MIRROR_POD_ANNOTATION = "kubernetes.io/config.mirror";
/** pod, prefix of annotations: each holds the pod's disruption back until it is removed */
export const PRE_ACTIVITY_PREFIX = "pre-activity.xpdb.form3.tech/";
/** pod: written by the webhook on a pod that is held back by a pre-activity: a client asked to delete it */
export const PENDING_DISRUPTION_ANNOTATION = "xpdb.form3.tech/has-pending-disruption";

/**
 * workload or budget: `Enforce`, `Warn` or `Off`: `spec.enforcement` of its protector, before what its namespace or the
 * generator says
 */
export const ENFORCEMENT_ANNOTATION = `${GROUP}/enforcement`;
/**
 * namespace of a core, label: `Enforce`, `Warn` or `Off`: what its workloads and budgets have that say nothing, before
 * `--enforcement`
 */
export const ENFORCEMENT_LABEL = `${GROUP}/enforcement`;

/**
 * namespace, label: `true`: it has protectors, and a webhook configuration may ask about such namespaces alone; an
 * aggregator with `--mark-namespaces` writes it
 */
export const ENFORCED_NAMESPACE_LABEL = `${GROUP}/enforced-namespace`;

/** Labels of the project's own pods (manifests), whose disruption is allowed without asking a core. */
export const PART_OF_LABEL = "app.kubernetes.io/part-of";
export const PART_OF_PODSEIDON = "podseidon";

export const AGGREGATOR_LEASE = "podseidon-aggregator";
export const GENERATOR_LEASE = "podseidon-generator";

/** Secret `podseidon-webhook-ca`: asks for a new CA for the webhook's certificate; removed when the CA exists */
export const ROTATE_CA_ANNOTATION = `${GROUP}/rotate-ca-once`;

/** XPodDisruptionBudgets: `true` on one in the core that the generator made for those of worker clusters */
export const CLUSTER_BUDGETS_LABEL = `${GROUP}/cluster-budgets`;
/**
 * XPodDisruptionBudgets: on one made for those of worker clusters: its name there, and what each of them asks for; the
 * strictest counts
 */
export const CLUSTER_BUDGETS_ANNOTATION = `${GROUP}/cluster-budgets`;
