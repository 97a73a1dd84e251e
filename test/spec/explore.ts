/** Visits every state of the specification within a bound, breadth first, so that a violation is a shortest one. */
import type { Actions } from "./actions.ts";
import { textOf, type Value } from "./values.ts";

interface Violation {
  readonly invariant: string;
  /** The actions from the start to the violation. */
  readonly trace: readonly string[];
  readonly state: Value;
}

export interface Exploration {
  readonly states: number;
  readonly steps: number;
  readonly depth: number;
  /** Every reachable state was visited. */
  readonly isComplete: boolean;
  readonly violation: Violation | undefined;
}

interface Bound {
  readonly states: number;
}

export function explore(actions: Actions, invariants: readonly string[], bound: Bound): Exploration {
  const predicates = invariants.map((name) => ({ name, holds: actions.predicate(name) }));
  /** The state before it, of each state. */
  const before = new Map<Value, Value | undefined>();
  let frontier: Value[] = [];
  let steps = 0;
  let depth = 0;
  const visit = (state: Value, from: Value | undefined): Violation | undefined => {
    if (before.has(state)) return undefined;
    before.set(state, from);
    frontier.push(state);
    const broken = predicates.find(({ holds }) => !holds(state));
    return broken && { invariant: broken.name, trace: traceTo(actions, before, state), state };
  };
  const result = (violation: Violation | undefined): Exploration => {
    return { states: before.size, steps, depth, isComplete: frontier.length === 0, violation };
  };
  for (const { state } of actions.after("init")) {
    const violation = visit(state, undefined);
    if (violation !== undefined) return result(violation);
  }
  while (frontier.length > 0 && before.size < bound.states) {
    const level = frontier;
    frontier = [];
    depth++;
    for (const [at, from] of level.entries()) {
      for (const { state } of actions.after("step", from)) {
        steps++;
        const violation = visit(state, from);
        if (violation !== undefined) return result(violation);
      }
      if (before.size < bound.states) continue;
      frontier.push(...level.slice(at + 1));
      break;
    }
  }
  return result(undefined);
}

function traceTo(actions: Actions, before: ReadonlyMap<Value, Value | undefined>, last: Value): string[] {
  const trace: string[] = [];
  for (let state = last; ; ) {
    const from = before.get(state);
    if (from === undefined) return trace.reverse();
    const step = actions.after("step", from).find((next) => next.state === state);
    trace.push(step === undefined ? "?" : `${step.action}(${step.args.map(textOf).join(", ")})`);
    state = from;
  }
}
