import { afterEach, describe, expect, test } from "vitest";
import { Membership } from "../../../controllers/aggregator/counting/membership.ts";
import { ConfigMaps } from "../../../test/support/aggregator/config-maps.ts";
import { FakeCell, FakeCore } from "../../../test/support/aggregator/fake-clusters.ts";
import { leadKeeper } from "../../../test/support/aggregator/lead-keeper.ts";
import { page, ScriptedStream, ScriptedTransport } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { CallOptions } from "../../kube/client/api-client.ts";
import { sleep } from "../../runtime/clock.ts";
import { GENERATOR_FINALIZER } from "../../schema/annotations.ts";
import type { PodProtector } from "../../schema/podprotector.ts";
import type { RecoveryEvent } from "../recovery-events.ts";
import { ReleaseRegister } from "../register/release-register.ts";
import { BackupChunks } from "./backup-chunks.ts";
import {
  BACKUP_CELL_ANNOTATION,
  BACKUP_LABEL,
  CHUNK_CHARACTERS,
  cellTag,
  chunkName,
  decodeBackup,
  encodeBackup,
  MAX_CHUNKS,
  versionsName,
} from "./backup-format.ts";
import { BackupKeeper } from "./backup-keeper.ts";

const CELL = "cell";
const TIME = "2026-01-01T00:00:00Z";
const HEAD_START_MS = 30_000;
const listed = { kind: "listed", mode: "pages", position: "5", objects: 1, requests: 1, durationMs: 1 } as const;

function protector(name: string): PodProtector {
  return {
    metadata: { name, namespace: "ns", uid: `${name}-uid`, resourceVersion: "7", finalizers: [GENERATOR_FINALIZER] },
    spec: { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: "p" } } },
  };
}

const ends: (() => Promise<void>)[] = [];
afterEach(() => Promise.all(ends.splice(0).map((end) => end())));

/** Two cores. A core is unreachable until the test syncs it. Calls to those in `hanging` end with their time limit. */
function rig() {
  const hanging = new Set<string>();
  const hung: string[] = [];
  const hang = async (name: string, { timeoutMs, signal }: CallOptions) => {
    hung.push(name);
    await sleep(time, timeoutMs, signal);
    return { kind: "unavailable", error: new Error("no answer"), sent: true } as const;
  };
  const time = new VirtualTime();
  const cell = new FakeCell();
  const membership = new Membership(cell, time);
  const maps = new ConfigMaps();
  const created: string[] = [];
  const events: RecoveryEvent[] = [];
  const cores = ["east", "west"].map((name) => {
    const core = new FakeCore(name, time);
    membership.followProtectors(name, core.protectors);
    const transport = new ScriptedTransport();
    for (let list = 0; list < 200; list++) transport.lists.push(page("5", []));
    transport.watches.push(new ScriptedStream());
    const releases = new ReleaseRegister({ core: name, transport, ports: time, namespace: "system" });
    const register = new ConfigMaps();
    return {
      core,
      name,
      releases,
      protectors: core.protectors,
      register,
      api: {
        ...core.access.api,
        create: async <T>(path: string, body: unknown, parse: (raw: unknown) => T, options: CallOptions) => {
          if (hanging.has(name)) return await hang(name, options);
          if (path.includes("configmaps")) return await register.create(path, body, parse);
          created.push(`${name} ${Reflect.get(Object(Reflect.get(Object(body), "metadata")), "name")}`);
          return { kind: "conflict", message: "there already" } as const;
        },
        patch: async <T>(
          ...[path, type, body, parse, options]: [string, string, unknown, (raw: unknown) => T, CallOptions]
        ) => (hanging.has(name) ? await hang(name, options) : await register.patch(path, type, body, parse)),
      },
    };
  });
  const keeper = new BackupKeeper({
    cellID: CELL,
    ports: time,
    cellApi: maps,
    namespace: "system",
    membership,
    cores,
    settleMs: 10_000,
    headStartMs: HEAD_START_MS,
    everyMs: 1_000,
    timeoutMs: 1_000,
    mayWrite: () => true,
    coreRestored: () => {},
    onEvent: (event) => events.push(event),
  });
  const run = (): void => void ends.push(leadKeeper(keeper, time));
  const [east, west] = cores;
  if (east === undefined || west === undefined) throw new Error("there are two cores");
  return { time, cell, maps, created, events, keeper, run, east, west, hanging, hung };
}

const AWAY = { kind: "rejected", status: 403, message: "may not" } as const;

