/** The screens, from protectors as they are stored; the cluster tests run the commands themselves. */
import { describe, expect, test } from "vitest";
import { holdOf } from "../../shared/decide/state/hold.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { Condition, PodProtector } from "../../shared/schema/podprotector.ts";
import { formatMs } from "../../shared/schema/time.ts";
import { makeCell, makePod, makeProtector, NOW_MS } from "../../test/support/decide/fixtures.ts";
import { heldBucket } from "../../test/support/decide/quota-fixtures.ts";
import { packed } from "../../test/support/decide/settling-fixtures.ts";
import { answerOf, cellOfWebhookConfiguration, type DryRunResult } from "./disruption-dry-run.ts";
import { drainText, othersCordoned, planDrain } from "./drain.ts";
import { age, parseDuration, table } from "./invocation/output.ts";
import { statusDetail } from "./status.ts";
import { statusTable } from "./status-table.ts";
import { viewProtector } from "./view.ts";
import { explanationText, opinionOf } from "./why.ts";

const SECOND_MS = 1000;
const ONE = { minAvailable: 1 };

const admitted: DryRunResult = {
  verdict: "admitted",
  message: "",
  retryAfterSeconds: undefined,
  causes: [],
  warnings: [],
};
const beating = { heartbeatTime: formatMs(NOW_MS - 7 * SECOND_MS) };

function held(uid: string, secondsAgo: number): ReturnType<typeof heldBucket> {
  return heldBucket(uid, { podName: uid.replace("uid-", ""), startTime: formatMs(NOW_MS - secondsAgo * SECOND_MS) });
}

function named(protector: PodProtector, name: string): PodProtector {
  return { ...protector, metadata: { ...protector.metadata, name, namespace: "default" } };
}

test.each<[number | undefined, string]>([
  [undefined, "-"],
  [400, "0s"],
  [119_000, "119s"],
  [245_000, "4m5s"],
  [240_000, "4m"],
  [3_600_000, "60m"],
  [4 * 3_600_000 + 60_000, "4h1m"],
  [30 * 3_600_000, "30h"],
  [20 * 86_400_000, "20d"],
  [-30_000, "in 30s"],
])("an age of %s ms reads %s", (ms, text) => {
  expect(age(ms)).toBe(text);
});

test.each<[string, number | undefined]>([
  ["90s", 90_000],
  ["1h30m", 5_400_000],
  ["2d", 172_800_000],
  ["0s", undefined],
  ["1.5h", undefined],
  ["soon", undefined],
])("the time %s is %s ms", (text, ms) => {
  expect(parseDuration(text)).toBe(ms);
});

test("columns stay in line where characters take two columns of a terminal, or none", () => {
  const rows = [
    ["\u751f\u4ea7\u{1f680}", "a"],
    ["e\u0301t\u00e9", "b"],
  ];
  expect(table(["CLUSTER", "X"], rows)).toBe("CLUSTER   X\n\u751f\u4ea7\u{1f680}    a\ne\u0301t\u00e9       b\n");
});

test("columns are as wide as their longest cell, and nothing trails", () => {
  expect(table(["A", "LONG"], [["first", "x"]], "  ")).toBe("  A       LONG\n  first   x\n");
});

const healthy = makeProtector([makeCell("a", 3, [], beating)]);
const withMetadata = (metadata: Partial<PodProtector["metadata"]>): PodProtector => ({
  ...healthy,
  metadata: { ...healthy.metadata, ...metadata },
});
const source = { type: "SourceVanished", status: "True", reason: "SourceMissing", message: "" } as const;
const withCondition = (condition: Pick<Condition, "type" | "status" | "reason" | "message">): PodProtector => ({
  ...healthy,
  ...(healthy.status === undefined
    ? {}
    : { status: { ...healthy.status, conditions: [{ ...condition, lastTransitionTime: formatMs(NOW_MS) }] } }),
});
const vanished = withCondition(source);

