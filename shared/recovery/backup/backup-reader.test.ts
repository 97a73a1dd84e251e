import { expect, test } from "vitest";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { protector } from "../../../test/support/webhook/fixtures.ts";
import type { Transport } from "../../kube/client/transport.ts";
import { encodeBackup, VERSIONS_KEY } from "./backup-format.ts";
import { BackupReader, type BackupTarget, type CoreBackup } from "./backup-reader.ts";

/** An empty list that something in between has mixed up with another. */
const MIXED_UP = JSON.stringify({ kind: "SecretList", metadata: {}, items: [] });

/** A cell that holds these texts in one ConfigMap, and answers the first requests so. A number is a code. */
function cellWith(data: Readonly<Record<string, string>>, answers: (number | string)[] = []): Transport {
  const items = [{ metadata: { name: "backup", uid: "1", resourceVersion: "1" }, data }];
  const whole = JSON.stringify({ kind: "ConfigMapList", metadata: {}, items });
  return {
    request: async () => {
      const answer = answers.shift() ?? 200;
      return typeof answer === "number"
        ? { status: answer, headers: {}, body: whole }
        : { status: 200, headers: {}, body: answer };
    },
    stream: () => Promise.reject(new Error("nothing is watched")),
    close: () => undefined,
  };
}

test("the backup of one core is adopted while another core is out of reach; the cell waits for both", async () => {
  const time = new VirtualTime();
  const adopted: string[] = [];
  const coreOf = (name: string): BackupTarget => ({
    name,
    adopt: ({ entries, versions }: CoreBackup) =>
      adopted.push(`${name}: ${entries.map(({ key }) => key).join()} ${versions.join()}`),
  });
  const reached = Promise.withResolvers<void>();
  const results: string[] = [];
  const reader = new BackupReader({
    ports: time,
    cells: [
      {
        name: "cell-1",
        transport: cellWith({
          one: encodeBackup("away", protector(5, { name: "one" }), "cell-1"),
          two: encodeBackup("there", protector(5, { name: "two" }), "cell-1"),
          [VERSIONS_KEY]: JSON.stringify({ away: "7", there: "9" }),
        }),
      },
    ],
    namespace: "podseidon-system",
    cores: [coreOf("away"), coreOf("there")],
    whenKnown: (core) => (core === "away" ? reached.promise : Promise.resolve()),
    onRead: (cell, result) => results.push(`${cell} ${result}`),
  });
  reader.start();
  await time.advance(10);
  expect(adopted).toEqual(["there: default/two 9"]);
  expect(reader.problemOf("cell-1")).toMatch(/not read yet/);
  reached.resolve();
  await time.advance(10);
  expect(adopted).toEqual(["there: default/two 9", "away: default/one 7"]);
  expect(reader.problemOf("cell-1")).toBeUndefined();
  expect(results).toEqual(["cell-1 read"]);
  reader.stop();
});

const LOST = { uid: "u-lost", name: "lost" };

/** One core, and one cell that answers so. */
function readerOf(answers: (number | string)[]) {
  const time = new VirtualTime();
  const results: string[] = [];
  const adopted: string[][] = [];
  const whole = protector(5, { name: "lost" });
  const one = { ...whole, metadata: { ...whole.metadata, ...LOST } };
  const transport = cellWith(
    { a: encodeBackup("core", protector(5), "c"), b: encodeBackup("core", one, "c", true) },
    answers,
  );
  const reader = new BackupReader({
    ...{
      ports: time,
      cells: [
        { name: "c", transport },
        { name: "none", transport: undefined },
      ],
      namespace: "system",
    },
    cores: [{ name: "core", adopt: ({ entries, lost }) => adopted.push([`${entries.length}`, ...(lost ?? [])]) }],
    whenKnown: async () => {},
    onRead: (_, result) => results.push(result),
  });
  return { time, reader, results, adopted };
}

