/**
 * What became of a Kubernetes Event. `created`: it is new. `counted`: the count of an existing Event was raised.
 * `limited`: there were too many of its object, or of all objects. `dropped`: too many wait, or the process ends.
 * `failed`: the server rejected it.
 */
export const EVENT_OUTCOMES = ["created", "counted", "limited", "dropped", "failed"] as const;
export type EventOutcome = (typeof EVENT_OUTCOMES)[number];
