import { describe, expect, test } from "vitest";
import { ConfigMaps } from "../../../test/support/aggregator/config-maps.ts";
import type { ApiResult } from "../../kube/client/api-result.ts";
import { valueAt } from "../../schema/check.ts";
import type { PodProtector } from "../../schema/podprotector.ts";
import { BackupChunks } from "./backup-chunks.ts";
import {
  CHUNK_CHARACTERS,
  chunkName,
  encodeBackup,
  LONG_BACKUP_CHARACTERS,
  MAX_BACKUP_CHARACTERS,
  MAX_CHUNKS,
  readBackup,
  versionsName,
} from "./backup-format.ts";

const CELL = "cell-1";
const signal = new AbortController().signal;

function chunksOf(api: ConfigMaps): BackupChunks {
  return new BackupChunks({ api, cellID: CELL, namespace: "podseidon-system", timeoutMs: 1_000 });
}

function protector(uid: string, buckets = 0): PodProtector {
  const list = Array.from({ length: buckets }, (_, index) => ({
    startTime: "2026-01-01T00:00:00Z",
    podUID: `pod-${index}`,
    podName: "x".repeat(100),
  }));
  const summary = { totalReplicas: 9, aggregatedAvailableReplicas: 9, estimatedAvailableReplicas: 9 };
  return {
    metadata: { name: uid, namespace: "shop", uid, resourceVersion: "7", generation: 3, finalizers: ["f"] },
    spec: { minAvailable: 5, minReadySeconds: 0, selector: { matchLabels: { app: uid } } },
    status: {
      cells: [
        { cellID: CELL, aggregation: { totalReplicas: 9, availableReplicas: 9 }, admissionHistory: { buckets: list } },
        { cellID: "other", admissionHistory: { buckets: list } },
      ],
      summary,
    },
  };
}

describe("a change of the chunks by another writer", () => {
  test.each<[string, (api: ConfigMaps) => void]>([
    ["a backup that an earlier leader has added", (api) => change(api, { a: "A", stranger: "S" })],
    ["backups from before a restore", (api) => change(api, { b: "B" })],
  ])("is noticed with the next write: %s", async (_name, done) => {
    const api = new ConfigMaps();
    const chunks = chunksOf(api);
    for (const uid of ["a", "b"]) chunks.put(uid, uid.toUpperCase());
    await chunks.flush(signal);
    chunks.remove("b");
    await chunks.flush(signal);
    expect(chunks.isInvalid).toBe(false);
    done(api);
    chunks.put("c", "C");
    await chunks.flush(signal);
    expect(chunks.isInvalid).toBe(true);
    await chunks.read(signal);
    expect(chunks.isInvalid).toBe(false);
  });

  test.each<[string, string[], (api: ConfigMaps) => void]>([
    ["is there without its label, which no list shows", [], (api) => void api.put(chunkName(CELL, 0), { s: "S" })],
    ["was deleted", ["a"], (api) => api.maps.clear()],
  ])("is noticed with the next write, and with no other: a chunk %s", async (_, before, done) => {
    const api = new ConfigMaps();
    const chunks = chunksOf(api);
    for (const uid of before) chunks.put(uid, uid.toUpperCase());
    await chunks.flush(signal);
    done(api);
    const written = async (): Promise<boolean> => {
      for (const uid of ["a", "b", "c"]) chunks.put(uid, uid.toUpperCase());
      await chunks.flush(signal);
      return !chunks.isInvalid;
    };
    expect(await written()).toBe(false);
    await chunks.read(signal);
    expect([await written(), Object.keys(api.data(chunkName(CELL, 0)) ?? {})]).toEqual([
      true,
      expect.arrayContaining(["a", "b", "c"]),
    ]);
  });

  test("ends what was not written yet, and takes no room: what is stored counts from then on", async () => {
    const api = new ConfigMaps();
    const chunks = chunksOf(api);
    const half = "x".repeat(CHUNK_CHARACTERS / 2);
    chunks.put("a", half);
    await chunks.flush(signal);
    chunks.put("released meanwhile", "R");
    await chunks.read(signal);
    chunks.put("b", half);
    // The process that read it may write to it, too, and to no other version.
    expect(await chunks.flush(signal)).toBe(1);
    expect([Object.keys(api.data(chunkName(CELL, 0)) ?? {}), chunks.size]).toEqual([["a", "b"], 2]);
    change(api, { a: half });
    chunks.remove("b");
    await chunks.flush(signal);
    expect(chunks.isInvalid).toBe(true);
  });

  test("is noticed by a process that has read the chunk and not written it", async () => {
    const api = new ConfigMaps();
    await seeded(api);
    const next = chunksOf(api);
    await next.read(signal);
    change(api, { b: "B" });
    next.remove("a");
    await next.flush(signal);
    expect([next.isInvalid, api.data(chunkName(CELL, 0))]).toEqual([true, { b: "B" }]);
  });

  async function seeded(api: ConfigMaps): Promise<void> {
    const chunks = chunksOf(api);
    chunks.put("a", "A");
    await chunks.flush(signal);
  }

  function change(api: ConfigMaps, data: Readonly<Record<string, string>>): void {
    api.put(chunkName(CELL, 0), data, api.maps.get(chunkName(CELL, 0))?.metadata.labels ?? {});
  }
});