test("a backup says itself whether a restored core lacked its protector", async () => {
  const { time, reader, adopted } = readerOf([]);
  reader.start();
  await time.advance(10);
  expect(adopted).toEqual([["2", LOST.uid]]);
});

test("an empty list of another kind, which a proxy has mixed up, does not say that there are no backups", async () => {
  const { time, reader, adopted } = readerOf([MIXED_UP]);
  reader.start();
  await time.advance(1_000);
  expect(adopted).toEqual([["2", LOST.uid]]);
});

test("a cell that denies its backups for 10 s is served as one without any, and they count later", async () => {
  const { time, reader, results, adopted } = readerOf(Array.from({ length: 12 }, () => 403));
  expect([reader.problemOf("c"), reader.problemOf("none")]).toEqual([expect.stringMatching(/not read yet/), undefined]);
  reader.start();
  await time.advance(9_000);
  expect([reader.problemOf("c"), adopted]).toEqual([expect.stringMatching(/cannot be read/), []]);
  await time.advance(6_000);
  expect([reader.problemOf("c"), results.at(-1), adopted]).toEqual([undefined, "none", []]);
  await time.advance(200_000);
  expect([reader.problemOf("c"), results.at(-1), adopted]).toEqual([undefined, "read", [["2", LOST.uid]]]);
});

test("a cell that is served without its backups stays so, and is asked for them twice a minute", async () => {
  const codes = [...Array.from({ length: 30 }, () => 403), 500, 500];
  const { time, reader, results } = readerOf(codes);
  reader.start();
  expect(await time.runUntil(() => results.includes("none"), 16_000)).toBe(true);
  const left = codes.length;
  const problems = new Set<string | undefined>();
  for (let second = 0; second < 120; second++) {
    await time.advance(1_000);
    problems.add(reader.problemOf("c"));
  }
  expect([problems, results.filter((result) => result === "none")]).toEqual([new Set([undefined]), ["none"]]);
  expect(left - codes.length).toBe(4);
  await time.advance(900_000);
  expect([reader.problemOf("c"), results.at(-1)]).toEqual([undefined, "read"]);
});

test("denials with an outage between them are not 10 s of denials", async () => {
  const { time, reader, results } = readerOf([403, ...Array.from({ length: 10 }, () => 500), 403]);
  reader.start();
  await time.advance(120_000);
  expect(new Set(results)).toEqual(new Set(["failed", "read"]));
});

test("a cell that denies its backups for a moment, as while its roles are applied, is not served without", async () => {
  const { time, reader, results, adopted } = readerOf([403]);
  reader.start();
  await time.advance(10);
  expect([reader.problemOf("c"), adopted]).toEqual([expect.stringMatching(/cannot be read/), []]);
  await time.advance(1_000);
  expect([reader.problemOf("c"), results.at(-1), adopted]).toEqual([undefined, "read", [["2", LOST.uid]]]);
});

test("a cell that is away for 10 s, and then denies its backups for a moment, is not served without", async () => {
  const { time, reader, results, adopted } = readerOf([...Array.from({ length: 10 }, () => 500), 403, 500, 403]);
  reader.start();
  await time.advance(60_000);
  expect([new Set(results), adopted]).toEqual([new Set(["failed", "read"]), [["2", LOST.uid]]]);
});

test("a cell that answers no read is asked again, not served, and keeps the replica unready for 10 s", async () => {
  const { time, reader, results } = readerOf(Array.from({ length: 12 }, () => 500));
  expect(reader.problems()).toHaveLength(1);
  reader.start();
  const unready: number[] = [];
  for (const waitMs of [1_000, 8_999, 1]) {
    await time.advance(waitMs);
    expect(reader.problemOf("c")).toMatch(/cannot be read/);
    unready.push(reader.problems().length);
  }
  expect(unready).toEqual([1, 1, 0]);
  await time.advance(20_000);
  expect([reader.problemOf("c"), results.at(-1), new Set(results.slice(0, -1))]).toEqual([
    ...[undefined, "read", new Set(["failed"])],
  ]);
});
