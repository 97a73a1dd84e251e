/**
 * What may have happened so far. Aggregators touch each other only through what is written. So a branch is one state of
 * everything else, and for each aggregator, by itself, all that it may know: their number is a sum and no product.
 */
import type { Actions } from "./actions.ts";
import type { Outlook } from "./outlook.ts";
import type { AccountEvent, ProcessEvent, ReplayedEvent, ReplayedWorld } from "./replay-events.ts";
import type { OpenScenario } from "./specification.ts";
import { elementsOf, entriesOf, fieldOf, type Value, type Values, valueAt } from "./values.ts";

interface PastOptions {
  /** Beyond it the history leaves too much open. */
  readonly maxStates: number;
  /**
   * All that may have happened. Otherwise no LIST and no GET without a count that needs it, and of the requests that
   * may have ended a pod only the first: what is possible so is possible, and the rest has to be followed thoroughly.
   */
  readonly isThorough: boolean;
}

interface Branch {
  /** The aggregators in it have seen nothing, so that it has every version of the cells. */
  readonly world: Value;
  readonly known: ReadonlyMap<string, ReadonlySet<Value>>;
  /**
   * Nonces that a protector could deny at some time since their request: a denial may rest on a version that is older
   * than the record that another protector has made meanwhile.
   */
  readonly deniable: ReadonlySet<string>;
}

/** Changes of the world before which an aggregator can do what it can't do after them, or the other way round. */
const CHANGES: readonly string[] = ["change", "commit", "reserve", "rollBack", "account", "end", "expire"];

export class Past {
  readonly #actions: Actions;
  readonly #values: Values;
  /** The cell of each aggregator. */
  readonly #cells: Readonly<Record<string, string>>;
  readonly #protectors: readonly string[];
  readonly #outlook: Outlook;
  readonly #maxStates: number;
  readonly #isThorough: boolean;
  /** The number of each nonce, in the order of the requests. */
  readonly #numbers = new Map<string, number>();
  readonly #nonces: string[] = [];
  #branches: readonly Branch[];
  /** The most states at a time. */
  peak = 0;

