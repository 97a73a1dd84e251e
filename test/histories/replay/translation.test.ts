/** What a recorded order of writes leaves open, the translation does not decide. */
import { expect, test } from "vitest";
import { at } from "../checker/json.ts";
import { translate } from "./translation.ts";

type Line = Readonly<Record<string, unknown>>;

const HEAD: Line = { kind: "head", core: "core", cells: { east: "cell" }, settleMs: 1_000 };
const WEB = { app: "web" };
const CANARY = { app: "web", track: "canary" };

function pod(name: string, labels: Line, revision: number): Line {
  const metadata = { name, namespace: "default", uid: `uid-${name}`, labels };
  const status = { phase: "Running", conditions: [{ type: "Ready", status: "True" }] };
  const about = { kind: "version", cluster: "cell", resource: "pods", history: 0, key: `default/${name}` };
  return { ...about, revision, atMs: revision * 100, object: { metadata, status } };
}

function counted(name: string, labels: Line, revision: number, availableReplicas: number, position: number): Line {
  const aggregation = { availableReplicas, resourceVersion: String(position) };
  const status = { cells: [{ cellID: "east", aggregation }] };
  const spec = { minAvailable: 1, selector: { matchLabels: labels } };
  const about = { kind: "version", cluster: "core", resource: "podprotectors", history: 0, key: `default/${name}` };
  return { ...about, revision, atMs: revision * 100, object: { metadata: { uid: name, generation: 1 }, spec, status } };
}

/** Protector and position of each count that the specification is told, in its order. */
function counts(lines: readonly Line[]): readonly unknown[] {
  const history = [HEAD, ...lines, { kind: "end", atMs: 9_000 }];
  const worlds = translate(history.map((line) => JSON.stringify(line)));
  const told = worlds.flatMap(({ events }) => events.filter(({ event }) => event === "account"));
  return told.map((event) => [at(event, "protector"), at(event, "position")]);
}

const BEGIN = [
  pod("canary-0", CANARY, 3),
  counted("web", WEB, 10, 1, 3),
  counted("canary", CANARY, 11, 1, 3),
  pod("web-0", WEB, 14),
  pod("web-1", WEB, 15),
];

test("two protectors' counts that were decided one after the other may be stored the other way round", () => {
  const late = [counted("web", WEB, 16, 3, 15), counted("canary", CANARY, 17, 1, 14)];
  expect(counts([...BEGIN, ...late])).toEqual([
    ["default/canary", 1],
    ["default/web", 2],
  ]);
});

test("the writes of one protector may not, and no count goes before what its own protector was", () => {
  const back = [
    counted("canary", CANARY, 16, 1, 15),
    counted("web", WEB, 17, 3, 15),
    counted("web", WEB, 18, 2, 14),
    counted("canary", CANARY, 19, 1, 14),
  ];
  expect(counts([...BEGIN, ...back])).toEqual([
    ["default/canary", 2],
    ["default/canary", 1],
    ["default/web", 2],
    ["default/web", 1],
  ]);
});

interface Recorded {
  readonly name: string;
  readonly nonce: string;
}

/** `web` in another version, with these deletions recorded. */
function recorded(revision: number, records: readonly Recorded[]): Line {
  const line = counted("web", WEB, revision, 2, 4);
  const buckets = records.map(({ name, nonce }) => ({ podUID: `uid-${name}`, operation: "DELETE", nonce, counter: 1 }));
  const status = { cells: [{ ...Object(at(line, "object", "status", "cells", 0)), admissionHistory: { buckets } }] };
  return { ...line, object: { ...Object(at(line, "object")), status } };
}

/** A deletion of a pod, between two revisions of the core. */
function review(name: string, from: number, to: number, answer?: Line): Line {
  const about = { kind: "review", cell: "east", id: name, operation: "DELETE", namespace: "default", name };
  const object = { metadata: { name, namespace: "default", uid: `uid-${name}`, resourceVersion: "4" } };
  const moment = (revision: number): Line => ({ history: 0, revision });
  const times = { from: moment(from), fromMs: from * 100, to: moment(to), toMs: to * 100 };
  return { ...about, podUid: `uid-${name}`, pod: object, ...times, ...(answer && { answer }) };
}

