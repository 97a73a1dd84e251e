import { expect, test } from "vitest";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { drawTimeout, LIST_REASONS, listFloor } from "./reflector-options.ts";

test("a watch is asked for 5, 6 or 7 s, and a LIST is sent 2.3 s before its end", () => {
  const ports = new VirtualTime({ seed: 7 });
  const drawn = Array.from({ length: 100 }, () => drawTimeout({ ports }));
  const different = new Map(drawn.map(({ timeoutSeconds, listAfterMs }) => [timeoutSeconds, listAfterMs]));
  expect([...different].sort()).toEqual([5, 6, 7].map((seconds) => [seconds, seconds * 1000 - 2300]));
});

test("a list that has to show the present state is a quorum read; any other is not older than what is known", () => {
  const quorum = LIST_REASONS.filter((reason) => listFloor(reason, "9") === undefined);
  expect(quorum).toEqual(["versionWentBack", "unconfirmed", "missedEvent"]);
  expect([listFloor("expired", "9"), listFloor("expired", "abc"), listFloor("first", undefined)]).toEqual([
    ...["9", undefined, undefined],
  ]);
});
