import { describe, expect, test, vi } from "vitest";
import { countPods } from "../../shared/decide/availability/availability.ts";
import { decide } from "../../shared/decide/quota.ts";
import { holdOf } from "../../shared/decide/state/hold.ts";
import { parseProtector } from "../../shared/decide/state/protector-state.ts";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { CellStatus, PodProtector, PodProtectorSpec } from "../../shared/schema/podprotector.ts";
import { formatMs } from "../../shared/schema/time.ts";
import { makeCell, makePod, makeProtector, makeRequest, NOW_MS } from "../../test/support/decide/fixtures.ts";
import type { Denial } from "../reserve/verdict.ts";
import { type DenialContext, isHeldUp } from "./denial-outlook.ts";
import { denyStatus } from "./deny-status.ts";

const CONTEXT: DenialContext = {
  ownNamespace: "podseidon-system",
  hasSeveralCores: false,
  settleMs: 75_000,
  nowMs: NOW_MS,
};

const NO_PODS = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };

/** What a client reads about the deletion of pod x in cell a. */
function textOf(cells: CellStatus[], spec: Partial<PodProtectorSpec> = {}, context = CONTEXT): string {
  return textBy(makeProtector(cells, spec), context);
}

function textBy(object: PodProtector, context = CONTEXT): string {
  const state = parseProtector(object);
  const decision = decide(state, makeRequest(makePod("x")));
  if (decision.allowed) throw new Error(decision.reason);
  const version = { object, state, version: "1", uid: "u", receivedMs: 0, sentMs: 0 };
  const denial = {
    protector: { core: "core", namespace: "default", name: "web" },
    decision: { kind: "denied", decision, version },
  };
  return denyStatus({ operation: "DELETE", namespace: "default", pod: "x" }, [denial as Denial], context).message;
}

const reserved = { startTime: formatMs(NOW_MS), podUID: "y", podName: "y", operation: "DELETE", paid: true } as const;
const heard = (secondsAgo: number): object => ({ heartbeatTime: formatMs(NOW_MS - secondsAgo * 1000) });