const TWO_PODS = [pod("web-0", WEB, 3), pod("web-1", WEB, 4), counted("web", WEB, 10, 2, 4)];
const FIRST: Recorded = { name: "web-0", nonce: "aaaa0001" };
const SECOND: Recorded = { name: "web-1", nonce: "aaaa0002" };

/** What was reserved and rolled back, in its order, and what can't be committed any more. */
function requestsIn(lines: readonly Line[]): readonly unknown[] {
  const history = [HEAD, ...TWO_PODS, ...lines, { kind: "end", atMs: 9_000 }];
  const worlds = translate(history.map((line) => JSON.stringify(line)));
  const told = worlds.flatMap(({ events }) => events.filter(({ event }) => /^(reserve|rollBack|expire)$/.test(event)));
  return told.map(({ event, nonce, unspecified }) => [event, nonce, ...(unspecified === true ? ["unspecified"] : [])]);
}

test("a batch rolls back before it reserves", () => {
  const denied = { status: 200, allowed: false, decision: "core/default/web=AtMinimum" };
  const lines = [
    ...[recorded(12, [FIRST]), review("web-0", 11, 12, denied), recorded(14, [SECOND])],
    review("web-1", 13, 15, { status: 200, allowed: true }),
  ];
  expect(requestsIn(lines)).toEqual([
    ["reserve", "delete-1"],
    ["rollBack", "delete-1"],
    ["reserve", "delete-2"],
    ["expire", "delete-1"],
    ["expire", "delete-2"],
  ]);
});

test.each([
  ["a denial for want of quota", { status: 200, allowed: false, decision: "core/default/web=AtMinimum" }, false],
  ["a denial for want of time", { status: 200, allowed: false, decision: "core/default/web=time" }, true],
  ["a denial that nobody got", undefined, true],
  ["a failure, which leaves the record", { status: 500 }, false],
])("a roll-back after %s", (_, answer, unspecified) => {
  expect(requestsIn([recorded(12, [FIRST]), review("web-0", 11, 13, answer), recorded(14, [])])).toEqual([
    ["reserve", "delete-1"],
    ["rollBack", "delete-1", ...(unspecified ? ["unspecified"] : [])],
    ["expire", "delete-1"],
  ]);
});

test("a roll-back may come after the settle period of its request", () => {
  const denied = { status: 200, allowed: false, decision: "core/default/web=AtMinimum" };
  expect(requestsIn([recorded(12, [FIRST]), review("web-0", 11, 13, denied), recorded(40, [])])).toEqual([
    ["reserve", "delete-1"],
    ["rollBack", "delete-1"],
    ["expire", "delete-1"],
  ]);
});

test("what an admission has read of a pod was before it, however late the recorder saw that", () => {
  const before = pod("web-0", WEB, 14);
  const status = { phase: "Running", conditions: [{ type: "Ready", status: "False" }] };
  const unready = { ...before, revision: 16, atMs: 1_900, object: { ...Object(before.object), status } };
  const count = counted("web", WEB, 17, 1, 14);
  const record = { nonce: "n1", operation: "EVICT", podUID: "uid-web-0", podResourceVersion: "16", counter: 0 };
  const [cell] = Object(count.object).status.cells;
  const cells = [{ ...cell, admissionHistory: { buckets: [record] } }];
  const reserved = { ...count, revision: 18, atMs: 1_800, object: { ...Object(count.object), status: { cells } } };
  const history = [HEAD, before, count, reserved, unready, { kind: "end", atMs: 9_000 }];
  const [world] = translate(history.map((line) => JSON.stringify(line)));
  expect(world?.events.map(({ event }) => event)).toEqual(["world", "change", "reserve"]);
});
