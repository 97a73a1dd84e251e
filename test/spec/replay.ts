/**
 * Is a recorded history a behaviour of the specification? Each event is one visible step. What nobody records (a
 * delivery of a watch, a LIST, a GET, an accounting that writes nothing, a decision that writes nothing) may happen
 * before it. So the replay keeps every state that the world may be in. An event that is possible in none of them is not
 * of the protocol. `docs/spec/README.md` documents the events.
 */
import { Outlook } from "./outlook.ts";
import { Past } from "./past.ts";
import { constantsOf, type ReplayedHistory, readReplayed } from "./replay-events.ts";
import type { OpenScenario, Specification } from "./specification.ts";

interface Replay {
  readonly events: number;
  /** The first line that the specification has no step for. */
  readonly refused: string | undefined;
  /** The history leaves more open than is followed. Then there is no answer. */
  readonly isOpen: boolean;
  /** The most states that the world was in at a time. */
  readonly states: number;
}

/** States that a replay keeps. */
const MAX_STATES = 20_000;

/** `ndjson`: the world on the first line, one event on each other. Throws where a line can't be read. */
export function replay(specification: Specification, ndjson: string): Replay {
  const history = readReplayed(ndjson);
  const opened = specification.withConstants(constantsOf(history.world, history.events.length));
  const plain = follow(opened, history, false);
  // What the plain way takes is a behaviour, and where it leaves too much open, everything leaves more.
  return plain.refused === undefined ? plain : follow(opened, history, true);
}

function follow(opened: OpenScenario, history: ReplayedHistory, isThorough: boolean): Replay {
  const { world, events } = history;
  const past = new Past(opened, world, new Outlook(history), { maxStates: MAX_STATES, isThorough });
  for (const [place, { line, event }] of events.entries()) {
    const answer = past.take(event, place);
    if (answer === "taken") continue;
    const refused = answer === "refused" ? line : undefined;
    return { events: place, refused, isOpen: answer === "open", states: past.peak };
  }
  return { events: events.length, refused: undefined, isOpen: false, states: past.peak };
}
