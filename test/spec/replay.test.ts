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

const ndjson = (events: readonly object[]): string =>
  [WORLD, ...events].map((event) => JSON.stringify(event)).join("\n");

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
