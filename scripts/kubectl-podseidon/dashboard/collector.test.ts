import { expect, test } from "vitest";
import {
  page,
  ScriptedStream,
  ScriptedTransport,
  statusAnswer,
} from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { Board } from "./board.ts";
import { Collector } from "./collector.ts";

const FORBIDDEN = statusAnswer(403, { reason: "Forbidden" });

test("protectors that the user may not watch any more are stale, as the page shows no newer ones", async () => {
  const [time, transport, stream] = [new VirtualTime(), new ScriptedTransport(), new ScriptedStream()];
  transport.lists.push(page("10", []), page("10", []), ...Array(20).fill(FORBIDDEN));
  transport.confirmations.push(...Array(20).fill(FORBIDDEN));
  transport.watches.push(stream, new ScriptedStream(), ...Array(20).fill(FORBIDDEN));
  const client = { name: "core", transport };
  const collector = new Collector({ core: 0, client, namespace: undefined, ports: time, board: new Board(0) });
  collector.start();
  await time.advance(1_000);
  expect(collector.states().map(({ what, state }) => [what, state])).toEqual([
    ["protectors", "live"],
    ["Events", "live"],
  ]);
  stream.end();
  await time.advance(10_000);
  expect(collector.states()).toMatchObject([
    { state: "stale", why: expect.stringContaining("403") },
    { state: "live" },
  ]);
  await collector.stop();
});
