import { afterEach, describe, expect, test } from "vitest";
import { Membership } from "../../../controllers/aggregator/counting/membership.ts";
import { ConfigMaps } from "../../../test/support/aggregator/config-maps.ts";
import { FakeCell, FakeCore } from "../../../test/support/aggregator/fake-clusters.ts";
import { leadKeeper } from "../../../test/support/aggregator/lead-keeper.ts";
import { page, ScriptedStream, ScriptedTransport } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { GENERATOR_FINALIZER } from "../../schema/annotations.ts";
import type { PodProtector } from "../../schema/podprotector.ts";
import { ACKNOWLEDGEMENTS } from "../register/register-format.ts";
import { ReleaseRegister } from "../register/release-register.ts";
import { BackupChunks } from "./backup-chunks.ts";
import { CHUNK_CHARACTERS, chunkName, encodeBackup, versionsName } from "./backup-format.ts";
import { BackupKeeper } from "./backup-keeper.ts";

const CELL = "cell";
const HEAD_START_MS = 30_000;
const EARLY = "2026-01-01T00:00:00Z";
const LISTED = { objects: 1, requests: 1, durationMs: 1 };
const LATER = "2026-01-02T00:00:00Z";

function protector(uid: string, creationTimestamp = EARLY, finalizers = [GENERATOR_FINALIZER]): PodProtector {
  return {
    metadata: { name: "p", namespace: "ns", uid, resourceVersion: "7", creationTimestamp, finalizers },
    spec: { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: "p" } } },
  };
}

function segment(data: Record<string, string>, resourceVersion: string): object {
  return { metadata: { name: "podseidon-released-0", uid: "segment", resourceVersion }, data };
}

const DENIAL = { status: 403, body: { kind: "Status", code: 403 } };
const ends: (() => Promise<void>)[] = [];
afterEach(() => Promise.all(ends.splice(0).map((end) => end())));

/** One cell and one core, whose register answers each list with `register.now`. */
function rig(data: Record<string, string> = {}, adopts = false, mayWrite = true) {
  const time = new VirtualTime();
  const cell = new FakeCell();
  const membership = new Membership(cell, time);
  const maps = new ConfigMaps();
  const created: string[] = [];
  const told: string[] = [];
  const core = new FakeCore("core", time);
  membership.followProtectors("core", core.protectors);
  const transport = new ScriptedTransport();
  const register = { now: segment(data, "4"), stream: new ScriptedStream(), lists: transport.lists };
  for (let list = 0; list < 100; list++) transport.lists.push(() => page("5", [register.now]));
  transport.watches.push(register.stream);
  const acknowledged = new ConfigMaps();
  const keeper = new BackupKeeper({
    ...{ cellID: CELL, ports: time, cellApi: maps, namespace: "system", adopts, membership },
    cores: [
      {
        name: "core",
        protectors: core.protectors,
        releases: new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" }),
        api: {
          ...core.access.api,
          create: async (path, body, parse) => {
            if (path.includes("configmaps")) return await acknowledged.create(path, body, parse);
            created.push(String(Reflect.get(Object(Reflect.get(Object(body), "metadata")), "name")));
            return { kind: "conflict", message: "there already" };
          },
          patch: async (path, type, body, parse) => await acknowledged.patch(path, type, body, parse),
        },
      },
    ],
    ...{ settleMs: 10_000, headStartMs: HEAD_START_MS, everyMs: 1_000, timeoutMs: 1_000 },
    mayWrite: () => mayWrite,
    coreRestored: () => {},
    onEvent: ({ kind }) => told.push(kind),
  });
  const run = (): void => void ends.push(leadKeeper(keeper, time));
  /** Runs until the cell has a backup of protector p1, of which it has a pod. */
  const runWithBackup = async (): Promise<void> => {
    cell.put("pod");
    cell.sync();
    core.put("p", protector("p1").spec, { metadata: protector("p1").metadata });
    core.sync();
    run();
    await time.advance(5_000);
  };
  return { time, cell, core, maps, created, told, register, acknowledged, keeper, run, runWithBackup };
}

async function stored(
  maps: ConfigMaps,
  object: PodProtector,
  versions: Record<string, string> = {},
  cellID = CELL,
): Promise<void> {
  const chunks = new BackupChunks({ api: maps, cellID, namespace: "system", timeoutMs: 1_000 });
  const { signal } = new AbortController();
  await chunks.read(signal);
  chunks.put(object.metadata.uid, encodeBackup("core", object, cellID));
  await chunks.flush(signal);
  await chunks.putVersions(versions, signal);
}

