import { expect, test } from "vitest";
import { createLog } from "../../shared/observe/log.ts";
import { Metrics } from "../../shared/observe/metrics.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { generatorObserver } from "./observe.ts";

test("a thousand workloads whose protectors are refused, as by a quota, fill no log with their tries", async () => {
  const time = new VirtualTime();
  const lines: string[] = [];
  const log = createLog({ component: "generator", destination: { write: (line) => lines.push(line) } });
  const metrics = new Metrics();
  const { generator } = generatorObserver({ metrics, log, clock: time.clock, events: { record: () => {} } });
  const tryAll = (tag: string): void => {
    for (let index = 0; index < 1000; index++)
      generator({ kind: "failed", source: `deployment/shop/web-${index}`, tag, error: new Error("exceeded quota") });
  };
  tryAll("rejected");
  tryAll("unavailable");
  expect(lines).toHaveLength(2);
  await time.advance(10_000);
  tryAll("rejected");
  expect(lines).toHaveLength(3);
  expect(lines.at(-1)).toContain('"more":999');
  expect((await metrics.render()).body).toContain('podseidon_generator_failures_total{reason="rejected"} 2000');
});

test("deleted protectors in a namespace that never ends fill no log with the tries to replace them", async () => {
  const time = new VirtualTime();
  const lines: string[] = [];
  const notes: unknown[] = [];
  const log = createLog({ component: "generator", destination: { write: (line) => lines.push(line) } });
  const events = { record: (note: unknown) => notes.push(note) };
  const { generator } = generatorObserver({ metrics: new Metrics(), log, clock: time.clock, events });
  for (let minutes = 0; minutes < 10; minutes++) {
    for (let index = 0; index < 1000; index++) {
      const [source, protector] = [`deployment/shop/web-${index}`, `deployment-web-${index}`];
      generator({ kind: "kept", source, protector, uid: `u${index}`, why: "shop is being terminated" });
    }
    await time.advance(60_000);
  }
  expect(lines).toHaveLength(10);
  expect(lines[1]).toContain('"more":999');
  expect(notes).toHaveLength(10_000);
});

test("the Event of a workload that vanished says how to give it up", () => {
  const notes: { message: string }[] = [];
  const log = createLog({ component: "generator", destination: { write: () => {} } });
  const events = { record: (note: { message: string }) => notes.push(note) };
  const { clock } = new VirtualTime();
  const { generator } = generatorObserver({ metrics: new Metrics(), log, clock, events });
  generator({ kind: "sourceVanished", source: "deployment/shop/web", protector: "deployment-web", uid: "u" });
  expect(notes[0]?.message).toContain("kubectl podseidon release deployment-web -n shop");
});
