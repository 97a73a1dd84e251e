import { describe, expect, test } from "vitest";
import { numbered, rates } from "./chart.ts";
import { reportPage } from "./page.ts";
import { askersOf, floors, Recorder, type Recording, type Sample, thinned } from "./record.ts";

const RECORDING: Recording = {
  title: "Ten pods <b>in</b> two clusters",
  verdict: "held",
  good: true,
  startedAt: "2026-05-01T12:00:00Z",
  durationMs: 10_000,
  clusters: ["east", "west"],
  samples: [
    { atMs: 0, available: [5, 5], total: 10 },
    { atMs: 2000, available: [4, 4], total: 8 },
    { atMs: 6000, available: [5, 5], total: 10 },
  ],
  promises: [
    { atMs: 0, pods: 8 },
    { atMs: 7000, pods: undefined },
  ],
  reviews: [
    { atMs: 0, admitted: 5, refused: 1, busy: 0 },
    { atMs: 5000, admitted: 7, refused: 9, busy: 1 },
  ],
  marks: [
    { atMs: 1000, kind: "scene", text: "Accident" },
    { atMs: 1500, kind: "fault", text: '$ kubectl delete pods --all "x"' },
    { atMs: 1600, kind: "note", text: "said" },
    { atMs: 9000, kind: "held", text: "never fewer than 8" },
  ],
  askers: [{ name: "system:garbage-collector", admitted: 0, refused: 8, busy: 0 }],
};

