/** A small history that fits, and the same with one thing changed, which each check notices. */
import { describe, expect, test } from "vitest";
import { judge } from "./judge.ts";

type Line = Readonly<Record<string, unknown>>;

const SETTLE_MS = 1_000;
const LABELS = { app: "web" };
const UIDS = ["uid-0", "uid-1", "uid-2"];

function pod(index: number, revision: number, change: Line = {}): Line {
  const metadata = { name: `web-${index}`, namespace: "default", uid: UIDS[index], labels: LABELS, ...change };
  const status = { phase: "Running", conditions: [{ type: "Ready", status: "True" }] };
  return podVersion(index, revision, { metadata, status });
}

function podVersion(index: number, revision: number, object?: unknown): Line {
  const key = `default/web-${index}`;
  return { kind: "version", cluster: "cell", resource: "pods", history: 0, revision, atMs: revision, key, object };
}

const DELETION = {
  podUID: "uid-0",
  operation: "DELETE",
  nonce: "aaaa0001",
  paid: true,
  startTime: "1970-01-01T00:00:01Z",
};

/** Two of three pods are promised. */
function protector(
  revision: number,
  atMs: number,
  available: number,
  position: number,
  buckets: readonly Line[],
): Line {
  const aggregation = { availableReplicas: available, resourceVersion: String(position) };
  const cells = [{ cellID: "east", aggregation, admissionHistory: { buckets } }];
  const metadata = { uid: "protector", generation: 1 };
  const object = { metadata, spec: { minAvailable: 2, selector: { matchLabels: LABELS } }, status: { cells } };
  const key = "default/web";
  return { kind: "version", cluster: "core", resource: "podprotectors", history: 0, revision, atMs, key, object };
}

function review(index: number, from: number, to: number, answer: Line): Line {
  const reviewed = pod(index, 0).object;
  return {
    kind: "review",
    cell: "east",
    id: `review-${index}`,
    operation: "DELETE",
    namespace: "default",
    name: `web-${index}`,
    podUid: UIDS[index],
    pod: reviewed,
    from: { history: 0, revision: from },
    fromMs: from * 1_000,
    to: { history: 0, revision: to },
    toMs: to * 1_000,
    answer: { status: 200, ...answer },
  };
}

const ALLOWED = { allowed: true };
const DENIED = { allowed: false, decision: "core/default/web=AtMinimum" };
const BUSY = { allowed: false, decision: "core/default/web=Reserved" };

/** The first deletion takes the quota, the second is told to wait, the third is denied. */
const HISTORY: readonly Line[] = [
  { kind: "head", core: "core", cells: { east: "cell" }, settleMs: SETTLE_MS },
  pod(0, 10),
  pod(1, 11),
  pod(2, 12),
  protector(20, 1_000, 3, 12, []),
  protector(21, 21_000, 3, 12, [DELETION]),
  review(0, 20, 21, ALLOWED),
  review(1, 21, 21, BUSY),
  pod(0, 13, { deletionTimestamp: "1970-01-01T00:00:22Z" }),
  podVersion(0, 14),
  protector(22, 22_000, 2, 14, []),
  review(2, 22, 22, DENIED),
  { kind: "end", atMs: 25_000 },
];

const judged = (history: readonly Line[]) => judge(history.map((line) => JSON.stringify(line)));

/** The history with another line in the place of one. */
function changed(index: number, ...lines: readonly Line[]): readonly Line[] {
  return HISTORY.toSpliced(index, 1, ...lines);
}

const lineOf = (kind: string, nth = 0): number =>
  HISTORY.flatMap((line, index) => (line.kind === kind ? [index] : []))[nth] ?? Number.NaN;
const [FIRST, SECOND, THIRD] = [0, 1, 2].map((nth) => lineOf("review", nth));

test("a history that fits has no violation, and everything in it is judged", () => {
  const { violations, numbers } = judged(HISTORY);
  expect(violations).toEqual([]);
  expect(Object.fromEntries(numbers)).toEqual({ allowed: 1, quota: 1, denied: 2, dropped: 1, counts: 2, returned: 1 });
});

test("a restored core tells its backup again, which judges nothing anew", () => {
  const again = { ...DELETION, nonce: "aaaa0002" };
  const stored = [
    protector(20, 1_000, 3, 12, []),
    protector(21, 21_000, 3, 12, [DELETION]),
    protector(22, 22_000, 3, 13, []),
    protector(23, 23_000, 3, 13, [again]),
    protector(24, 24_000, 2, 15, []),
  ];
  const { violations, numbers } = judged([
    ...HISTORY.slice(0, lineOf("version", 3)),
    ...stored,
    review(0, 20, 21, ALLOWED),
    // The pod changed before its deletion was committed, so the apiserver asked again.
    pod(0, 13),
    { ...review(0, 22, 23, ALLOWED), id: "review-again" },
    pod(0, 14, { deletionTimestamp: "1970-01-01T00:00:23Z" }),
    podVersion(0, 15),
    { kind: "replaced", cluster: "core", resource: "podprotectors", history: 1, inherits: 0, atMs: 24_500 },
    ...stored.map((line) => ({ ...line, history: 1, atMs: 24_600 })),
    { kind: "end", atMs: 25_000 },
  ]);
  expect(violations).toEqual([]);
  expect(Object.fromEntries(numbers)).toMatchObject({ allowed: 2, dropped: 2 });
});

