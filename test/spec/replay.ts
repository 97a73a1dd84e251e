/**
 * Is a recorded history a behaviour of the specification? Each event is one visible step. What nobody records (a
 * delivery of a watch, a LIST, a GET, an accounting that writes nothing) may happen before it. So the replay keeps
 * every state that the world may be in. An event that is possible in none of them is not of the protocol.
 * `docs/spec/README.md` documents the events.
 */
import * as v from "valibot";
import type { Actions, NextState } from "./actions.ts";
import { integer, mapOf, recordOf, setOf, text } from "./literals.ts";
import type { Constants, Specification } from "./specification.ts";
import { elementsOf, entriesOf, fieldOf, type Value } from "./values.ts";

const worldSchema = v.object({
  event: v.literal("world"),
  pods: v.record(v.string(), v.string()),
  young: v.optional(v.array(v.string()), []),
  unready: v.optional(v.array(v.string()), []),
  protectors: v.record(v.string(), v.object({ covers: v.array(v.string()), minAvailable: v.number() })),
  aggregators: v.record(v.string(), v.string()),
});

const eventSchema = v.variant("event", [
  v.object({ event: v.literal("change"), pod: v.string(), to: v.picklist(["Ready", "Unready", "Absent"]) }),
  v.object({ event: v.literal("ask"), nonce: v.string(), pod: v.string(), operation: v.picklist(["DELETE", "EVICT"]) }),
  v.object({ event: v.literal("reserve"), nonce: v.string(), protector: v.string(), allowed: v.boolean() }),
  v.object({ event: v.literal("rollBack"), nonce: v.string(), protector: v.string() }),
  v.object({ event: v.picklist(["allow", "end"]), nonce: v.string() }),
  v.object({ event: v.literal("commit"), nonce: v.string(), to: v.picklist(["Absent", "Terminating"]) }),
  v.object({
    event: v.literal("account"),
    aggregator: v.string(),
    protector: v.string(),
    available: v.number(),
    nonces: v.array(v.string()),
  }),
]);

type HistoryEvent = v.InferOutput<typeof eventSchema>;
type World = v.InferOutput<typeof worldSchema>;

interface Replay {
  readonly events: number;
  /** The first line that the specification has no step for. */
  readonly refused: string | undefined;
}

/** States that a replay keeps. A history that leaves more open says too little. */
const MAX_STATES = 20_000;

/** `ndjson`: the world on the first line, one event on each other. Throws where a line can't be read. */
export function replay(specification: Specification, ndjson: string): Replay {
  const [world = "", ...lines] = ndjson.split("\n").filter((line) => line !== "");
  const parsed = v.parse(worldSchema, JSON.parse(world));
  const past = new Past(specification.withConstants(constantsOf(parsed, lines.length)), parsed.aggregators);
  for (const [at, line] of lines.entries()) {
    if (!past.take(v.parse(eventSchema, JSON.parse(line)))) return { events: at, refused: line };
  }
  return { events: lines.length, refused: undefined };
}

function constantsOf({ pods, young, unready, protectors, aggregators }: World, bound: number): Constants {
  const cells = Object.entries(pods).map(([pod, cell]) => [pod, text(cell)] as const);
  const leaders = Object.entries(aggregators).map(([name, cell]) => [name, text(cell)] as const);
  const specs = Object.entries(protectors).map(([name, { covers, minAvailable }]) => {
    const spec = recordOf([
      ["covers", setOf(covers)],
      ["minAvailable", integer(minAvailable)],
    ]);
    return [name, spec] as const;
  });
  return [
    ["CELLS", setOf(Object.values(pods))],
    ["PODS", mapOf(cells)],
    ["YOUNG", setOf(young)],
    ["UNREADY", setOf(unready)],
    ["PROTECTORS", mapOf(specs)],
    ["AGGREGATORS", mapOf(leaders)],
    ["OPERATIONS", setOf(["DELETE", "EVICT"])],
    ["EVENTS", setOf(["Create", "Touch", "Fail", "Recover", "Terminate"])],
    ["MAX_CHANGES", integer(bound)],
    ["MAX_REQUESTS", integer(bound)],
    ["MAX_LOSSES", integer(0)],
    ["WITHOUT", text("")],
  ];
}

