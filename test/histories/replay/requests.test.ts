import { expect, test } from "vitest";
import type { RecordedReview } from "../checker/history.ts";
import { nameOfUid } from "../checker/pods.ts";
import { stateOf } from "../checker/protector.ts";
import type { ReplayableWorld } from "./replayable-world.ts";
import { requestsOf } from "./requests.ts";

const KEY = "default/web-0";

function stateWith(revision: number, buckets: readonly unknown[]) {
  const status = { cells: [{ cellID: "east", aggregation: { resourceVersion: "3" }, admissionHistory: { buckets } }] };
  const object = { metadata: { uid: "p", generation: 1 }, spec: { minAvailable: 0 }, status };
  return stateOf({ revision, atMs: revision, key: "default/web", object });
}

/** Revision 12 records an eviction of the one pod. */
function world(): ReplayableWorld {
  const eviction = { podUID: "uid-0", operation: "EVICT", nonce: "aaaa0001", paid: true };
  const step = {
    ...{ moment: { history: 0, revision: 12 }, atMs: 12 },
    ...{ before: stateWith(11, []), after: stateWith(12, [eviction]) },
  };
  const pod = { name: "east/web-0", cell: "east", key: KEY, uid: nameOfUid("uid-0"), labels: new Map() };
  return {
    pods: [{ ...pod, first: "Ready", versions: [] }],
    protectors: [{ key: "default/web", covers: [], minAvailable: 0, steps: [step] }],
    ...{ start: 0, positions: new Map(), startMs: 0 },
  };
}

/** An eviction that was over at revision 11. */
function review(answer: RecordedReview["answer"]): RecordedReview {
  const about = { cell: "east", id: "review", operation: "EVICT", key: KEY, podUid: "uid-0", pod: undefined };
  const span = { from: { history: 0, revision: 10 }, fromMs: 10, to: { history: 0, revision: 11 }, toMs: 11 };
  return { ...about, ...span, isDryRun: false, answer, reasons: new Map() };
}

test.each([
  { answer: "none", records: 1, why: "the webhook goes on when its caller has gone away" },
  { answer: "denied", records: 0, why: "the webhook writes nothing after its answer" },
] as const)("a review that was over before the record, $answer: $records, $why", ({ answer, records }) => {
  const { requests } = requestsOf(world(), [review(answer)]);
  expect(requests.map((request) => request.records.length)).toEqual([records]);
});

test("a review of a pod that ends leaves no record, whoever leaves one meanwhile", () => {
  const ending = { metadata: { deletionTimestamp: "1970-01-01T00:00:01Z", resourceVersion: "7" } };
  const first = { ...review("allowed"), pod: ending, to: { history: 0, revision: 12 }, toMs: 12 };
  const second = { ...review("allowed"), to: { history: 0, revision: 13 }, toMs: 13 };
  const { requests } = requestsOf(world(), [first, second]);
  expect(requests.map((request) => [request.review === second, request.records.length])).toEqual([[true, 1]]);
});

test("an eviction that was pinned, read again and recorded again has no word in the specification", () => {
  const pin = { podUID: "uid-0", operation: "EVICT", nonce: "aaaa0001", paid: false, counter: 0 };
  const paid = { ...pin, nonce: "aaaa0001,aaaa0002", paid: true, counter: 1 };
  const given = world();
  const [protector] = given.protectors;
  const steps = [
    { moment: { history: 0, revision: 12 }, atMs: 12, before: stateWith(11, []), after: stateWith(12, [pin]) },
    { moment: { history: 0, revision: 13 }, atMs: 13, before: stateWith(12, [pin]), after: stateWith(13, [paid]) },
  ];
  const twice = { ...given, protectors: protector === undefined ? [] : [{ ...protector, steps }] };
  const evicted = { ...review("allowed"), to: { history: 0, revision: 13 }, toMs: 13 };
  expect(() => requestsOf(twice, [evicted])).toThrow("was pinned, and recorded again");
});

test("a review without an answer takes no record of a later one that has an answer", () => {
  const later = { from: { history: 0, revision: 11 }, fromMs: 11, to: { history: 0, revision: 13 }, toMs: 13 };
  const denied = { ...review("denied"), ...later };
  const { requests } = requestsOf(world(), [review("none"), denied]);
  expect(requests.map((request) => [request.review === denied, request.records.length])).toEqual([
    [false, 0],
    [true, 1],
  ]);
});