test("backups that can't be read or written are in trouble until they are stored", async () => {
  const { time, cell, maps, keeper, run, east, west } = rig();
  cell.put("pod");
  cell.sync();
  east.core.put("p", protector("p").spec, { metadata: protector("p").metadata });
  east.core.sync();
  west.core.sync();
  expect(keeper.trouble).toBe(undefined);
  maps.faults.push(AWAY);
  run();
  await time.advance(2_000);
  expect(keeper.trouble).toEqual({ failing: 1, noRoom: 0 });
  await time.advance(10_000);
  expect(keeper.trouble).toEqual({ failing: 0, noRoom: 0 });
  maps.faults.push(...Array.from({ length: 40 }, () => AWAY));
  east.core.put("p", { ...protector("p").spec, minAvailable: 2 }, { metadata: protector("p").metadata });
  await time.advance(20_000);
  expect(keeper.trouble).toEqual({ failing: 1, noRoom: 0 });
  await time.advance(60_000);
  const stored = Object.values(maps.data(chunkName(CELL, 0)) ?? {}).map((text) => decodeBackup(text).object);
  expect(stored.map(({ spec }) => spec.minAvailable)).toEqual([2]);
  expect(keeper.trouble).toEqual({ failing: 0, noRoom: 0 });
});

test("a moment without the permission does not tell which ids the cell had; 10 s tell that it had none", async () => {
  const { time, maps, keeper, run } = rig();
  maps.put("before", {}, { [BACKUP_LABEL]: cellTag("before") }, { [BACKUP_CELL_ANNOTATION]: "before" });
  maps.faults.push(AWAY);
  run();
  await time.advance(2_000);
  expect(keeper.formerCells).toBe(undefined);
  await time.advance(5_000);
  expect([...(keeper.formerCells ?? [])]).toEqual(["before"]);

  const denied = rig();
  denied.maps.faults.push(...Array.from({ length: 10 }, () => AWAY));
  denied.run();
  await denied.time.advance(9_000);
  expect(denied.keeper.formerCells).toBe(undefined);
  await denied.time.advance(2_000);
  expect([...(denied.keeper.formerCells ?? ["unknown"])]).toEqual([]);
});

test("a protector that has no room is in trouble until it has some, or is gone", async () => {
  const { time, cell, maps, keeper, events, run, east, west } = rig();
  for (let chunk = 0; chunk < MAX_CHUNKS; chunk++)
    maps.put(
      chunkName(CELL, chunk),
      { [`other-${chunk}-uid`]: "x".repeat(CHUNK_CHARACTERS - 10) },
      { [BACKUP_LABEL]: cellTag(CELL) },
    );
  cell.put("pod");
  cell.sync();
  for (const name of ["p", "q"]) east.core.put(name, protector(name).spec, { metadata: protector(name).metadata });
  east.core.sync();
  west.core.sync();
  run();
  await time.advance(5_000);
  expect(events.map(({ kind }) => kind)).toContain("noRoom");
  expect(keeper.trouble).toEqual({ failing: 0, noRoom: 2 });
  east.core.remove("q");
  expect(keeper.trouble).toEqual({ failing: 0, noRoom: 1 });
  for (let chunk = 0; chunk < MAX_CHUNKS; chunk++)
    maps.put(chunkName(CELL, chunk), {}, { [BACKUP_LABEL]: cellTag(CELL) });
  keeper.cellWatched({ ...listed, reason: "outage" });
  await time.advance(5_000);
  expect(keeper.trouble).toEqual({ failing: 0, noRoom: 0 });
});

/** Stores backups as an earlier leader did. */
async function stored(maps: ConfigMaps, backups: readonly (readonly [core: string, name: string])[]): Promise<void> {
  const chunks = new BackupChunks({ api: maps, cellID: CELL, namespace: "system", timeoutMs: 1_000 });
  for (const [core, name] of backups) chunks.put(`${name}-uid`, encodeBackup(core, protector(name), CELL));
  await chunks.flush(new AbortController().signal);
}

test("a protector that is lost before its backup is written is backed up in its last version", async () => {
  const { time, cell, maps, run, east, west } = rig();
  cell.put("pod");
  cell.sync();
  const { metadata, spec } = protector("p");
  east.core.put("p", spec, { metadata });
  east.core.sync();
  west.core.sync();
  run();
  await time.advance(5_000);
  east.core.put("p", { ...spec, minAvailable: 2 }, { metadata });
  east.core.remove("p");
  east.core.put("q", protector("q").spec, { metadata: protector("q").metadata });
  east.core.remove("q");
  await time.advance(2_000);
  const stored = Object.values(maps.data(chunkName(CELL, 0)) ?? {}).map((text) => decodeBackup(text).object);
  expect(stored.map((one) => [one.metadata.uid, one.spec.minAvailable])).toEqual([
    ["p-uid", 2],
    ["q-uid", 1],
  ]);
});

