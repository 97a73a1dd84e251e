/** How urgent each state of a protector is, and the order in which an operator reads them. */

/**
 * `trouble`: the promise is broken, or not kept by any component. `attention`: no disruption is possible now, or a
 * person chose this state.
 */
export const HEALTHS = ["trouble", "attention", "order"] as const;
export type Health = (typeof HEALTHS)[number];

/** All states, worst first. `view.ts` defines when each applies. */
const STATES = {
  "below minimum": "trouble",
  "not counted": "trouble",
  "workload vanished": "trouble",
  "no pods match": "trouble",
  "no disruption possible": "trouble",
  "cell on hold": "attention",
  "cell stale": "attention",
  "at minimum": "attention",
  busy: "attention",
  "waits to be deleted": "attention",
  "being deleted": "attention",
  suspended: "attention",
  "partly suspended": "attention",
  released: "attention",
  "only warns": "attention",
  ok: "order",
} as const satisfies Readonly<Record<string, Health>>;

export type HealthState = keyof typeof STATES;

export const HEALTH_STATES: readonly HealthState[] = Object.keys(STATES).filter(isHealthState);

function isHealthState(text: string): text is HealthState {
  return Object.hasOwn(STATES, text);
}

export function healthOf(state: HealthState): Health {
  return STATES[state];
}

/** 0 is the worst. */
export function rankOf(state: HealthState): number {
  return HEALTH_STATES.indexOf(state);
}

export function statesOf(health: Health): readonly HealthState[] {
  return HEALTH_STATES.filter((state) => STATES[state] === health);
}
