/**
 * What became of a note for a Kubernetes Event. `created`: a new Event. `counted`: an Event that exists was counted up. `limited`: its
 * object, or all together, had too many. `dropped`: too many wait, or the process ends. `failed`: the server did not take it.
 */
export const EVENT_OUTCOMES = ["created", "counted", "limited", "dropped", "failed"] as const;
export type EventOutcome = (typeof EVENT_OUTCOMES)[number];
