/** What Kubernetes does in some worlds; a habit that is added at the end leaves the draws of the others as they are. */
export const HABITS = ["staleReview", "twoReviews", "evictionCondition", "finalizers", "kubeletClock"] as const;
export type Habit = (typeof HABITS)[number];
