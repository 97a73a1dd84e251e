/** A recorded history of one world with one thing changed, in ways that make it no history of the protocol. */
import { at, integer, list, text } from "../checker/json.ts";
import type { SpecifiedEvent } from "./moments.ts";
import { translate } from "./translation.ts";

export interface Flaw {
  readonly kind:
    | "a denial that was an admission"
    | "an admission that was a denial"
    | "an admission that nobody asked for"
    | "a count of another number"
    | "records that are not there";
  /** The line that is changed, or the first of them. */
  readonly at: number;
  readonly lines: readonly string[];
}

export function flawsIn(lines: readonly string[]): readonly Flaw[] {
  const parsed: readonly unknown[] = lines.map((line) => (line === "" ? {} : JSON.parse(line)));
  const [translation] = translate(lines);
  const events = translation?.events ?? [];
  const key = translation?.protectors[0] ?? "";
  return [
    ...reviewFlaws(lines, parsed, events, key),
    ...countFlaws(lines, parsed),
    ...lostRecords(lines, parsed, events),
  ];
}

function reviewFlaws(
  lines: readonly string[],
  parsed: readonly unknown[],
  events: readonly SpecifiedEvent[],
  key: string,
): readonly Flaw[] {
  const reviews = parsed.flatMap((line, index) => (text(line, "kind") === "review" ? [index] : []));
  const reserved = new Set(events.filter(({ event }) => event === "reserve").map((event) => at(event, "nonce")));
  return events.flatMap((event) => {
    const nonce = text(event, "nonce");
    const index = reviews[Number(/[0-9]+$/.exec(nonce)?.[0]) - 1] ?? Number.NaN;
    const changed = (kind: Flaw["kind"], answer: object): Flaw => {
      const line = { ...Object(parsed[index]), answer: { status: 200, ...answer } };
      return { kind, at: index, lines: lines.with(index, JSON.stringify(line)) };
    };
    // An eviction may find that its pod is gone.
    if (event.event === "deny" && nonce.startsWith("delete"))
      return [changed("a denial that was an admission", { allowed: true })];
    if (event.event !== "allow" || !reserved.has(nonce)) return [];
    return [
      changed("an admission that was a denial", { allowed: false, decision: `core/${key}=AtMinimum` }),
      { kind: "an admission that nobody asked for", at: index, lines: lines.toSpliced(index, 1) } as const,
    ];
  });
}

/** Each cell of each version since the replicas knew the protectors, which is after the start of the replay. */
function countFlaws(lines: readonly string[], parsed: readonly unknown[]): readonly Flaw[] {
  const begin = parsed.findIndex((line) => text(line, "kind") === "known");
  return parsed.flatMap((line, index) => {
    if (text(line, "resource") !== "podprotectors" || index < begin) return [];
    return list(line, "object", "status", "cells").map((cell, place) => {
      const availableReplicas = integer(cell, "aggregation", "availableReplicas") + (index % 2 === 0 ? 1 : -1);
      const aggregation = { ...Object(at(cell, "aggregation")), availableReplicas };
      const changed = JSON.stringify(withCell(line, place, { ...Object(cell), aggregation }));
      return { kind: "a count of another number", at: index, lines: lines.with(index, changed) } as const;
    });
  });
}

/** One protector never had the records of one cell, though requests were allowed that left some there. */
function lostRecords(
  lines: readonly string[],
  parsed: readonly unknown[],
  events: readonly SpecifiedEvent[],
): readonly Flaw[] {
  const allowed = new Set(events.filter(({ event }) => event === "allow").map((event) => text(event, "nonce")));
  const asks = events.filter(({ event }) => event === "ask");
  const podOf = new Map(asks.map((event) => [text(event, "nonce"), text(event, "pod")]));
  const places = events
    .filter((event) => event.event === "reserve" && allowed.has(text(event, "nonce")))
    .map((event) => `${text(event, "protector")} ${podOf.get(text(event, "nonce"))?.split("/")[0]}`);
  return [...new Set(places)].map((one) => {
    const [protector = "", cell = ""] = one.split(" ");
    const isIt = (line: unknown): boolean =>
      text(line, "resource") === "podprotectors" && text(line, "key") === protector;
    const without = parsed.map((line, index) =>
      isIt(line) ? JSON.stringify(emptied(line, cell)) : (lines[index] ?? ""),
    );
    return { kind: "records that are not there", at: parsed.findIndex(isIt), lines: without };
  });
}

function emptied(line: unknown, cell: string): unknown {
  const place = list(line, "object", "status", "cells").findIndex((one) => text(one, "cellID") === cell);
  if (place < 0) return line;
  const admissionHistory = { buckets: [] };
  return withCell(line, place, { ...Object(at(line, "object", "status", "cells", place)), admissionHistory });
}

function withCell(line: unknown, place: number, cell: object): unknown {
  const cells = list(line, "object", "status", "cells").map((other, index) => (index === place ? cell : other));
  const object = { ...Object(at(line, "object")), status: { ...Object(at(line, "object", "status")), cells } };
  return { ...Object(line), object };
}
