import { expect, test } from "vitest";
import { formatMs } from "../../../shared/schema/time.ts";
import { makeCell, makeProtector, NOW_MS } from "../../../test/support/decide/fixtures.ts";
import { newestHeartbeats, staleCells } from "./heartbeats.ts";

const at = (heartbeatTime: string) => makeProtector([makeCell("a", 1, [], { heartbeatTime })]);

test.each([
  ["in the order of writing", formatMs(NOW_MS - 5000), formatMs(NOW_MS - 1000)],
  ["in another order", formatMs(NOW_MS - 1000), formatMs(NOW_MS - 5000)],
  ["of whole seconds", new Date(NOW_MS - 1000).toISOString().replace(/\.\d+Z$/, "Z"), formatMs(NOW_MS - 1500)],
  ["of the same second", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.500000Z"],
  ["of another zone", "2026-01-01T00:00:00.000000+01:00", new Date(NOW_MS - 1000).toISOString()],
])("a cell's heartbeat is the newest of all protectors: %s", (_, one, other) => {
  const upstream = makeProtector([makeCell("upstream", 1)]);
  const newest = newestHeartbeats([at(one), at(other), upstream]);
  expect([...newest]).toEqual([["a", Math.max(Date.parse(one), Date.parse(other))]]);
});

test("a cell is stale whose newest heartbeat is older than asked for", () => {
  const cells = [-2, -1, 0].map((ms, index) =>
    makeCell("abc".charAt(index), 1, [], { heartbeatTime: formatMs(NOW_MS + ms) }),
  );
  expect([...staleCells([makeProtector([...cells, makeCell("upstream", 1)])], NOW_MS - 1)]).toEqual(["a"]);
});
