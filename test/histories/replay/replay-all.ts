/** Replays each world of a recorded history in the specification. */
import { replay } from "../../spec/replay.ts";
import type { Specification } from "../../spec/specification.ts";
import { translate } from "./translation.ts";

export interface ReplayedWorldHistory {
  readonly protectors: readonly string[];
  /** `unspecified`: the specification has no word for something. `open`: it leaves more open than is followed. */
  readonly outcome: "replayed" | "refused" | "open" | "unspecified";
  /** What it has no word or no step for. */
  readonly reason: string | undefined;
  readonly events: number;
  readonly states: number;
  /** Of the events. */
  readonly kinds: ReadonlySet<string>;
}

export function replayAll(specification: Specification, lines: Iterable<string>): readonly ReplayedWorldHistory[] {
  return translate(lines).map(({ protectors, unspecified, impossible, events }) => {
    const kinds = new Set(events.slice(1).map(({ event }) => event));
    if (unspecified !== undefined)
      return { protectors, outcome: "unspecified", reason: unspecified, events: 0, states: 0, kinds };
    if (impossible !== undefined)
      return { protectors, outcome: "refused", reason: impossible, events: 0, states: 0, kinds };
    const ndjson = events.map((event) => JSON.stringify(event)).join("\n");
    const { refused: reason, isOpen, events: taken, states } = replay(specification, ndjson);
    const outcome = reason !== undefined ? "refused" : isOpen ? "open" : "replayed";
    return { protectors, outcome, reason, events: taken, states, kinds };
  });
}