describe("status", () => {
  const cases: readonly (readonly [string, PodProtector, string])[] = [
    ["ok", makeProtector([makeCell("a", 3, [], beating)]), "ok"],
    ["one that warns", makeProtector([makeCell("a", 2, [], beating)], { enforcement: "Warn" }), "only warns"],
    ["one that is off", makeProtector([makeCell("a", 2, [], beating)], { enforcement: "Off" }), "suspended"],
    ["at the minimum", makeProtector([makeCell("a", 2, [], { ...beating, totalReplicas: 3 })]), "at minimum"],
    ["reserved", makeProtector([makeCell("a", 3, [held("uid-x", 4)], beating)]), "busy"],
    ["too few", makeProtector([makeCell("a", 1, [], { ...beating, totalReplicas: 3 })]), "below minimum"],
    ["more promised than there are", makeProtector([makeCell("a", 1, [], beating)]), "below minimum"],
    ["of no pod", makeProtector([makeCell("a", 0, [], beating)]), "no pods match"],
    ["scaled to zero", makeProtector([makeCell("a", 0, [], beating)], { minAvailable: 0 }), "ok"],
    ["one of two", makeProtector([makeCell("a", 1, [], { ...beating, totalReplicas: 2 })], ONE), "at minimum"],
    ["deleted itself", withMetadata({ deletionTimestamp: formatMs(NOW_MS) }), "being deleted"],
    ["without its workload", vanished, "workload vanished"],
    ["of a deletion that waits", withCondition({ ...source, type: "SourceDeleting" }), "waits to be deleted"],
    ["as many promised as there are", makeProtector([makeCell("a", 2, [], beating)]), "no disruption possible"],
    ["on hold", makeProtector([makeCell("a", 3, [], { ...beating, hold: "Restored/x" })]), "cell on hold"],
    ["silent", makeProtector([makeCell("a", 3, [], { heartbeatTime: formatMs(NOW_MS - 400_000) })]), "cell stale"],
    ["idle", makeProtector([makeCell("a", 3, [], { heartbeatTime: formatMs(NOW_MS - 140_000) })]), "ok"],
    ["never counted", makeProtector([]), "not counted"],
    ["suspended", makeProtector([makeCell("a", 0, [], beating)], { suspend: { enabled: true } }), "suspended"],
    [
      "suspended until before now",
      makeProtector([makeCell("a", 3, [], beating)], { suspend: { enabled: true, until: formatMs(NOW_MS - 1) } }),
      "ok",
    ],
  ];
  test.each(cases)("a protector that is %s says so", (_, protector, state) => {
    expect(viewProtector(protector, NOW_MS).state).toBe(state);
  });

  test("the table has a line for each", () => {
    const views = [
      viewProtector(named(makeProtector([makeCell("a", 4, [held("uid-x", 30)], beating)]), "web"), NOW_MS),
    ];
    expect(statusTable(views, { allNamespaces: true, isWide: false })).toBe(
      [
        "NAMESPACE   NAME   REQUIRED   AVAILABLE   RESERVED   ALLOWED   CELLS   OLDEST   STATE",
        "default     web    2          4/4         1          1         1/1     30s      ok",
        "",
      ].join("\n"),
    );
    expect(statusTable(views, { allNamespaces: false, isWide: false })).toMatch(/^NAME {3}/);
  });

  test("the details name who holds quota, the oldest first", () => {
    const buckets = [held("uid-new", 5), held("uid-old", 65)];
    const text = statusDetail(viewProtector(named(makeProtector([makeCell("a", 5, buckets, beating)]), "web"), NOW_MS));
    expect(text).toMatch(/Allowed: +1 disruption now/);
    expect(text).toMatch(/old +DELETE +1 +65s ago[\s\S]*new +DELETE +1 +5s ago/);
    expect(text).toMatch(/a +5\/5 +2 +7s +/);
  });
});

