/** What Kubernetes does in some worlds; a habit that is added at the end leaves the draws of the others as they are. */
export const HABITS = [
  "staleReview",
  "twoReviews",
  "evictionCondition",
  "finalizers",
  "kubeletClock",
  "resolvedImages",
  "deadlines",
  "voluntaryGates",
] as const;
export type Habit = (typeof HABITS)[number];

/** Those of pods that change in place. */
export const HABITS_OF_CHANGES: readonly Habit[] = ["resolvedImages", "deadlines", "voluntaryGates"];