describe("the text of a denial", () => {
  test("ends with the next command, and names the core only where there are several", () => {
    const text = textOf([makeCell("a", 2, [], { totalReplicas: 3 })]);
    expect(text).toMatch(/^pod default\/x may not be deleted now: PodProtector default\/web needs 2 /);
    expect(text).toMatch(/; try again when more pods are available\. More: kubectl podseidon why x -n default$/);
    expect(textOf([makeCell("a", 2)], {}, { ...CONTEXT, hasSeveralCores: true })).toContain(
      "default/web (core core) needs",
    );
  });

  test.each<[string, CellStatus, string]>([
    ["reserved by others", makeCell("a", 3, [reserved]), "this passes by itself, try again in a second."],
    [
      "never counted",
      makeCell("b", 3),
      "it may once they are counted: kubectl podseidon doctor says whether they are.",
    ],
    ["on hold", makeCell("a", 3, [], { hold: "Gone/1" }), "the hold ends by itself."],
    [
      "as many pods as promised",
      makeCell("a", 2, [], { totalReplicas: 2 }),
      "no more pods match than must be available: unless pods are missing or being replaced, promise less: in the " +
        "budget or PodProtector that people wrote, else annotate the workload with " +
        "podseidon.kubewharf.io/max-unavailable=1, and lower its min-available and min-running, if any.",
    ],
  ])("says what passes by itself, and what does not: %s", (_, cell, advice) => {
    expect(textOf([cell])).toContain(`; ${advice}`);
  });

  test.each([
    ["a moment ago", [1], "this passes by itself, try again in a second."],
    ["a minute ago", [60], "this passes by itself within minutes."],
    ["a minute ago and again since", [60, 1], "this passes by itself within minutes."],
  ])("does not call for patience of a second where what holds the quota was allowed %s", (_, secondsAgo, advice) => {
    const at = (seconds: number): string => formatMs(NOW_MS - seconds * 1000);
    const [first = 0, last = first] = secondsAgo;
    const held = { ...reserved, firstTime: at(first), startTime: at(last) };
    expect(textOf([makeCell("a", 3, [held])])).toContain(`; ${advice}`);
  });

  test("does not ask to promise less where pods are missing, as of a workload whose quota is used up", () => {
    const text = textOf([makeCell("a", 1, [], { totalReplicas: 1 })]);
    expect(text).toContain("needs 2 available pods, 1 is available");
    expect(text).toContain("unless pods are missing or being replaced, promise less");
  });

  test.each(["generic-garbage-collector", "namespace-controller"])(
    "does not ask to promise less where the owner is deleted: each pod less would go for good (%s)",
    (who) => {
      const cells = [makeCell("a", 2, [], { totalReplicas: 2 })];
      const username = `system:serviceaccount:kube-system:${who}`;
      expect(textOf(cells, {}, { ...CONTEXT, username })).toContain(
        "; its owner or namespace is deleted. Nobody replaces it: create the workload again, or end the " +
          "promise. More: ",
      );
      expect(textOf(cells, {}, { ...CONTEXT, username: "alice" })).toContain("promise less");
    },
  );

  /** Of a Deployment's protector with this condition, where as many pods are promised as there are. */
  function textWhere(type: string, isTrue: "True" | "False"): string {
    const { metadata, ...protector } = makeProtector([makeCell("a", 2, [], { totalReplicas: 2 })]);
    const labels = { "podseidon.kubewharf.io/source-kind": "Deployment" };
    const condition = { type, status: isTrue, reason: "x", message: "x", lastTransitionTime: formatMs(NOW_MS) };
    const status = { cells: [], summary: NO_PODS, ...protector.status, conditions: [condition] };
    return textBy({ ...protector, metadata: { ...metadata, labels }, status });
  }

  test.each([
    ["SourceVanished", "its Deployment is gone: create it again, or give it up by"],
    ["SourceDeleting", "its Deployment is being deleted: scale it to zero, or give it up by"],
  ])("names no annotation of a workload that is not there any more: %s", (type, advice) => {
    expect(textWhere(type, "True")).toContain(
      `; no more pods match than must be available, and ${advice} kubectl podseidon release web -n default. More: `,
    );
  });

  test.each(["SourceVanished", "SourceDeleting"])("names the annotation where %s is over", (type) => {
    expect(textWhere(type, "False")).toContain("must be available: unless pods are missing or being replaced, promise");
  });

  test("does not call a promise impossible while a StatefulSet waits for its terminating pod to be gone", () => {
    const pods = [makePod("web-0", { terminating: true }), makePod("web-1"), makePod("web-2")];
    const { counts } = countPods(pods, parseProtector(makeProtector([])).spec, NOW_MS);
    expect(counts).toMatchObject({ total: 2, available: 2 });
    const text = textOf([makeCell("a", counts.available, [], { totalReplicas: counts.total })]);
    expect(text).toContain("needs 2 available pods, 2 are available");
    expect(text).toContain("unless pods are missing or being replaced,");
  });

  test.each([
    ["of now", holdOf("Gone", "x", NOW_MS - 34_000), "on hold until about 12:00:41 UTC (41 s), because its admission"],
    ["that should have ended", holdOf("Gone", "x", NOW_MS - 80_000), "on hold, because its admission history"],
    ["of the future", holdOf("Gone", "x", NOW_MS + 80_000), "on hold, because its admission history"],
    ["without a time", "Gone/x", "on hold, because its admission history may have been lost; the hold ends by itself."],
  ])("says until when a hold lasts: %s", (_, hold, text) => {
    expect(textOf([makeCell("a", 3, [], { hold })])).toContain(text);
  });

  test("the reservations of one version are looked through once, however many requests it denies", () => {
    const version = new ProtectorVersion(makeProtector([makeCell("a", 2, [reserved])]), 0);
    const ledger = version.state.cells.get("a")?.ledger;
    const decision = decide(version.state, makeRequest(makePod("x")));
    if (ledger === undefined || decision.allowed) throw new Error("nothing is denied");
    const looks = vi.spyOn(ledger, "reservations");
    const denied = { kind: "denied", decision, version } as const;
    for (let request = 0; request < 3; request++) expect(isHeldUp(denied, CONTEXT)).toBe(false);
    expect(isHeldUp(denied, { ...CONTEXT, nowMs: NOW_MS + 11_000 })).toBe(true);
    expect(looks).toHaveBeenCalledTimes(1);
  });

  test("the cells of no more protectors are looked through than are listed, however many deny", () => {
    let looked = 0;
    const values = (): Iterator<never> => {
      looked++;
      return [].values();
    };
    const decision = { allowed: false, kind: "Denial", cause: "ConcurrentLag", facts: {} };
    const denials = Array.from({ length: 5_000 }, (_, index) => ({
      protector: { core: "core", namespace: "default", name: `web-${index}` },
      decision: { kind: "denied", decision, version: { state: { cells: { values } } } },
    }));
    denyStatus({ operation: "DELETE", namespace: "default", pod: "x" }, denials as unknown as Denial[], CONTEXT);
    expect(looked).toBeLessThanOrEqual(100);
  });

  test("the hold of another cell is not that of this one", () => {
    const held = (secondsAgo: number) => ({ hold: holdOf("Gone", "x", NOW_MS - secondsAgo * 1000) });
    const cells = [makeCell("a", 3, [], held(70)), makeCell("b", 3, [], held(5))];
    expect(textOf(cells, {}, { ...CONTEXT, cell: "a" })).toContain("(5 s)");
  });

  test("names an aggregator that is silent, and does not promise that this passes by itself", () => {
    const text = textOf([makeCell("a", 3, [reserved], heard(185))]);
    // The alert that fires then.
    expect(text).toContain("the aggregator of a has been silent for 3m5s (see PodseidonCellStale); it may once that");
    expect(textOf([makeCell("a", 3, [reserved], heard(120))])).not.toContain("silent");
  });

  test("names some of the cells of a large fleet that are silent, and counts the others", () => {
    const cells = Array.from({ length: 50 }, (_, index) => makeCell(`region-${index}`, 3, [], heard(3_600)));
    const text = textOf([makeCell("a", 2, [], heard(1)), ...cells], { minAvailable: 200 }, { ...CONTEXT, cell: "a" });
    expect(text.match(/the aggregator of region-\d+ has been silent/g)).toHaveLength(5);
    expect(text).toContain(", and 45 more cells are stuck; ");
  });

  describe("where the spare pods are in another cell that is on hold", () => {
    const hold = (secondsAgo: number) => holdOf("CoreRestored", "x", NOW_MS - secondsAgo * 1000);
    const text = (held: object) =>
      textOf([makeCell("a", 2, [], heard(1)), makeCell("b", 3, [], held)], {}, { ...CONTEXT, cell: "a" });
    const REMOVAL = "if b is gone for good: kubectl podseidon remove-cell b --all-namespaces.";

    test("waits for that cell, which takes no second", () => {
      expect(text({ hold: hold(30), ...heard(40) })).toContain(
        "0 of them reserved by disruptions that are not accounted for yet; it may once those cells are counted again:",
      );
    });

    test("names the namespace that podseidon runs in, where it is another one", () => {
      const cells = [makeCell("a", 2, [], heard(1)), makeCell("b", 3, [], { hold: hold(200), ...heard(210) })];
      const context = { ...CONTEXT, cell: "a", ownNamespace: "elsewhere" };
      expect(textOf(cells, {}, context)).toContain(
        "kubectl podseidon remove-cell b --all-namespaces --system-namespace elsewhere.",
      );
    });

    test("names the removal of a cell that is silent", () => {
      expect(text({ hold: hold(200), ...heard(210) })).toContain(
        `silent for 3m30s (see PodseidonCellStale); it may once that aggregator writes again, or, ${REMOVAL}`,
      );
    });

    test("names the removal of a cell whose hold has outlasted several settle periods", () => {
      expect(text({ hold: hold(301) })).toContain(
        `cell b has been on hold for 5m1s (see PodseidonCellOnHold); it may once that hold ends, or, ${REMOVAL}`,
      );
      expect(text({ hold: hold(299) })).not.toContain("has been on hold");
    });
  });

  describe("where a cell that was lost with the protector has reservations, and no hold", () => {
    const text = (secondsAgo: number): string => {
      const bucket = { ...reserved, startTime: formatMs(NOW_MS - secondsAgo * 1000) };
      const lost = { cellID: "b", admissionHistory: { buckets: [bucket] } };
      const spec = { admissionHistoryConfig: { maxConcurrentLag: 1 } };
      return textOf([makeCell("a", 4, [], heard(1)), lost], spec, { ...CONTEXT, cell: "a" });
    };

    test("does not say that these pass by themselves, and names its removal", () => {
      expect(text(301)).toContain(
        "may be under way at once, and cell b has not been counted for 5m1s (see PodseidonCellStale); it may once " +
          "that aggregator writes again, or, if b is gone for good: kubectl podseidon remove-cell b --all-namespaces.",
      );
    });

    test("gives its aggregator the time to count", () => {
      expect(text(299)).toContain("this passes by itself within minutes.");
    });

    test("does not call a cell silent that is counted, however old its reservations are", () => {
      const bucket = { ...reserved, startTime: formatMs(NOW_MS - 3_600_000) };
      const counted = makeCell("b", 0, [bucket], { totalReplicas: 1 });
      const text = textOf([makeCell("a", 2), counted], {}, { ...CONTEXT, cell: "a" });
      expect(text).toContain("at the minimum; try again when more pods are available.");
    });
  });

  test("the hold of the own cell that does not end is not said to end by itself", () => {
    const hold = holdOf("Gone", "x", NOW_MS - 301_000);
    expect(textOf([makeCell("a", 3, [], { hold, ...heard(1) })], {}, { ...CONTEXT, cell: "a" })).toContain(
      "cell a has been on hold for 5m1s (see PodseidonCellOnHold); it may once that hold ends. More:",
    );
  });
});