test("a protector has a backup without its history where there is no room for both", async () => {
  const { time, cell, maps, run, east, west } = rig();
  const labels = { [BACKUP_LABEL]: cellTag(CELL) };
  for (let chunk = 0; chunk < MAX_CHUNKS / 2; chunk++)
    maps.put(chunkName(CELL, chunk), { [`other-${chunk}`]: "x".repeat(CHUNK_CHARACTERS) }, labels);
  cell.put("pod");
  cell.sync();
  const buckets = Array.from({ length: 100 }, (_, index) => ({ startTime: TIME, podUID: `${index}`.padEnd(100, "u") }));
  const cells = [{ cellID: CELL, admissionHistory: { buckets } }];
  const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
  const { metadata, spec } = protector("p");
  east.core.put("p", spec, { metadata, status: { cells, summary } });
  east.core.sync();
  west.core.sync();
  run();
  await time.advance(5_000);
  const stored = Object.values(maps.data(chunkName(CELL, MAX_CHUNKS / 2)) ?? {});
  expect(stored.map((text) => decodeBackup(text).object)).toEqual([expect.objectContaining({ spec })]);
  expect(stored.join()).not.toContain("uuu");
});

describe("a cell that goes back to older backups", () => {
  test.each([
    ["ends the others", ["another-uid", "lost-uid", "p-uid"]],
    ["keeps those whose successor is lost, too", ["another-uid", "lost-uid", "p-uid", "replaced-uid"]],
  ])("gets the missing backups again, also of lost protectors, and %s", async (_, left) => {
    const { time, cell, maps, keeper, run, east, west } = rig();
    cell.put("pod");
    cell.sync();
    for (const name of ["p", "lost"]) east.core.put(name, protector(name).spec, { metadata: protector(name).metadata });
    east.core.sync();
    west.core.sync();
    run();
    await time.advance(5_000);
    east.core.remove("lost");
    await time.advance(2_000);
    maps.maps.clear();
    await stored(maps, [["east", "replaced"]]);
    east.core.put("replaced", protector("replaced").spec, {
      metadata: { ...protector("replaced").metadata, uid: "another-uid" },
    });
    keeper.cellWatched({ ...listed, reason: "outage" });
    await time.advance(5_000);
    const uids = (): string[] => Object.keys(maps.data(chunkName(CELL, 0)) ?? {}).sort();
    // What was admitted before the loss may be committed for a settle period.
    expect(uids()).toEqual(["another-uid", "lost-uid", "p-uid", "replaced-uid"]);
    if (left.includes("replaced-uid")) east.core.remove("replaced");
    keeper.cellWatched({ ...listed, reason: "outage" });
    await time.advance(10_000);
    expect(uids()).toEqual(left);
  });

  test("gets all of them again within half a minute where somebody has deleted them", async () => {
    const { time, cell, maps, run, east, west } = rig();
    cell.put("pod");
    cell.sync();
    for (const name of ["p", "lost"]) east.core.put(name, protector(name).spec, { metadata: protector(name).metadata });
    east.core.sync();
    west.core.sync();
    run();
    await time.advance(35_000);
    east.core.remove("lost");
    await time.advance(2_000);
    maps.maps.clear();
    // Another object of the core changes: as heartbeats do.
    east.core.put("q", { ...protector("q").spec, selector: { matchLabels: { app: "q" } } });
    await time.advance(32_000);
    expect(Object.keys(maps.data(chunkName(CELL, 0)) ?? {}).sort()).toEqual(["lost-uid", "p-uid"]);
  });

  test("is read until it answers, and not written before", async () => {
    const { time, cell, maps, keeper, events, run, east, west } = rig();
    cell.put("pod");
    cell.sync();
    east.core.put("p", protector("p").spec, { metadata: protector("p").metadata });
    east.core.sync();
    west.core.sync();
    run();
    await time.advance(5_000);
    maps.maps.clear();
    const writes = maps.writes.length;
    maps.faults.push({ kind: "rejected", status: 500, message: "away" });
    keeper.cellWatched({ ...listed, reason: "outage" });
    east.core.put("q", protector("q").spec, { metadata: protector("q").metadata });
    await time.advance(1_000);
    expect([maps.writes.length, events.at(-1)?.kind]).toEqual([writes, "copyFailed"]);
    await time.advance(2_000);
    expect(Object.keys(maps.data(chunkName(CELL, 0)) ?? {}).sort()).toEqual(["p-uid", "q-uid"]);
  });
});

