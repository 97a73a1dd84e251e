/**
 * The outcome of a Kubernetes Event. `created`: a new Event. `counted`: the count of an existing Event was raised.
 * `limited`: its object, or all objects, had too many. `dropped`: too many wait, or the process ends. `failed`: the
 * server rejected it.
 */
export const EVENT_OUTCOMES = ["created", "counted", "limited", "dropped", "failed"] as const;
export type EventOutcome = (typeof EVENT_OUTCOMES)[number];
