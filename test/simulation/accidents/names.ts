/** What accidents there are, by the names that the coverage knows. */
export const ACCIDENTS = [
  "a pod flaps unseen and is deleted",
  "a pod is ready by the time its eviction is recorded",
  "a pod is deleted that the aggregator has not seen",
  "a pod changes between review and commit, and is reviewed again",
  "a cell's entry is removed with a deletion under way",
  "a core goes back behind a deletion that is under way",
  "a core goes back while all replicas stand still",
  "a cell goes back behind a change of a pod that is deleted",
  "a leader that is cut off counts a history that is over",
  "no core answers",
  "one of two protectors takes its leave back",
  "one of two cores does not answer, and the API server goes on",
  "a selector comes to cover fewer pods, uncounted",
  "a protector is made, and a replica starts on a cache that lags",
] as const;
export type AccidentName = (typeof ACCIDENTS)[number];