describe("a protector was lost and restored, and its successor released, while this cell was away", () => {
  const released = { p2: `2026-01-03T00:00:00.000Z ns/p SourceDeleted ${LATER}` };

  test("the cell's backup of the first one stays dead", async () => {
    const { time, cell, core, maps, created, keeper, run } = rig(released);
    await stored(maps, protector("p1"));
    cell.sync();
    core.sync();
    run();
    await time.advance(2 * HEAD_START_MS);
    expect([created, keeper.lost, keeper.backups]).toEqual([[], 0, 0]);
  });
});

describe("backups that a cell has stored under an id that it had before", () => {
  const released = { p1: `2026-01-03T00:00:00.000Z ns/p SourceDeleted ${EARLY}` };
  const former = chunkName("before", 0);

  test.each([
    ["end with the release of their protector, in a cell that is a whole cluster", true, []],
    ["are another cell's, where each namespace may be a cell", false, ["p1", "versions"]],
  ])("%s", async (_, adopts, keys) => {
    const { time, cell, core, maps, created, run } = rig(released, adopts);
    await stored(maps, protector("p1"), { core: "900" }, "before");
    cell.sync();
    core.sync();
    run();
    await time.advance(2 * HEAD_START_MS);
    const stay = [former, versionsName("before")].flatMap((name) => Object.keys(maps.data(name) ?? {}));
    expect([stay, created]).toEqual([keys, []]);
  });

  test("bring back a protector that is lost", async () => {
    const { time, cell, core, maps, created, run } = rig({}, true);
    await stored(maps, protector("p1"), {}, "before");
    cell.sync();
    core.sync();
    run();
    await time.advance(HEAD_START_MS + 5_000);
    expect(created[0]).toBe("p");
    expect(Object.keys(maps.data(former) ?? {})).toEqual(["p1"]);
  });

  test("move where another text of a protector has no room there", async () => {
    const api = new ConfigMaps();
    for (const uid of ["p1", "p2"]) await stored(api, protector(uid), {}, "before");
    const chunks = new BackupChunks({ api, cellID: CELL, namespace: "system", timeoutMs: 1_000, adopts: true });
    const { signal } = new AbortController();
    await chunks.read(signal);
    expect([...chunks.formerCells]).toEqual(["before"]);
    chunks.put("p1", "x".repeat(CHUNK_CHARACTERS));
    await chunks.flush(signal);
    expect(chunks.isInvalid).toBe(false);
    expect([former, chunkName(CELL, 0)].map((name) => Object.keys(api.data(name) ?? {}))).toEqual([["p2"], ["p1"]]);
  });
});