  constructor(
    { actions, values }: OpenScenario,
    { aggregators, protectors }: ReplayedWorld,
    outlook: Outlook,
    { maxStates, isThorough }: PastOptions,
  ) {
    this.#maxStates = maxStates;
    this.#isThorough = isThorough;
    this.#actions = actions;
    this.#values = values;
    this.#cells = aggregators;
    this.#protectors = Object.keys(protectors);
    this.#outlook = outlook;
    this.#branches = actions.after("init").map(({ state: world }) => {
      const running = Object.keys(aggregators).filter((name) => !outlook.starts(name));
      return {
        world,
        known: new Map(running.map((name) => [name, new Set([knownIn(world, name)])])),
        deniable: new Set(),
      };
    });
  }

  /** `place`: of the event in the history. Refused: it is possible in no branch. */
  take(event: ReplayedEvent, place: number): "taken" | "refused" | "open" {
    if (event.event === "ask") {
      this.#numbers.set(event.nonce, this.#numbers.size);
      this.#nonces.push(event.nonce);
    }
    if (CHANGES.includes(event.event)) this.#branches = this.#branches.map((branch) => this.#withHidden(branch, place));
    // All that can be is in the states, or some of it is left out.
    if (this.#isOpen()) return "open";
    this.#branches = this.#branches.flatMap((branch) => this.#branchesAfter(event, branch));
    this.#branches = this.#branches.map((branch) => {
      const world = this.#decided(branch.world, place);
      return { ...branch, world, deniable: this.#deniable(world, branch.deniable) };
    });
    return this.#branches.length > 0 ? "taken" : "refused";
  }

  #isOpen(): boolean {
    const sizes = this.#branches.flatMap(({ known }) => [...known.values()].map(({ size }) => size));
    const states = sizes.reduce((sum, size) => sum + size, this.#branches.length);
    this.peak = Math.max(this.peak, states);
    return states > this.#maxStates;
  }

  #branchesAfter(event: ReplayedEvent, branch: Branch): readonly Branch[] {
    if (event.event === "account") return this.#accounted(event, branch);
    if (event.event !== "start" && event.event !== "stop")
      return this.#after(event, branch).map((world) => ({ ...branch, world }));
    const known = new Map(branch.known);
    if (event.event === "stop") known.delete(event.aggregator);
    else known.set(event.aggregator, new Set([knownIn(branch.world, event.aggregator)]));
    return [{ ...branch, known }];
  }

  #after(event: Exclude<ReplayedEvent, AccountEvent | ProcessEvent>, { world, deniable }: Branch): readonly Value[] {
    switch (event.event) {
      case "change":
        return this.#readAgain(world, event.pod).flatMap((read) => this.#changed(read, event.pod, event.to));
      case "ask":
        return this.#call("ask", [event.pod, event.operation], world);
      case "commit":
        return this.#committed(event, world);
      case "reserve":
        return this.#reserved(world, event);
      case "rollBack":
        return this.#ofRequest(event.nonce, world, (number, request) => {
          const isDenied = fieldOf(request, "state") === "Denied" || deniable.has(event.nonce);
          const denied = isDenied ? [world] : this.#deniedByRead(world, number);
          const worlds = event.unspecified ? this.#readings(world, number) : denied;
          return worlds.flatMap((one) => this.#call("rollBack", [number, event.protector], one));
        });
      case "deny":
        return this.#ofRequest(event.nonce, world, (number, request) => {
          if (fieldOf(request, "state") !== "Denied" && !deniable.has(event.nonce)) return [];
          return elementsOf(fieldOf(request, "written")).length > 0 ? [world] : this.#call("end", [number], world);
        });
      case "expire": {
        const isOver = this.#requestOf(event.nonce, world) === undefined;
        return isOver ? [world] : this.#ofRequest(event.nonce, world, (number) => this.#call("end", [number], world));
      }
      default:
        return this.#ofRequest(event.nonce, world, (number) => this.#call(event.event, [number], world));
    }
  }

  #call(action: string, args: readonly (string | number | boolean)[], state: Value): readonly Value[] {
    return this.#actions.afterCall(action, args, state);
  }

  #requestOf(nonce: string, world: Value): Value | undefined {
    return valueAt(fieldOf(world, "requests"), this.#numbers.get(nonce) ?? -1);
  }

  #ofRequest(
    nonce: string,
    world: Value,
    then: (number: number, request: Value) => readonly Value[],
  ): readonly Value[] {
    const [number, request] = [this.#numbers.get(nonce), this.#requestOf(nonce, world)];
    return number === undefined || request === undefined ? [] : then(number, request);
  }

  #changed(world: Value, pod: string, to: string): readonly Value[] {
    const before = String(fieldOf(podIn(world, pod), "phase"));
    const kind = KINDS[`${before} ${to}`];
    return kind === undefined ? [] : this.#call("live", [pod, kind, before, to], world);
  }

  #committed(event: Extract<ReplayedEvent, { event: "commit" }>, world: Value): readonly Value[] {
    const found = this.#committers(event, world).flatMap((number) => this.#call("commit", [number, event.to], world));
    return this.#isThorough ? found : found.slice(0, 1);
  }

  /** The request that is named, or any for the pod. */
  #committers({ nonce, pod }: Extract<ReplayedEvent, { event: "commit" }>, world: Value): readonly number[] {
    const wanted = nonce === undefined ? undefined : this.#numbers.get(nonce);
    return entriesOf(fieldOf(world, "requests")).flatMap(([number, request]) => {
      const isIt = nonce === undefined ? fieldOf(request, "pod") === pod : number === wanted;
      return isIt ? [Number(number)] : [];
    });
  }

  #reserved(world: Value, { nonce, protector, allowed }: Extract<ReplayedEvent, { event: "reserve" }>): Value[] {
    const found = this.#ofRequest(nonce, world, (number) =>
      this.#readings(world, number).flatMap((read) => this.#call("reserve", [number, protector], read)),
    );
    return found.filter((after) => {
      const request = this.#requestOf(nonce, after);
      return request !== undefined && (fieldOf(request, "state") !== "Denied") === allowed;
    });
  }

  /** As it is, and after the webhook has read the pod of an eviction again. */
  #readings(world: Value, number: number): readonly Value[] {
    const again = this.#call("readAgain", [number], world);
    const request = valueAt(fieldOf(world, "requests"), number);
    const isUnchanged =
      request !== undefined && fieldOf(request, "read") === podIn(world, String(fieldOf(request, "pod")));
    // Of the same pod, a later read allows all that an earlier one does.
    return isUnchanged && again.length > 0 ? again : [world, ...again];
  }

  /** The pod of a pinned eviction is read again, and a protector that pinned it denies now. */
  #deniedByRead(world: Value, number: number): readonly Value[] {
    const request = (of: Value): Value | undefined => valueAt(fieldOf(of, "requests"), number);
    return this.#call("readAgain", [number], world).flatMap((read) =>
      elementsOf(fieldOf(request(read) ?? read, "waits"))
        .flatMap((protector) => this.#call("reserve", [number, String(protector)], read))
        .filter((after) => fieldOf(request(after) ?? after, "state") === "Denied"),
    );
  }

  /** Before the pod changes, each eviction of it may be read again. */
  #readAgain(world: Value, pod: string): readonly Value[] {
    const open = entriesOf(fieldOf(world, "requests")).filter(([, request]) => fieldOf(request, "pod") === pod);
    return open.reduce<readonly Value[]>(
      (worlds, [number]) => worlds.flatMap((one) => this.#readings(one, Number(number))),
      [world],
    );
  }

  /**
   * Decisions that write nothing: nobody records when they were made. A request that is to be denied is denied as soon
   * as a protector may, since nothing else depends on it.
   */
  #decided(world: Value, place: number): Value {
    for (const [nonce, number] of this.#numbers) {
      const request = this.#requestOf(nonce, world);
      if (request === undefined || fieldOf(request, "state") !== "Asked") continue;
      for (const protector of elementsOf(fieldOf(request, "waits"))) {
        const ways = this.#outlook.unrecorded(nonce, String(protector), place);
        const after = ways.length === 0 ? undefined : this.#unrecorded(world, number, String(protector), ways);
        if (after !== undefined) return this.#decided(after, place);
      }
    }
    return world;
  }

  #deniable(world: Value, before: ReadonlySet<string>): ReadonlySet<string> {
    const found = [...this.#numbers].filter(([nonce, number]) => {
      const request = before.has(nonce) ? undefined : this.#requestOf(nonce, world);
      if (request === undefined || fieldOf(request, "state") !== "Asked") return false;
      const deniers = elementsOf(fieldOf(request, "waits")).filter((one) =>
        this.#outlook.mayDenyRecorded(nonce, String(one)),
      );
      return deniers.some((one) => this.#unrecorded(world, number, String(one), ["denied"]) !== undefined);
    });
    return found.length === 0 ? before : new Set([...before, ...found.map(([nonce]) => nonce)]);
  }

  #unrecorded(world: Value, number: number, protector: string, ways: readonly string[]): Value | undefined {
    const isAllowed = ways.includes("allowed");
    const worlds = isAllowed ? [world] : this.#readings(world, number);
    const after = worlds.flatMap((read) => this.#call("reserve", [number, protector], read));
    return after.find((next) => {
      const state = fieldOf(valueAt(fieldOf(next, "requests"), number) ?? world, "state");
      return fieldOf(next, "entries") === fieldOf(world, "entries") && (state !== "Denied") === isAllowed;
    });
  }

  /** With everything that its aggregators may have done since, of what nobody records. */
  #withHidden(branch: Branch, place: number): Branch {
    const { world } = branch;
    const later = [...branch.known].map(([name, of]) => {
      const bound = this.#outlook.nextPosition(name, place);
      const all = new Set(of);
      for (const one of all) {
        for (const next of this.#hidden(world, name, one, place)) if (positionOf(next) <= bound) all.add(next);
        if (all.size > this.#maxStates) break;
      }
      return [name, all] as const;
    });
    return { ...branch, known: new Map(later) };
  }

  #hidden(world: Value, name: string, knowledge: Value, place: number): readonly Value[] {
    const state = this.#with(world, name, knowledge);
    const reads = this.#protectors.flatMap((protector) =>
      entriesOf(fieldOf(this.#entryOf(world, protector, name), "reservations")).flatMap(([pod, reservation]) => {
        const nonces = noncesOf(reservation).map((number) => this.#nonces[Number(number)] ?? "");
        const isRead = this.#isThorough || this.#outlook.needsGet(name, protector, nonces, place);
        return isRead ? this.#call("readAlive", [name, protector, String(pod)], state) : [];
      }),
    );
    const observed = this.#protectors.flatMap((protector) => this.#call("loseWrite", [name, protector], state));
    const heard = [false, true].flatMap((isBookmark) => this.#call("deliver", [name, isBookmark], state));
    const isListed = this.#isThorough || this.#outlook.needsList(name, place);
    const lists = isListed ? ["list", "answer"] : [];
    const listed = lists.flatMap((action) => this.#call(action, [name], state));
    return [...reads, ...observed, ...heard, ...listed].map((next) => knownIn(next, name));
  }

  /** The world with this one aggregator as it is. */
  #with(world: Value, name: string, knowledge: Value): Value {
    return this.#values.with(world, "aggregators", this.#values.put(fieldOf(world, "aggregators"), name, knowledge));
  }

  #entryOf(state: Value, protector: string, aggregator: string): Value {
    const key = this.#values.tuple([protector, this.#cells[aggregator] ?? ""]);
    const entry = valueAt(fieldOf(state, "entries"), key);
    if (entry === undefined) throw new Error(`no entry of ${protector} for ${aggregator}`);
    return entry;
  }

  /** The branches in which one of the aggregators has written what the event says. */
  #accounted(event: AccountEvent, branch: Branch): readonly Branch[] {
    const { world, known } = branch;
    return event.aggregator.flatMap((name) => {
      const after = new Map<Value, Set<Value>>();
      for (const knowledge of known.get(name) ?? []) {
        const state = this.#with(world, name, knowledge);
        const written = [false, true].flatMap((isDue) =>
          this.#call("reconcile", [name, event.protector, isDue], state),
        );
        for (const next of written.filter((one) => this.#isAccount(event, name, one))) {
          const later = this.#values.with(world, "entries", fieldOf(next, "entries"));
          after.set(later, (after.get(later) ?? new Set()).add(knownIn(next, name)));
        }
      }
      return [...after].map(([later, of]) => ({ ...branch, world: later, known: new Map(known).set(name, of) }));
    });
  }

  #isAccount({ protector, available, nonces, position, weight }: AccountEvent, name: string, state: Value): boolean {
    const entry = this.#entryOf(state, protector, name);
    const reservations = entriesOf(fieldOf(entry, "reservations")).map(([, reservation]) => reservation);
    const left = reservations.flatMap(noncesOf);
    const wanted = nonces.map((nonce) => this.#numbers.get(nonce));
    const sum = reservations.reduce<number>((total, one) => total + Number(fieldOf(one, "weight")), 0);
    return (
      left.length === wanted.length &&
      left.every((nonce) => wanted.some((other) => other === nonce)) &&
      elementsOf(fieldOf(entry, "available")).length === available &&
      fieldOf(entry, "position") === (position ?? fieldOf(entry, "position")) &&
      sum === (weight ?? sum)
    );
  }
}

/** The events of the specification's `live`. */
const KINDS: Readonly<Record<string, string>> = {
  "Absent Ready": "Create",
  "Ready Ready": "Touch",
  "Ready Unready": "Fail",
  "Unready Ready": "Recover",
  "Terminating Absent": "Terminate",
};

function podIn(world: Value, pod: string): Value {
  for (const [, cell] of entriesOf(fieldOf(world, "cells"))) {
    const found = valueAt(fieldOf(fieldOf(cell, "now"), "pods"), pod);
    if (found !== undefined) return found;
  }
  throw new Error(`no pod ${pod}`);
}

function knownIn(state: Value, name: string): Value {
  const found = valueAt(fieldOf(state, "aggregators"), name);
  if (found === undefined) throw new Error(`no aggregator ${name}`);
  return found;
}

function positionOf(knowledge: Value): number {
  return Number(fieldOf(fieldOf(knowledge, "snapshot"), "version"));
}

function noncesOf(reservation: Value): readonly Value[] {
  return entriesOf(fieldOf(reservation, "records")).flatMap(([, record]) => elementsOf(fieldOf(record, "nonces")));
}