describe("why", () => {
  const pod = makePod("web-1");
  const protector = named(makeProtector([makeCell("a", 3, [held("uid-web-0", 12)], beating)]), "web");

  function explain(answer: DryRunResult, target: PodProtector = protector, isUnprotected = false): string {
    const others = [pod, makePod("web-2", { readyForSeconds: undefined }), makePod("web-3", { terminating: true })];
    const opinions = [opinionOf(target, pod, "delete", "a", others, NOW_MS)];
    return explanationText({ kind: "delete", pod, cluster: "worker", cell: "a", answer, opinions, isUnprotected });
  }

  test("names who holds the quota, since when, and who is missing", () => {
    const text = explain({ ...admitted, verdict: "refused", message: "this passes by itself", retryAfterSeconds: 1 });
    expect(text).toContain("no: it would be denied now; this passes by itself");
    expect(text).toMatch(/a +web-0 +DELETE +1 +12s ago/);
    expect(text).toMatch(/web-2 +not ready/);
    expect(text).toMatch(/web-3 +terminating/);
  });

  test("names no reservation of the pod itself, and those of its predecessor and its namesake in another cell", () => {
    const buckets = [
      held("uid-web-1", 12),
      { ...held("uid-before", 12), podName: "web-1" },
      { ...held("uid-web-2", 12), podName: "web-2" },
    ];
    const namesake = { ...held("uid-b", 12), podName: "web-1" };
    const protector = named(makeProtector([makeCell("a", 5, buckets), makeCell("b", 5, [namesake])]), "web");
    const { holders } = opinionOf(protector, pod, "delete", "a", [], NOW_MS);
    expect(holders.map(({ uid }) => uid)).toEqual(["uid-before", "uid-web-2", "uid-b"]);
  });

  test.each([
    ["a", []],
    ["b", ["web-1"]],
    [undefined, []],
  ] as const)("takes a packed record with the pod's name in cell %s for its own", (cell, names) => {
    const protector = named(
      makeProtector([makeCell("a", 5, packed([held("uid-web-1", 12)])), makeCell("b", 5)]),
      "web",
    );
    const { holders } = opinionOf(protector, pod, "delete", cell, [], NOW_MS);
    expect(holders.map((holder) => holder.pod)).toEqual(names);
  });

  test.each([
    ["alone", []],
    ["beside that of the pod, in packed form", packed([held("uid-web-1", 3)])],
    ["beside that of the pod", [held("uid-web-1", 3)]],
  ])("names a packed reservation of its predecessor of the same name, %s", (_, own) => {
    const before = packed([{ ...held("uid-before", 12), podName: "web-1" }]);
    const protector = named(makeProtector([makeCell("a", 5, [...before, ...own])]), "web");
    const { holders } = opinionOf(protector, pod, "delete", "a", [], NOW_MS);
    expect(holders.map((holder) => [holder.pod, holder.firstAgeMs])).toEqual([["web-1", 12_000]]);
  });

  test("names no pod as missing that has ended, and those that are not Ready for long enough", () => {
    const ended = Array.from({ length: 20 }, (_, index) => makePod(`old-${index}`, { phase: "Failed" }));
    const others = [
      ...ended,
      makePod("web-2", { readyForSeconds: undefined }),
      makePod("web-3", { readyForSeconds: 5 }),
    ];
    const patient = named(makeProtector([makeCell("a", 2)], { minReadySeconds: 60 }), "web");
    const { unavailable } = opinionOf(patient, pod, "delete", "a", others, NOW_MS);
    expect(unavailable).toEqual([
      { pod: "web-2", why: "not ready" },
      { pod: "web-3", why: "ready for less than 60s" },
    ]);
  });

  test("says nothing of others where the protector agrees", () => {
    const text = explain(admitted, named(makeProtector([makeCell("a", 4, [held("uid-web-0", 12)], beating)]), "web"));
    expect(text).toContain("agrees: there is quota");
    expect(text).not.toContain("Held by");
  });

  test("begins with what is worse than any answer: nobody is asked", () => {
    expect(explain(admitted, protector, true)).toMatch(
      /^UNPROTECTED: worker does not call the webhook before pods of namespace default/,
    );
  });

  test("tells of a cell that can't be relied on", () => {
    const stale = { heartbeatTime: formatMs(NOW_MS - 600_000) };
    const text = explain(
      { ...admitted, verdict: "refused" },
      named(makeProtector([makeCell("a", 1, [], stale)]), "web"),
    );
    expect(text).toContain("Cell a is stale; its last heartbeat was 10m ago");
  });

  test("does not say that it passes where another cell is gone, and names its removal", () => {
    const gone = { hold: holdOf("CoreRestored", "x", NOW_MS - 600_000), heartbeatTime: formatMs(NOW_MS - 600_000) };
    const target = named(makeProtector([makeCell("a", 1, [], beating), makeCell("b", 2, [], gone)]), "web");
    const message = "it may once that aggregator writes again";
    const text = explain({ ...admitted, verdict: "refused", message, retryAfterSeconds: 1 }, target);
    expect(text).toMatch(/no: it would be denied now$/m);
    expect(text).toContain(
      "Cell b is on hold for 10m; its last heartbeat was 10m ago\n" +
        "    The etcd of the core was restored to an older state. The hold should have ended after the settle period " +
        "(75 s), and does not: docs/runbooks/PodseidonCellOnHold.md.\n" +
        "    If b is gone for good: kubectl podseidon remove-cell b --all-namespaces\n",
    );
    const uncounted = { ...gone, heartbeatTime: undefined, resourceVersion: undefined, lastEventTime: undefined };
    const lost = named(makeProtector([makeCell("a", 1, [], beating), makeCell("b", 0, [], uncounted)]), "web");
    expect(explain({ ...admitted, verdict: "refused" }, lost)).toMatch(
      /Cell b is on hold for 10m; it has sent no heartbeat\n.*\n {4}If b is gone for good: .* remove-cell b /,
    );
    const reserved = { cellID: "b", admissionHistory: { buckets: [held("uid-web-2", 600)] } };
    const unheld = named(makeProtector([makeCell("a", 3, [], beating), reserved]), "web");
    expect(explain({ ...admitted, verdict: "refused" }, unheld)).toMatch(
      /Cell b is not counted; it has sent no heartbeat\n {4}If b is gone for good: kubectl podseidon remove-cell b /,
    );
    const own = named(makeProtector([makeCell("a", 1, [], gone)]), "web");
    expect(explain({ ...admitted, verdict: "refused" }, own)).not.toContain("remove-cell");
  });

  test("does not guess the cell where there are several", () => {
    const two = named(makeProtector([makeCell("a", 3, []), makeCell("b", 3, [])]), "web");
    expect(opinionOf(two, pod, "delete", undefined, [], NOW_MS)).toMatchObject({ allowed: undefined });
  });
});