describe("one answer flipped", () => {
  test.each<[string, readonly Line[], RegExp]>([
    [
      "an allowed deletion that was told to wait",
      changed(SECOND ?? 0, review(1, 21, 21, ALLOWED)),
      /^counter: .*web-1 in east .* was allowed, and no version records it$/,
    ],
    [
      "an allowed deletion that was denied",
      changed(THIRD ?? 0, review(2, 22, 22, ALLOWED)),
      /^counter: .*web-2 in east .* was allowed, and no version records it$/,
    ],
    [
      "a denial of the quota that was there",
      changed(FIRST ?? 0, review(0, 20, 20, DENIED)),
      /^counter: .*web-0 in east .* was denied as AtMinimum, which no version is$/,
    ],
    [
      "busy where nothing was reserved",
      changed(FIRST ?? 0, review(0, 20, 20, BUSY)),
      /^counter: .*web-0 in east .* was denied as Reserved, which no version is$/,
    ],
  ])("%s", (_, history, expected) => {
    const { violations } = judged(history);
    expect(violations).toEqual([expect.stringMatching(expected)]);
  });
});

describe("one version changed", () => {
  const [counted, reserved, settled] = [20, 21, 22].map((revision) =>
    HISTORY.findIndex((line) => line.revision === revision),
  );
  const ANOTHER = { ...DELETION, podUID: "uid-1", nonce: "aaaa0002" };

  test.each<[string, readonly Line[], RegExp]>([
    [
      "an answer before the version that records it",
      changed(FIRST ?? 0, review(0, 19, 20, ALLOWED)),
      /^counter: .* was allowed, and no version records it$/,
    ],
    [
      "a version that takes more than there is",
      changed(reserved ?? 0, protector(21, 21_000, 3, 12, [DELETION, ANOTHER])),
      /^counter: default\/web: revision 21 leaves 1 of 2$/,
    ],
    [
      "a count of one pod more",
      changed(counted ?? 0, protector(20, 1_000, 4, 12, [])),
      /^counts: default\/web: revision 20 counts 4 at 12 of east/,
    ],
    [
      "a count at an older position",
      changed(settled ?? 0, protector(22, 22_000, 2, 12, [])),
      /^counts: default\/web: revision 22 counts 2 at 12 of east/,
    ],
    [
      "a record that is dropped while its deletion can be committed",
      changed(settled ?? 0, protector(22, 22_000, 3, 12, [])),
      /^dropped: default\/web: revision 22 drops the DELETE record of default\/web-0/,
    ],
    [
      "a record that stays",
      changed(settled ?? 0, protector(22, 200_000, 2, 14, [])),
      /^returned: default\/web: the record of east \w+ DELETE was held for 179 s$/,
    ],
  ])("%s", (_, history, expected) => {
    const { violations } = judged(history);
    expect(violations).toContainEqual(expect.stringMatching(expected));
  });

  test("a record that stays while something is broken is not late", () => {
    const late = changed(settled ?? 0, protector(22, 200_000, 2, 14, []));
    const fault = (phase: string, atMs: number): Line => ({ kind: "fault", what: "outage", phase, atMs });
    const { violations } = judged(late.toSpliced(1, 0, fault("begin", 30_000), fault("end", 190_000)));
    expect(violations).toEqual([]);
  });
});

describe("a protector that was created a second before", () => {
  const young = HISTORY.flatMap((line) => (line.revision === 20 ? [protector(20, 20_000, 3, 12, [])] : [line]));
  const allowed = young.toSpliced(THIRD ?? 0, 1, review(2, 22, 22, ALLOWED));

  test("may be unknown to a replica", () => {
    expect(judged(allowed).violations).toEqual([]);
  });

  test("is not, where every replica is known to know it", () => {
    const { violations } = judged(allowed.toSpliced(5, 0, { kind: "known", atMs: 20_500 }));
    expect(violations).toEqual([expect.stringMatching(/was allowed, and no version records it$/)]);
  });
});

test("an answer that needs no record takes none from one that does", () => {
  const ending = pod(0, 13, { deletionTimestamp: "1970-01-01T00:00:21Z" }).object;
  const again = { ...review(0, 20, 21, ALLOWED), id: "again", pod: ending };
  expect(judged(HISTORY.toSpliced(FIRST ?? 0, 0, again)).violations).toEqual([]);
});

test("while a pod has another record, one may be dropped", () => {
  const eviction = { ...DELETION, operation: "EVICT", nonce: "aaaa0003", counter: 0 };
  const evicted = { ...review(0, 20, 21, ALLOWED), operation: "EVICT", pod: undefined };
  const { violations } = judged([
    ...HISTORY.slice(0, 5),
    protector(21, 21_000, 3, 12, [DELETION, eviction]),
    review(0, 20, 21, ALLOWED),
    evicted,
    protector(22, 22_000, 3, 12, [{ ...eviction, counter: 1 }]),
    pod(0, 13, { deletionTimestamp: "1970-01-01T00:00:22Z" }),
    protector(23, 23_000, 2, 13, []),
    { kind: "end", atMs: 25_000 },
  ]);
  expect(violations).toEqual([]);
});

test("a history without its end is refused", () => {
  expect(() => judged(HISTORY.slice(0, -1))).toThrow("the history has no end");
});
