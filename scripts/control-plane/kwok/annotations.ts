/**
 * How a test directs the simulated kubelets, pod by pod or node by node. Durations are Go's: `1500ms`, `2s`, `1m30s`.
 */
export const KWOK_PREFIX = "kwok.podseidon.dev";

export const KWOK_ANNOTATIONS = {
  /**
   * Pod: time from the start of its containers until they are ready; `0s` by default. Read when they start; after
   * `never`, they become ready as soon as the annotation changes or is removed.
   */
  readyAfter: `${KWOK_PREFIX}/ready-after`,
  /** Pod: while it is `"true"`, the containers are not ready; both changes take effect at once. */
  unready: `${KWOK_PREFIX}/unready`,
  /** Pod: time from becoming ready until the containers become unready again. Read when they become ready. */
  unreadyAfter: `${KWOK_PREFIX}/unready-after`,
  /** Pod: time until they become ready again; without it they stay unready. */
  unreadyFor: `${KWOK_PREFIX}/unready-for`,
  /**
   * Pod: time that the containers take to end after the deletion, at most the grace period; at once by default. With
   * `never`, the pod stays beyond its grace period, like with an unreachable kubelet. An update of the pod starts the
   * time again.
   */
  terminateAfter: `${KWOK_PREFIX}/terminate-after`,
  /**
   * Pod: the kubelet's answer to an in-place resize: done at once by default; `Deferred` or `Infeasible` while the
   * annotation has this value.
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