describe("backups", () => {
  test("are written once, and read by the next process", async () => {
    const api = new ConfigMaps();
    const chunks = chunksOf(api);
    expect(chunks.put("a", encodeBackup("core", protector("a", 2), CELL))).toBe(true);
    expect(await chunks.flush(signal)).toBe(1);
    expect(chunks.put("a", encodeBackup("core", protector("a", 2), CELL))).toBe(false);
    expect(await chunks.flush(signal)).toBe(0);
    const next = chunksOf(api);
    const read = await next.read(signal);
    expect(read).toMatchObject({ object: { protectors: [{ core: "core", object: { metadata: { uid: "a" } } }] } });
    expect(next.put("a", encodeBackup("core", protector("a", 2), CELL))).toBe(false);
    expect(api.writes).toHaveLength(1);
  });

  test("hold identity, spec and the history of this cell, no counts and nothing that changes by itself", () => {
    const other = { ...protector("a", 2), metadata: { ...protector("a").metadata, resourceVersion: "8" } };
    const text = encodeBackup("core", protector("a", 2), CELL);
    expect(encodeBackup("core", other, CELL)).toBe(text);
    const map = { metadata: { name: "x", uid: "u", resourceVersion: "1" }, data: { a: text } };
    const { object } = readBackup([map]).protectors[0] ?? {};
    expect(object?.spec).toEqual(protector("a").spec);
    expect(object?.status?.cells).toHaveLength(1);
    expect(object?.status?.cells[0]?.aggregation).toBeUndefined();
    expect(object?.status?.cells[0]?.admissionHistory?.buckets).toHaveLength(2);
  });

  test("leave out a history that is too long", () => {
    const text = encodeBackup("core", protector("a", 1_000), CELL);
    expect(text.length).toBeLessThan(MAX_BACKUP_CHARACTERS);
    expect(text).not.toContain("pod-1");
  });

  test("end with the release, and make room", async () => {
    const api = new ConfigMaps();
    const chunks = chunksOf(api);
    const text = "x".repeat(CHUNK_CHARACTERS / 2 + 1);
    chunks.put("a", text);
    chunks.put("b", text);
    await chunks.flush(signal);
    expect(Object.keys(api.data(chunkName(CELL, 1)) ?? {})).toEqual(["b"]);
    chunks.remove("a");
    chunks.put("c", text);
    await chunks.flush(signal);
    expect(Object.keys(api.data(chunkName(CELL, 0)) ?? {})).toEqual(["c"]);
    expect(chunks.size).toBe(2);
  });

  test("have room beside those with selectors of a thousand values, however many of these there are", async () => {
    const chunks = chunksOf(new ConfigMaps());
    const long = "x".repeat(CHUNK_CHARACTERS / 4);
    let number = 0;
    while (chunks.put(`long-${number}`, long)) number++;
    expect(number).toBe((4 * MAX_CHUNKS) / 2);
    expect(chunks.put("other", "x".repeat(LONG_BACKUP_CHARACTERS))).toBe(true);
  });

  test("that could not be written are written next time", async () => {
    const api = new ConfigMaps();
    const chunks = chunksOf(api);
    chunks.put("a", "1");
    api.faults.push({ kind: "unavailable", error: new Error("no"), sent: true });
    expect(await chunks.flush(signal)).toMatchObject({ kind: "unavailable" });
    chunks.put("b", "2");
    expect(await chunks.flush(signal)).toBe(1);
    expect(api.data(chunkName(CELL, 0))).toEqual({ a: "1", b: "2" });
  });

  test.each([
    ["to a chunk", "b", { a: "A" }],
    ["that is the first of a chunk", "a", {}],
  ])("stay removed when a write %s, which nobody answered in time, arrives after the removal", async (_, uid, rest) => {
    const api = new ConfigMaps();
    const chunks = chunksOf(api);
    for (const [before, text] of Object.entries(rest)) chunks.put(before, text);
    await chunks.flush(signal);
    chunks.put(uid, uid.toUpperCase());
    const late: (() => Promise<unknown>)[] = [];
    const { patch, create } = ConfigMaps.prototype;
    const frozen = async (arrive: () => Promise<unknown>): Promise<ApiResult<never>> => {
      late.push(arrive);
      Object.assign(api, { patch, create });
      return { kind: "unavailable", error: new Error("a frozen apiserver"), sent: true };
    };
    api.patch = (...call) => frozen(() => patch.apply(api, call));
    api.create = (...call) => frozen(() => create.apply(api, call));
    expect(await chunks.flush(signal)).toMatchObject({ kind: "unavailable" });
    expect(await chunks.flush(signal)).toBe(1);
    chunks.remove(uid);
    expect(await chunks.flush(signal)).toBe(1);
    for (const arrive of late) await arrive();
    expect(api.data(chunkName(CELL, 0))).toEqual(rest);
    expect(chunks.isInvalid).toBe(false);
  });

  test("that a process left in two chunks end in both", async () => {
    const api = new ConfigMaps();
    const chunks = chunksOf(api);
    const text = (share: number): string => "x".repeat(CHUNK_CHARACTERS * share);
    for (const [uid, share] of [
      ["a", 0.5],
      ["c", 0.4],
      ["b", 0.6],
    ] as const)
      chunks.put(uid, text(share));
    await chunks.flush(signal);
    chunks.put("b", "less");
    // The backup outgrows its chunk and moves to the chunk that is written first; then the process ends.
    chunks.put("a", text(0.7));
    const write = api.patch.bind(api);
    api.patch = async (path, type, body, parse) => {
      api.patch = async () => ({ kind: "unavailable", error: new Error("no"), sent: false });
      return await write(path, type, body, parse);
    };
    expect(await chunks.flush(signal)).toMatchObject({ kind: "unavailable" });
    api.patch = write;
    const holders = (): number[] => [0, 1].filter((chunk) => "a" in (api.data(chunkName(CELL, chunk)) ?? {}));
    expect(holders()).toEqual([0, 1]);
    const next = chunksOf(api);
    await next.read(signal);
    next.remove("a");
    await next.flush(signal);
    expect(holders()).toEqual([]);
  });

  test("of a cell that was renamed stay known to each later process, and end with the release", async () => {
    const api = new ConfigMaps();
    const former = chunksOf(api);
    for (const uid of ["a", "b"]) former.put(uid, uid.toUpperCase());
    await former.flush(signal);
    const renamed = async (uid: string): Promise<boolean> => {
      const options = { api, cellID: "renamed", namespace: "podseidon-system", timeoutMs: 1_000, adopts: true };
      const chunks = new BackupChunks(options);
      await chunks.read(signal);
      const isKnown = chunks.has(uid);
      chunks.remove(uid);
      await chunks.flush(signal);
      return isKnown;
    };
    expect([await renamed("a"), await renamed("b")]).toEqual([true, true]);
    expect(api.data(chunkName(CELL, 0))).toEqual({});
  });

  test("versions are written when they have changed", async () => {
    const api = new ConfigMaps();
    const chunks = chunksOf(api);
    await chunks.putVersions({ core: "70" }, signal);
    await chunks.putVersions({ core: "70" }, signal);
    expect(api.writes).toHaveLength(2);
    const next = chunksOf(api);
    expect(await next.read(signal)).toMatchObject({ object: { versions: [{ core: "core", version: "70" }] } });
    await next.putVersions({ core: "70" }, signal);
    expect(api.writes).toHaveLength(2);
    expect(api.data(versionsName(CELL))).toEqual({ versions: '{"core":"70"}' });
    api.faults.push({ kind: "unavailable", error: new Error("no"), sent: true });
    expect(await next.putVersions({ core: "80" }, signal)).toMatchObject({ kind: "unavailable" });
    await next.putVersions({ core: "80" }, signal);
    expect([api.data(versionsName(CELL)), next.isInvalid]).toEqual([{ versions: '{"core":"80"}' }, false]);
    api.maps.clear();
    await next.putVersions({ core: "90" }, signal);
    expect(next.isInvalid).toBe(true);
  });
});

// The role of an older version, or a policy, may refuse the writes for weeks.
test("protectors that come and go while nothing can be written leave no more than one write can hold", async () => {
  let changes = 0;
  class Counting extends ConfigMaps {
    override patch<T>(path: string, type: unknown, body: unknown, parse: (raw: unknown) => T) {
      changes = Object.keys(Object(valueAt(body, "data"))).length;
      return super.patch(path, type, body, parse);
    }
  }
  const api = new Counting();
  const chunks = chunksOf(api);
  chunks.put("uid-stays", "a backup");
  await chunks.flush(signal);
  for (let one = 0; one < 20_000; one++) {
    chunks.put(`uid-${one}`, "a backup");
    chunks.remove(`uid-${one - 1}`);
    if (one % 500 > 0) continue;
    api.faults.push({ kind: "rejected", status: 403, message: "forbidden" });
    expect(await chunks.flush(signal)).toMatchObject({ kind: "rejected" });
    // As the keeper does, which then adds what there is.
    if (chunks.isInvalid) await chunks.read(signal);
  }
  await chunks.flush(signal);
  expect(changes).toBeLessThan(6_000);
});