describe("the page", () => {
  const page = reportPage(RECORDING);

  test("needs nothing from anywhere", () => {
    expect(page).not.toMatch(/<script|<link|<img|@import|url\(|src=|https?:\/\//);
    expect(page).toContain("Content-Security-Policy");
  });

  test("is readable in the dark, on a phone and without eyes", () => {
    expect(page).toContain("prefers-color-scheme: dark");
    expect(page).toContain('name="viewport"');
    expect(page).toContain('aria-label="Available pods over time; the lowest was 8"');
  });

  test("shows text as text", () => {
    expect(page).toContain("Ten pods &lt;b&gt;in&lt;/b&gt; two clusters");
    expect(page).toContain("&quot;x&quot;");
  });

  test("tells the tightest moment, the answers since the beginning, the faults and who asked", () => {
    expect(page).toContain("<b>8</b>available at the tightest moment, 8 promised");
    expect(page).toContain("<b>2</b>disruptions allowed");
    expect(page).toContain("<b>8</b>denied");
    expect(page).toContain("<b>1</b>fault injected");
    expect(page).toMatch(/system:garbage-collector<\/code><\/td><td class="n">0<\/td><td class="n">8/);
  });

  test("has a chart for each cluster and both", () => {
    expect(page.match(/<svg /g)).toHaveLength(4);
  });

  test("is a page even of nothing", () => {
    const nothing = new Recorder("nothing", []).finish("nothing was recorded", false, []);
    expect(reportPage(nothing)).toContain('class="verdict bad"');
  });
});

test("a promise above what is there is drawn apart until it is reached, and the page says why", () => {
  const samples = [10, 6, 8].map((total, index) => ({ atMs: index * 2000, available: [total, 0], total }));
  const promises = [
    { atMs: 0, pods: 8 },
    { atMs: 1000, pods: 5 },
    { atMs: 3000, pods: 8 },
  ];
  const page = reportPage({ ...RECORDING, samples, promises });
  expect(page.match(/<line class="promise rising"/g)).toHaveLength(1);
  expect(page.match(/<line class="promise"/g)).toHaveLength(3);
  expect(page).toContain("promised, but never reached yet: the workload was scaled up");
});

test("scenes and faults are numbered alike on charts and in the story", () => {
  expect(numbered(RECORDING.marks).map(({ text }) => text)).toEqual(["Accident", '$ kubectl delete pods --all "x"']);
});

test("marks at one moment share a label", () => {
  const marks = [1000, 1001, 1002, 8000].map((atMs) => ({ atMs, kind: "fault" as const, text: "x" }));
  const page = reportPage({ ...RECORDING, marks });
  expect(page).toContain(">1-3</text>");
  expect(page).toContain(">4</text>");
});

describe("what could be broken", () => {
  const samples = [10, 6, 8].map((total, index) => ({ atMs: index * 1000, available: [total], total }));
  test.each<
    [string, readonly (readonly [number, number | undefined])[], readonly (readonly [number, number, number])[]]
  >([
    ["a promise from the beginning", [[0, 8]], [[0, 3000, 8]]],
    [
      "one that ends",
      [
        [0, 8],
        [2500, undefined],
      ],
      [[0, 2500, 8]],
    ],
    [
      "one that is lowered counts at once",
      [
        [0, 8],
        [500, 5],
      ],
      [
        [0, 500, 8],
        [500, 3000, 5],
      ],
    ],
    [
      "one that is raised counts when it is reached",
      [
        [0, 5],
        [1500, 8],
      ],
      [
        [0, 1500, 5],
        [1500, 2000, 5],
        [2000, 3000, 8],
      ],
    ],
    [
      "one that is never reached never counts",
      [
        [0, 5],
        [1500, 9],
      ],
      [
        [0, 1500, 5],
        [1500, 3000, 5],
      ],
    ],
  ])("%s", (_, changes, expected) => {
    const promises = changes.map(([atMs, pods]) => ({ atMs, pods }));
    expect(
      floors({ promises, samples, durationMs: 3000 }).map(({ fromMs, toMs, pods }) => [fromMs, toMs, pods]),
    ).toEqual(expected);
  });
});

test("answers are counted where they came, also when a replica began anew", () => {
  const sum = { admitted: 0, refused: 0, busy: 0 };
  const bins = rates(
    [
      { atMs: 0, ...sum, admitted: 5 },
      { atMs: 900, ...sum, admitted: 7 },
      { atMs: 1500, ...sum, admitted: 1 },
      { atMs: 1900, ...sum, admitted: 4 },
    ],
    2000,
    2,
  );
  expect(bins.map(({ admitted }) => admitted)).toEqual([2, 3]);
});

test("many samples become few, and the lowest is among them", () => {
  const samples: Sample[] = Array.from({ length: 20_000 }, (_, index) => {
    const total = index === 12_345 ? 3 : 10;
    return { atMs: index, available: [total], total };
  });
  const kept = thinned(samples);
  expect(kept.length).toBeLessThanOrEqual(4000);
  expect(Math.min(...kept.map(({ total }) => total))).toBe(3);
});

test("a recorder keeps what changed", () => {
  const recorder = new Recorder("t", ["a", "b"]);
  for (const counts of [
    [1, 2],
    [1, 2],
    [0, 2],
  ])
    recorder.available(counts);
  for (const pods of [8, 8, undefined, 8]) recorder.promised(pods);
  const { samples, promises } = recorder.finish("", true, []);
  expect(samples.map(({ total }) => total)).toEqual([3, 2]);
  expect(promises.map(({ pods }) => pods)).toEqual([8, undefined, 8]);
});

test("who asked is read from the replicas' logs, whoever asked most first", () => {
  const line = (username: string, outcome: string): string => JSON.stringify({ msg: "Review", username, outcome });
  const lines = [
    line("drain", "busy"),
    line("gc", "denied"),
    line("gc", "denied"),
    line("me", "exempt"),
    line("me", "lowered"),
    '{"outcome": broken',
    "plain",
  ];
  expect(askersOf(lines)).toEqual([
    { name: "gc", admitted: 0, refused: 2, busy: 0 },
    { name: "drain", admitted: 0, refused: 0, busy: 1 },
    { name: "me", admitted: 1, refused: 0, busy: 0 },
  ]);
});