describe("drain-check", () => {
  const pods = ["web-0", "web-1", "web-2"].map((name) => ({ pod: makePod(name), answer: admitted }));

  test("pods that find no quota after the others wait", () => {
    const lines = planDrain(pods, [named(makeProtector([makeCell("a", 4)], { minAvailable: 2 }), "web")], "a", NOW_MS);
    expect(lines.map(({ together }) => together)).toEqual(["goes", "goes", "waits"]);
    expect(drainText("node-1", lines, 1)).toContain(
      "2 pods can go at once, 1 waits until others have taken over, 0 can't go as things are, 1 stay",
    );
  });

  test("a promise of as many pods as there are never lets one go", () => {
    const lines = planDrain(pods, [named(makeProtector([makeCell("a", 3)], { minAvailable: 3 }), "web")], "a", NOW_MS);
    expect(lines.every(({ together }) => together === "never")).toBe(true);
    expect(lines[0]?.why).toMatch(/^web needs 3 of 3: unless pods are missing or being replaced, promise less: /);
  });

  test("a promise whose workload is gone is given up, not lowered", () => {
    const vanished = named(makeProtector([makeCell("a", 3)], { minAvailable: 3 }), "web");
    const condition = { type: "SourceVanished", status: "True", reason: "x", message: "x", lastTransitionTime: "" };
    if (vanished.status !== undefined) vanished.status.conditions = [condition];
    const [line] = planDrain(pods, [vanished], "a", NOW_MS);
    expect(line?.why).toContain("its source is gone: create it again, or give it up by kubectl podseidon release web ");
  });

  test("of several protectors the one that never lets the pod go decides", () => {
    const passing = named(makeProtector([makeCell("a", 4, [held("uid-web-9", 10)])], { minAvailable: 3 }), "web");
    const never = named(makeProtector([makeCell("a", 4)], { minAvailable: 4 }), "zone");
    const together = (...protectors: PodProtector[]) => planDrain(pods, protectors, "a", NOW_MS)[0]?.together;
    expect([together(passing), together(never), together(passing, never)]).toEqual(["waits", "never", "never"]);
  });

  const preActivity = makePod("web-0", { annotations: { "pre-activity.xpdb.form3.tech/backup": "" } });
  const hold = holdOf("CoreRestored", "x", NOW_MS);

  test.each<[string, PodProtector, Pod, string]>([
    ["its cell is not counted yet", makeProtector([]), makePod("web-0"), "no aggregator has counted this cell yet"],
    ["its cell is on hold", makeProtector([makeCell("a", 4, [], { hold })]), makePod("web-0"), "on hold"],
    ["a pre-activity holds it back", makeProtector([makeCell("a", 4)]), preActivity, "a pre-activity annotation"],
  ])("a pod waits, and why says for what: %s", (_, protector, pod, why) => {
    const pods = [{ pod, answer: { ...admitted, verdict: "refused" } as const }];
    const [line] = planDrain(pods, [named(protector, "web")], "a", NOW_MS);
    expect(line).toMatchObject({ together: "waits", why: expect.stringContaining(why) });
  });

  test("a pod that something else than a protector holds back does not go, nor does it take from the quota", () => {
    const message = "Cannot evict pod as it would violate the pod's disruption budget.";
    const refused = { ...admitted, verdict: "refused", message } as const;
    const held = [makePod("alone", { labels: {} }), makePod("web-9")].map((pod) => ({ pod, answer: refused }));
    const protector = named(makeProtector([makeCell("a", 4)], { minAvailable: 2 }), "web");
    const lines = planDrain([...held, ...pods.slice(1)], [protector], "a", NOW_MS);
    expect(lines.map(({ together }) => together)).toEqual(["waits", "waits", "goes", "goes"]);
    expect(lines[0]).toMatchObject({ now: "refused", why: message });
  });

  test.each<[string, readonly (readonly [name: string, unschedulable?: boolean])[], boolean]>([
    ["every other node is cordoned", [["node-1"], ["node-2", true], ["node-3", true]], true],
    ["one takes pods", [["node-1", true], ["node-2", true], ["node-3"]], false],
    ["there is no other", [["node-1", true]], false],
  ])("replacements have no node where every other is cordoned: %s", (_, nodes, expected) => {
    const raw = nodes.map(([name, unschedulable]) => ({ metadata: { name }, spec: { unschedulable } }));
    const lines = planDrain(pods, [named(makeProtector([makeCell("a", 4)], { minAvailable: 2 }), "web")], "a", NOW_MS);
    const cordoned = othersCordoned("node-1", raw);
    expect(cordoned).toBe(expected);
    expect(drainText("node-1", lines, 0, cordoned).includes("Every other node is cordoned")).toBe(expected);
  });

  test("a webhook that does not answer is not guessed at", () => {
    const silent = { ...admitted, verdict: "unanswered", message: "failed calling webhook" } as const;
    const [line] = planDrain([{ pod: makePod("web-0"), answer: silent }], [], "a", NOW_MS);
    expect(line).toMatchObject({ together: "unknown", why: "failed calling webhook" });
  });
});