test.each([
  ["after it", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"],
  ["after it, by an apiserver with a slower clock", "2026-01-03T00:00:05Z", "2026-01-03T00:00:02Z"],
])("a protector that was made %s is lost like any other", async (_, releasedMade, made) => {
  const { time, cell, core, maps, created, run } = rig({
    p2: `2026-01-03T00:00:10.000Z ns/p NotRequired ${releasedMade}`,
  });
  await stored(maps, protector("p3", made));
  cell.sync();
  core.sync();
  run();
  await time.advance(HEAD_START_MS + 5_000);
  expect(created[0]).toBe("p");
});

test.each([0, 5])("a protector released while the register's stream was dead is not restored (%i)", async (denials) => {
  const { time, core, created, register, keeper, runWithBackup } = rig();
  await runWithBackup();
  register.lists.unshift(...Array.from({ length: denials }, () => DENIAL));
  // A cut of some seconds: the protectors are listed again, and the stream of the register is half-open for a minute.
  register.now = segment({ p1: `2026-01-03T00:00:00.000Z ns/p SourceDeleted ${EARLY}` }, "9");
  core.remove("p");
  await time.advance(HEAD_START_MS + 10_000);
  expect([created, keeper.lost]).toEqual([[], 0]);
});

test("a release is acknowledged once its backup is gone, and not before", async () => {
  const { time, core, register, acknowledged, runWithBackup } = rig();
  await runWithBackup();
  // The watch of the protectors is behind that of the register.
  register.stream.event("MODIFIED", segment({ p1: `2026-01-03T00:00:00.000Z ns/p SourceDeleted ${EARLY}` }, "9"));
  await time.advance(60_000);
  expect(acknowledged.data(ACKNOWLEDGEMENTS)).toEqual({ cell: "4" });
  core.remove("p");
  await time.advance(60_000);
  expect(acknowledged.data(ACKNOWLEDGEMENTS)).toEqual({ cell: "9" });
});

test("a protector made by hand that a core lacks, which was restored with raised versions, is lost", async () => {
  const { time, cell, core, maps, created, run } = rig();
  await stored(maps, protector("p1", EARLY, []), { core: "5" });
  expect(maps.data(versionsName(CELL))).toEqual({ versions: '{"core":"5"}' });
  cell.sync();
  core.sync();
  Object.defineProperty(core.protectors, "position", { get: () => "1000000007" });
  run();
  await time.advance(HEAD_START_MS + 5_000);
  expect(created[0]).toBe("p");
});

test("a protector made by hand that a core with somewhat higher versions lacks has ended, and it is told", async () => {
  const { time, cell, core, maps, created, told, keeper, run } = rig();
  await stored(maps, protector("p1", EARLY, []), { core: "5" });
  cell.sync();
  core.sync();
  // A replacement that was made from a backup, and has had other writes since.
  Object.defineProperty(core.protectors, "position", { get: () => "5000" });
  run();
  await time.advance(HEAD_START_MS + 5_000);
  expect([created, keeper.lost, keeper.backups]).toEqual([[], 0, 0]);
  expect(told.filter((kind) => kind === "ended" || kind === "vanished")).toEqual(["ended"]);
});

test("a protector made by hand that a core lacks and can't take yet stays lost for the next leader", async () => {
  const { time, cell, core, maps, keeper, run } = rig();
  await stored(maps, protector("p1", EARLY, []), { core: "900000" });
  cell.sync();
  core.sync();
  // It answers each LIST with the version that its stream has.
  core.protectors.quorumSentMs = Number.POSITIVE_INFINITY;
  run();
  await time.advance(HEAD_START_MS + 60_000);
  expect([keeper.lost, keeper.backups]).toEqual([1, 1]);
  await ends.splice(0)[0]?.();
  run();
  await time.advance(5_000);
  expect([keeper.lost, keeper.backups]).toEqual([1, 1]);
});

test("a lost protector that is back as the same object keeps its backup", async () => {
  const { time, cell, core, keeper, run } = rig();
  cell.put("pod");
  cell.sync();
  const { metadata, spec } = protector("p1");
  core.put("p", spec, { metadata });
  core.sync();
  run();
  await time.advance(5_000);
  core.remove("p");
  await time.advance(5_000);
  expect([keeper.lost, keeper.backups]).toEqual([1, 1]);
  core.put("p", spec, { metadata });
  await time.advance(5_000);
  expect([keeper.lost, keeper.backups]).toEqual([0, 1]);
});

describe("a release is not acknowledged", () => {
  const failed = { kind: "unavailable", error: new Error("no"), sent: true } as const;
  test.each([
    ["while its backup can't be removed", []],
    [
      "where another process has written the backups, which can't be read",
      [{ kind: "conflict", message: "c" } as const],
    ],
  ])("%s", async (_, first) => {
    const { time, cell, core, maps, register, acknowledged, run } = rig();
    cell.put("pod");
    cell.sync();
    core.put("p", protector("p1").spec, { metadata: protector("p1").metadata });
    core.sync();
    run();
    await time.advance(40_000);
    register.stream.event("MODIFIED", segment({ p1: `2026-01-03T00:00:00.000Z ns/p SourceDeleted ${EARLY}` }, "9"));
    maps.faults.push(...first, ...Array.from({ length: 200 }, () => failed));
    core.remove("p");
    await time.advance(60_000);
    expect([acknowledged.data(ACKNOWLEDGEMENTS), Object.keys(maps.data(chunkName(CELL, 0)) ?? {})]).toEqual([
      { cell: "4" },
      ["p1"],
    ]);
    maps.faults.length = 0;
    await time.advance(40_000);
    expect([acknowledged.data(ACKNOWLEDGEMENTS), maps.data(chunkName(CELL, 0))]).toEqual([{ cell: "9" }, {}]);
  });
});

test("a keeper that may not write any more writes nothing", async () => {
  const { time, cell, core, maps, created, acknowledged, keeper, run } = rig({}, false, false);
  await stored(maps, protector("p1"));
  const before = maps.writes.length;
  cell.sync();
  core.sync();
  run();
  await time.advance(2 * HEAD_START_MS);
  expect([keeper.lost, created, maps.writes.length - before, acknowledged.writes]).toEqual([1, [], 0, []]);
});

test("a protector made by hand is lost where a restored core lacks it, and released by a later deletion", async () => {
  const { time, cell, core, told, keeper, run } = rig();
  cell.put("pod");
  cell.sync();
  for (const uid of ["p1", "p2"]) {
    const { metadata, spec } = protector(uid, EARLY, []);
    core.put(uid, spec, { metadata: { ...metadata, name: uid } });
  }
  core.sync();
  run();
  await time.advance(5_000);
  keeper.watched("core", { kind: "versionWentBack", from: "9", to: "5" });
  core.remove("p1");
  keeper.watched("core", { ...{ kind: "listed", reason: "outage", mode: "pages", position: "5" }, ...LISTED });
  keeper.watched("core", { kind: "watching", position: "5", afterFailures: 0 });
  core.remove("p2");
  await time.advance(5_000);
  expect([keeper.lost, keeper.backups]).toEqual([1, 1]);
  expect(told.filter((kind) => kind === "vanished" || kind === "ended")).toEqual(["vanished", "ended"]);
});

test("a lost protector does not wait longer because the backups are read again", async () => {
  const { time, core, created, told, keeper, runWithBackup } = rig();
  await runWithBackup();
  core.remove("p");
  await time.advance(HEAD_START_MS - 5_000);
  keeper.cellWatched({ ...{ kind: "listed", reason: "outage", mode: "pages", position: "5" }, ...LISTED });
  await time.advance(7_000);
  expect([created, told.filter((kind) => kind === "vanished")]).toEqual([["p"], ["vanished"]]);
});

test("a release that a restored core has taken back does not release the protector that is in force", async () => {
  const { time, cell, core, created, register, run } = rig({
    p1: `2026-01-03T00:00:00.000Z ns/p SourceDeleted ${EARLY}`,
  });
  cell.put("pod");
  cell.sync();
  core.sync();
  run();
  await time.advance(5_000);
  register.now = segment({}, "3");
  core.put("p", protector("p1").spec, { metadata: protector("p1").metadata });
  await time.advance(5_000);
  core.remove("p");
  await time.advance(HEAD_START_MS + 5_000);
  expect(created[0]).toBe("p");
});

test("a protector at rest is written once, with its reservations, and versions every half minute", async () => {
  const { time, cell, core, maps, run } = rig();
  cell.put("pod");
  cell.sync();
  const { metadata, spec } = protector("p1");
  const admissionHistory = { buckets: [{ startTime: EARLY, podUID: "u" }] };
  const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
  const put = (): unknown =>
    core.put("p", spec, { metadata, status: { cells: [{ cellID: CELL, admissionHistory }], summary } });
  put();
  core.sync();
  run();
  await time.advance(5_000);
  maps.writes.length = 0;
  for (let second = 0; second < 60; second++) {
    put();
    await time.advance(1_000);
  }
  expect(maps.writes).toEqual([`patch ${versionsName(CELL)}`, `patch ${versionsName(CELL)}`]);
  expect(maps.data(chunkName(CELL, 0))?.p1).toContain("podUID");
});

test.each([
  [
    "changes nothing, while the register has the release",
    { p1: `2026-01-03T00:00:00.000Z ns/p Released ${EARLY}` },
    [],
  ],
  ["brings it back, once the register has forgotten the release", {}, ["p"]],
])("an old backup of a released protector that is put back into the cell %s", async (_, released, expected) => {
  const { time, cell, core, maps, created, run } = rig(released);
  cell.put("pod");
  cell.sync();
  core.sync();
  run();
  await time.advance(5_000);
  await stored(maps, protector("p1"));
  // A write of its own shows the leader what it did not write.
  core.put("q", protector("q1").spec, { metadata: { ...protector("q1").metadata, name: "q" } });
  await time.advance(2 * HEAD_START_MS);
  expect([...new Set(created)]).toEqual(expected);
});

const DENIED = { kind: "rejected", status: 403, message: "may not" } as const;
const OUT_OF_REACH = { kind: "unavailable", error: new Error("no"), sent: false } as const;

test.each([
  ["an outage", [], OUT_OF_REACH],
  ["an outage between denials", [DENIED, DENIED, OUT_OF_REACH, DENIED, DENIED], OUT_OF_REACH],
  ["more backups than a cell may store", [], { ...DENIED, status: 200 }],
])("%s does not tell which ids the cell had, however long", async (_, first, fault) => {
  const { time, maps, keeper, run } = rig();
  maps.faults.push(...first, ...Array.from({ length: 20 }, () => fault));
  run();
  await time.advance(60_000);
  expect(keeper.formerCells).toBeUndefined();
});
