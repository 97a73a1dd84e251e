/** What `doctor` makes of the cells that protectors name. */
import { describe, expect, test } from "vitest";
import { holdOf } from "../../../shared/decide/state/hold.ts";
import type { Aggregation } from "../../../shared/schema/podprotector.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { makeCell, makeProtector, NOW_MS } from "../../../test/support/decide/fixtures.ts";
import { heldBucket } from "../../../test/support/decide/quota-fixtures.ts";
import { viewProtector } from "../view.ts";
import { cellFindings, type Finding } from "./findings.ts";

/** `level check: found` */
function line({ level, check, found }: Finding): string {
  return `${level} ${check}: ${found}`;
}

describe("cells", () => {
  const cell = (aggregation: Partial<Aggregation>): Finding | undefined => {
    const view = viewProtector(makeProtector([makeCell("a", 3, [], aggregation)]), NOW_MS);
    return cellFindings([view])[0];
  };
  test.each<[string, Partial<Aggregation>, string]>([
    ["alive", { heartbeatTime: formatMs(NOW_MS - 9000) }, "ok cell a: counted in 1 protector, heartbeat 9s ago"],
    ["silent", { heartbeatTime: formatMs(NOW_MS - 600_000) }, "problem cell a: no heartbeat for 10m"],
    [
      "lost with its protector",
      {
        hold: holdOf("Restored", "x", NOW_MS - 600_000),
        resourceVersion: undefined,
        lastEventTime: undefined,
        epoch: undefined,
      },
      "problem cell a: no heartbeat for 10m",
    ],
    [
      "of a clock that is ahead",
      { heartbeatTime: formatMs(NOW_MS + 30_000) },
      "warning cell a: its heartbeat is 30s ahead",
    ],
    ["on hold", { heartbeatTime: formatMs(NOW_MS), hold: "Restored/x" }, "warning cell a: on hold in 1 protector"],
    ["of upstream", {}, "ok cell a: counted in 1 protector, heartbeat not sent"],
  ])("%s", (_, aggregation, expected) => {
    const found = cell(aggregation);
    expect(found === undefined ? undefined : line(found)).toBe(expected);
  });

  test.each([
    [600, "problem cell b: no heartbeat for 10m"],
    [60, "ok cell b: counted in 1 protector, heartbeat not sent"],
  ])("lost with its protector, and without a hold, with a reservation of %i s ago", (secondsAgo, expected) => {
    const bucket = heldBucket("uid-y", { startTime: formatMs(NOW_MS - secondsAgo * 1000) });
    const lost = { cellID: "b", admissionHistory: { buckets: [bucket] } };
    const found = cellFindings([viewProtector(makeProtector([makeCell("a", 3), lost]), NOW_MS)])[1];
    expect(found && line(found)).toBe(expected);
  });

  test("counted by upstream's aggregator, which sends no heartbeat, and with old reservations", () => {
    const bucket = heldBucket("uid-y", { startTime: formatMs(NOW_MS - 600_000) });
    const found = cellFindings([viewProtector(makeProtector([makeCell("a", 3, [bucket])]), NOW_MS)]);
    expect(found.map(line)).toEqual(["ok cell a: counted in 1 protector, heartbeat not sent"]);
  });
});