describe("the apiserver's answer to a dry run", () => {
  const status = (code: number, rest: object = {}): string =>
    JSON.stringify({ kind: "Status", code, message: `m${code}`, ...rest });
  test.each<[string, number, string, object]>([
    ["admitted", 201, status(201), { verdict: "admitted" }],
    ["a page to log in", 200, "<html>", { verdict: "unanswered", message: "HTTP 200: <html>" }],
    ["busy", 429, status(429, { details: { retryAfterSeconds: 1 } }), { verdict: "refused", retryAfterSeconds: 1 }],
    ["denied", 429, status(429), { verdict: "refused", retryAfterSeconds: undefined, message: "m429" }],
    ["webhook down", 500, status(500), { verdict: "unanswered" }],
    ["forbidden", 403, status(403), { verdict: "rejected", message: "m403" }],
    ["no Status", 502, "<html>", { verdict: "unanswered", message: "HTTP 502: <html>" }],
  ])("%s", (_, code, body, expected) => {
    expect(answerOf({ status: code, headers: {}, body })).toMatchObject(expected);
  });

  test("its warnings are read, quotes and all", () => {
    const headers = { warning: '299 - "first \\"one\\"", 299 - "second"' };
    expect(answerOf({ status: 200, headers, body: "{}" }).warnings).toEqual(['first "one"', "second"]);
  });
});

test.each<[string, unknown, string | undefined]>([
  ["a Service", { webhooks: [{ name: "a", clientConfig: { service: { path: "/webhook/worker-1" } } }] }, "worker-1"],
  ["a URL", { webhooks: [{ name: "a", clientConfig: { url: "https://host:1/webhook/a%20b" } }] }, "a b"],
  ["nothing", { webhooks: [] }, undefined],
  ["no object", undefined, undefined],
])("the cell of a webhook configuration by %s", (_, raw, cell) => {
  expect(cellOfWebhookConfiguration(raw)).toBe(cell);
});
