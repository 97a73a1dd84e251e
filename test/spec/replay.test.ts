/** Histories, line by line, that are of the protocol and that are not. */
import { beforeAll, describe, expect, test } from "vitest";
import { replay } from "./replay.ts";
import { loadSpecification, type Specification } from "./specification.ts";

const WORLD = {
  event: "world",
  pods: { x: "a", y: "a", z: "b" },
  protectors: { web: { covers: ["x", "y", "z"], minAvailable: 2 } },
  aggregators: { a1: "a", b1: "b" },
};

const ask = (nonce: string, pod: string, operation = "DELETE"): object => ({ event: "ask", nonce, pod, operation });
const reserve = (nonce: string, allowed = true): object => ({ event: "reserve", nonce, protector: "web", allowed });
const account = (aggregator: string, available: number, ...nonces: string[]): object => {
  return { event: "account", aggregator, protector: "web", available, nonces };
};
const allow = (nonce: string): object => ({ event: "allow", nonce });
const commit = (nonce: string): object => ({ event: "commit", nonce, to: "Absent" });
const end = (nonce: string): object => ({ event: "end", nonce });
const change = (pod: string, to: string): object => ({ event: "change", pod, to });

const ndjson = (events: readonly object[], world: object = WORLD): string =>
  [world, ...events].map((event) => JSON.stringify(event)).join("\n");

/** Two protectors of x. `web` has one pod to spare, and another one that is not there yet. */
const TWO = {
  event: "world",
  pods: { x: "a", y: "a", z: "a", next: "a" },
  young: ["next"],
  protectors: { canary: { covers: ["x"], minAvailable: 0 }, web: { covers: ["x", "y", "z", "next"], minAvailable: 2 } },
  aggregators: { a1: "a" },
};
const records = { event: "reserve", nonce: "1", protector: "canary", allowed: true };
const rollBack = { event: "rollBack", nonce: "1", protector: "canary" };
const unspecified = { ...rollBack, unspecified: true };
const denied = { event: "deny", nonce: "1", protectors: ["web"] };
const byCanary = { ...denied, protectors: ["canary"] };
/** A request for another pod takes what `web` can spare, and the next pod gives it back. */
const taken = [ask("2", "z"), reserve("2")];
const returned = [change("next", "Ready"), account("a1", 4, "2")];

let specification: Specification;

beforeAll(() => {
  specification = loadSpecification();
});

describe("of the protocol", () => {
  test.each<[string, object[]]>([
    ["a deletion is settled with its count", [ask("1", "x"), reserve("1"), allow("1"), commit("1"), account("a1", 1)]],
    [
      "a deletion that was not committed is settled",
      [ask("1", "x"), reserve("1"), allow("1"), end("1"), account("a1", 2)],
    ],
    [
      "what is reserved in one cell is missing in the other",
      [ask("1", "x"), reserve("1"), ask("2", "z"), reserve("2", false)],
    ],
    [
      "a pod becomes unready during its eviction, and weighs nothing",
      [ask("1", "x", "EVICT"), reserve("1"), allow("1"), change("x", "Unready"), account("a1", 1, "1"), commit("1")],
    ],
    [
      "a repeat is allowed, whatever is left",
      [ask("1", "x"), reserve("1"), ask("2", "x"), reserve("2"), allow("1"), allow("2"), commit("2")],
    ],
    [
      "an account that has not seen the deletion keeps the record",
      [ask("1", "x"), reserve("1"), allow("1"), commit("1"), account("a1", 2, "1"), account("a1", 1)],
    ],
  ])("%s", (_, events) => {
    expect(replay(specification, ndjson(events))).toMatchObject({ events: events.length, refused: undefined });
  });
});

describe("not of the protocol", () => {
  test.each<[string, object[], object]>([
    [
      "a second admission takes quota that is reserved",
      [ask("1", "x"), reserve("1"), ask("2", "z"), reserve("2"), allow("2")],
      reserve("2"),
    ],
    [
      "a record is gone while its deletion can be committed",
      [ask("1", "x"), reserve("1"), allow("1"), account("a1", 2), commit("1")],
      account("a1", 2),
    ],
    ["a count has a pod too few", [ask("1", "x"), account("a1", 1), end("1")], account("a1", 1)],
    ["a disruption is allowed that no protector has recorded", [ask("1", "x"), allow("1")], allow("1")],
    [
      "a deletion is committed at another version than the reviewed one",
      [ask("1", "x"), reserve("1"), allow("1"), change("x", "Ready"), commit("1")],
      commit("1"),
    ],
    [
      "a deletion is settled and still counted",
      [ask("1", "x"), reserve("1"), allow("1"), commit("1"), account("a1", 2)],
      account("a1", 2),
    ],
    ["a denial while there is quota", [ask("1", "x"), reserve("1", false)], reserve("1", false)],
  ])("%s", (_, events, refused) => {
    expect(replay(specification, ndjson(events)).refused).toBe(JSON.stringify(refused));
  });
});

describe("of two protectors, one records and the other denies:", () => {
  test.each<[string, object[]]>([
    ["by what is stored after the record", [ask("1", "x"), records, ...taken, rollBack, denied]],
    ["by what was stored before the record", [...taken, ask("1", "x"), ...returned, records, rollBack, denied]],
    ["the same, and its answer comes first", [...taken, ask("1", "x"), ...returned, records, denied, rollBack]],
    ["for a reason that is not of the protocol", [ask("1", "x"), records, unspecified, end("1"), account("a1", 3)]],
  ])("%s", (_, events) => {
    expect(replay(specification, ndjson(events, TWO))).toMatchObject({ events: events.length, refused: undefined });
  });

  test.each<[string, object[], object]>([
    ["never without quota", [ask("1", "x"), records, rollBack, denied], rollBack],
    [
      "without quota only before the request",
      [...taken, ...returned, ask("1", "x"), records, denied, rollBack],
      denied,
    ],
    ["without quota only after the answer", [ask("1", "x"), records, denied, ...taken, rollBack], denied],
    ["and is not the one that had no quota", [...taken, ask("1", "x"), records, byCanary], byCanary],
    ["and has recorded it, too", [ask("1", "x"), records, reserve("1"), unspecified], unspecified],
    ["and the request is allowed", [ask("1", "x"), records, rollBack, reserve("1"), allow("1")], rollBack],
  ])("%s, which is refused", (_, events, refused) => {
    expect(replay(specification, ndjson(events, TWO)).refused).toBe(JSON.stringify(refused));
  });
});
