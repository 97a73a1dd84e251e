/**
 * How a test directs the simulated kubelets, pod by pod or node by node. Durations are Go's: `1500ms`, `2s`, `1m30s`.
 */
export const KWOK_PREFIX = "kwok.podseidon.dev";

export const KWOK_ANNOTATIONS = {
  /**
   * Pod: time from the start of its containers until they are ready; `0s` by default. Read when they start; after
   * `never` they become ready as soon as the annotation says something else or is gone.
   */
  readyAfter: `${KWOK_PREFIX}/ready-after`,
  /** Pod: while it is `"true"` the containers are not ready; takes effect at once, both ways. */
  unready: `${KWOK_PREFIX}/unready`,
  /** Pod: time from becoming ready until the containers become unready again. Read when they become ready. */
  unreadyAfter: `${KWOK_PREFIX}/unready-after`,
  /** Pod: time until they become ready again; without it they stay unready. */
  unreadyFor: `${KWOK_PREFIX}/unready-for`,
  /**
   * Pod: time that the containers take to end once the pod is being deleted, at most its grace period; at once by
   * default; `never` holds the pod beyond its grace period, like a kubelet that is out of reach. An update of the pod
   * starts the time again.
   */
  terminateAfter: `${KWOK_PREFIX}/terminate-after`,
  /**
   * Pod: the answer to an in-place resize: done at once by default, `Deferred` or `Infeasible` for as long as it is
   * there.
   */
  resize: `${KWOK_PREFIX}/resize`,
  /** Node: while it is `"true"` the node reports that it is not ready. */
  nodeNotReady: `${KWOK_PREFIX}/not-ready`,
} as const;

/**
 * The pod condition in which the stages store the next state and its time; it survives a restart of KWOK and updates of
 * the pod.
 */
export const TIMER_CONDITION = `${KWOK_PREFIX}/Timer`;