describe("a core that hangs", () => {
  test("stops neither copies nor versions, acknowledgements and restores of others, and gets few calls", async () => {
    const { time, cell, maps, created, run, east, west, hanging, hung } = rig();
    const lost = Array.from({ length: 200 }, (_, index) => ["east", `lost-${index}`] as const);
    await stored(maps, [...lost, ["west", "lost"]]);
    cell.put("pod");
    cell.sync();
    east.core.sync();
    west.core.sync();
    hanging.add("east");
    run();
    await time.advance(HEAD_START_MS + 5_000);
    expect(created).toEqual(["west lost"]);
    expect(west.register.writes.length).toBeGreaterThan(0);
    const { uid } = west.core.put("p", protector("p").spec).metadata;
    await time.advance(3_000);
    expect(Object.keys(maps.data(chunkName(CELL, 0)) ?? {})).toContain(uid);
    expect(JSON.parse(maps.data(versionsName(CELL))?.versions ?? "{}")).toHaveProperty(
      "west",
      west.core.protectors.position,
    );
    // One restore and one acknowledgement at a time, each a second long.
    expect(hung.length).toBeLessThan(2 * 38);
    hanging.clear();
    await time.advance(20_000);
    expect(new Set(created.filter((name) => name.startsWith("east"))).size).toBe(200);
  });
});

test("backups that can't be read are reported and counted", async () => {
  const { time, cell, maps, events, run, east, west } = rig();
  await stored(maps, [["east", "p"]]);
  maps.put(
    chunkName(CELL, 0),
    { ...maps.data(chunkName(CELL, 0)), "other-uid": "{" },
    maps.maps.get(chunkName(CELL, 0))?.metadata.labels ?? {},
  );
  cell.sync();
  east.core.sync();
  west.core.sync();
  run();
  await time.advance(5_000);
  expect(events).toContainEqual({ kind: "unreadable", keys: [`${chunkName(CELL, 0)}/other-uid`] });
});

test.each([
  ["whose stream lags behind what another leader noted is asked, and has lost nothing", "2100", [], 0],
  ["that is older than what another leader noted was restored", "1001", ["east 2000 > 1001"], 1],
])("a core %s", async (_, serverVersion, wentBack, lost) => {
  const { time, cell, maps, events, keeper, run, east, west } = rig();
  await stored(maps, [["east", "late"]]);
  const chunks = new BackupChunks({ api: maps, cellID: CELL, namespace: "system", timeoutMs: 1_000 });
  await chunks.putVersions({ east: "2000" }, new AbortController().signal);
  const found = (): string[] =>
    events.flatMap((event) => (event.kind === "coreWentBack" ? [`${event.core} ${event.from} > ${event.to}`] : []));
  cell.sync();
  east.core.put("p", protector("p").spec);
  east.core.sync();
  west.core.sync();
  run();
  await time.advance(40_000);
  expect([found(), east.protectors.asked]).toEqual([[], 1]);
  Object.assign(east.protectors, { serverVersion, quorumSentMs: time.elapsedMs });
  await time.advance(40_000);
  expect([found(), keeper.lost]).toEqual([wentBack, lost]);
});

describe("a core that can't be reached", () => {
  test("delays neither backups nor restores of the other cores", async () => {
    const { time, cell, maps, created, run, east } = rig();
    await stored(maps, [["east", "lost"]]);
    cell.put("pod");
    cell.sync();
    east.core.put("p", protector("p").spec);
    east.core.sync();
    run();
    await time.advance(HEAD_START_MS + 10_000);
    expect(Object.keys(maps.data(chunkName(CELL, 0)) ?? {})).toContain(east.core.get("p").metadata.uid);
    expect(created).toContain("east lost");
  });

  test("has lost nothing, and gets no acknowledgement, until it is listed", async () => {
    const { time, cell, maps, created, events, keeper, run, east, west } = rig();
    await stored(maps, [
      ["west", "kept"],
      ["west", "gone"],
    ]);
    cell.sync();
    east.core.sync();
    run();
    await time.advance(2 * HEAD_START_MS);
    expect([created, keeper.lost, keeper.backups, west.register.writes]).toEqual([[], 0, 2, []]);
    west.core.put("kept", {}, { metadata: protector("kept").metadata });
    west.core.sync();
    await time.advance(2 * HEAD_START_MS);
    expect(created[0]).toBe("west gone");
    expect(events.filter(({ kind }) => kind === "vanished")).toHaveLength(1);
    expect(west.register.writes.length).toBeGreaterThan(0);
  });
});
