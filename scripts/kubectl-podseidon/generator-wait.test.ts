import { expect, test } from "vitest";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { makeProtector } from "../../test/support/decide/fixtures.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { stillLeft } from "./generator-wait.ts";
import { ProgressLine } from "./invocation/progress.ts";

const named = (name: string, uid = name): PodProtector => ({
  ...makeProtector([]),
  metadata: { namespace: "shop", name, uid, resourceVersion: "1" },
});

/** The names that are left, when, and how often the last one was read. */
async function wait(names: readonly string[], find: (name: string, ms: number) => PodProtector | undefined) {
  const ports = new VirtualTime();
  const progress = new ProgressLine({ out: () => {}, err: () => {}, interactive: false }, ports);
  const core = {
    find: async (path: string) => find(path.split("/").at(-1) ?? "", ports.clock.monotonicMs() - startedMs),
  };
  const startedMs = ports.clock.monotonicMs();
  let result: { left: string[]; afterMs: number } | undefined;
  const waited = stillLeft(
    { ports, progress },
    core,
    names.map((name) => named(name)),
    () => true,
  ).then((left) => {
    result = { left: left.map(({ metadata }) => metadata.name), afterMs: ports.clock.monotonicMs() - startedMs };
  });
  await ports.advance(200_000);
  await waited;
  return result;
}

test("the generator has a minute for each that it acts on", async () => {
  const find = (name: string, ms: number) => (ms < (name === "a" ? 50_000 : 100_000) ? named(name) : undefined);
  expect(await wait(["a", "b"], find)).toEqual({ left: [], afterMs: 100_000 });
});

test("those that it has not acted on in a minute are left", async () => {
  const find = (name: string) => (name === "b" ? undefined : named(name));
  expect(await wait(["a", "b", "c"], find)).toEqual({ left: ["a", "c"], afterMs: 60_000 });
});

test("another protector of the same name is none of them", async () => {
  expect(await wait(["a"], (name) => named(name, "later"))).toEqual({ left: [], afterMs: 0 });
});