class Past {
  readonly #actions: Actions;
  readonly #cells: Readonly<Record<string, string>>;
  /** The number of each nonce, in the order of the requests. */
  readonly #numbers = new Map<string, number>();
  #states: ReadonlySet<Value>;

  /** `cells`: of each aggregator. */
  constructor(actions: Actions, cells: Readonly<Record<string, string>>) {
    this.#actions = actions;
    this.#cells = cells;
    this.#states = new Set(actions.after("init").map(({ state }) => state));
  }

  /** False when the event is possible in no state. */
  take(event: HistoryEvent): boolean {
    if (event.event === "ask") this.#numbers.set(event.nonce, this.#numbers.size);
    const before = event.event === "account" || event.event === "reserve" ? this.#withHidden(event) : this.#states;
    const after = new Set<Value>();
    for (const state of before)
      for (const next of this.#actions.after("step", state)) if (this.#shows(event, next)) after.add(next.state);
    this.#states = after;
    return after.size > 0;
  }

  /** With every state that steps lead to which nobody records, by the component of this event. */
  #withHidden(event: HistoryEvent): ReadonlySet<Value> {
    const states = new Set(this.#states);
    for (const state of states) {
      for (const next of this.#actions.after("step", state))
        if (this.#isHidden(event, state, next)) states.add(next.state);
      if (states.size > MAX_STATES) throw new Error("the history leaves too much open");
    }
    return states;
  }

  #isHidden(event: HistoryEvent, before: Value, { action, args, state }: NextState): boolean {
    if (event.event === "reserve") return action === "readAgain" && args[0] === this.#numbers.get(event.nonce);
    if (event.event !== "account" || args[0] !== event.aggregator) return false;
    if (action === "reconcile") return fieldOf(before, "entries") === fieldOf(state, "entries");
    return ["deliver", "list", "readAlive"].includes(action);
  }

  #shows(event: HistoryEvent, { action, args, state }: NextState): boolean {
    switch (event.event) {
      case "change":
        return action === "live" && args[0] === event.pod && args[3] === event.to;
      case "ask":
        return action === "ask" && args[0] === event.pod && args[1] === event.operation;
      case "account":
        return action === "reconcile" && this.#isAccount(event, args, state);
      case "reserve":
        return (
          this.#isOf(event, action, args) &&
          args[1] === event.protector &&
          this.#isAllowed(args, state) === event.allowed
        );
      case "rollBack":
        return this.#isOf(event, action, args) && args[1] === event.protector;
      case "commit":
        return this.#isOf(event, action, args) && args[1] === event.to;
      default:
        return this.#isOf(event, action, args);
    }
  }

  #isOf({ event, nonce }: { event: string; nonce: string }, action: string, args: readonly Value[]): boolean {
    return action === event && args[0] === this.#numbers.get(nonce);
  }

  #isAllowed([nonce]: readonly Value[], state: Value): boolean {
    const request = entriesOf(fieldOf(state, "requests")).find(([number]) => number === nonce)?.[1];
    return request !== undefined && fieldOf(request, "state") !== "Denied";
  }

  /** The written entry says what the event says. */
  #isAccount(
    { aggregator, protector, available, nonces }: Extract<HistoryEvent, { event: "account" }>,
    args: readonly Value[],
    state: Value,
  ): boolean {
    if (args[0] !== aggregator || args[1] !== protector) return false;
    const wanted = nonces.map((nonce) => this.#numbers.get(nonce));
    return entriesOf(fieldOf(state, "entries")).some(([key, entry]) => {
      if (typeof key !== "object" || key.items[0] !== protector || key.items[1] !== this.#cells[aggregator])
        return false;
      const left = noncesOf(entry);
      const isSame = left.length === wanted.length && left.every((nonce) => wanted.some((other) => other === nonce));
      return isSame && elementsOf(fieldOf(entry, "available")).length === available;
    });
  }
}

function noncesOf(entry: Value): Value[] {
  return entriesOf(fieldOf(entry, "reservations")).flatMap(([, reservation]) =>
    entriesOf(fieldOf(reservation, "records")).flatMap(([, record]) => elementsOf(fieldOf(record, "nonces"))),
  );
}
