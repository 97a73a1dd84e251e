/** What keepers know of a restored core whose versions have passed those from before. */
import { afterEach, expect, test } from "vitest";
import { Membership } from "../../../controllers/aggregator/counting/membership.ts";
import { ConfigMaps } from "../../../test/support/aggregator/config-maps.ts";
import { FakeCell, FakeCore } from "../../../test/support/aggregator/fake-clusters.ts";
import { leadKeeper } from "../../../test/support/aggregator/lead-keeper.ts";
import { page, ScriptedStream, ScriptedTransport } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { ReleaseRegister } from "../register/release-register.ts";
import { BackupChunks } from "./backup-chunks.ts";
import { encodeBackup, versionsName } from "./backup-format.ts";
import { BackupKeeper } from "./backup-keeper.ts";
import { isBehindAny } from "./core-versions.ts";

const CELL = "cell";
const SETTLE_MS = 60_000;
const WENT_BACK = { kind: "versionWentBack", from: "2000", to: "1500" } as const;
const BY_HAND = {
  metadata: { name: "p", namespace: "ns", uid: "p1", resourceVersion: "7", creationTimestamp: "2026-01-01T00:00:00Z" },
  spec: { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: "p" } } },
};

const ends: (() => Promise<void>)[] = [];
afterEach(() => Promise.all(ends.splice(0).map((end) => end())));

/** One cell, in which 2000 is noted, and one core, which is at 2100. */
async function rig() {
  const time = new VirtualTime();
  const cell = new FakeCell();
  const membership = new Membership(cell, time);
  const maps = new ConfigMaps();
  const told: string[] = [];
  const core = new FakeCore("core", time);
  membership.followProtectors("core", core.protectors);
  const transport = new ScriptedTransport();
  for (let list = 0; list < 100; list++) transport.lists.push(page("5", []));
  transport.watches.push(new ScriptedStream());
  const releases = new ReleaseRegister({ core: "core", transport, ports: time, namespace: "system" });
  const register = new ConfigMaps();
  const keeper = new BackupKeeper({
    ...{ cellID: CELL, ports: time, cellApi: maps, namespace: "system", membership },
    cores: [
      {
        ...{ name: "core", protectors: core.protectors, releases },
        api: {
          ...core.access.api,
          create: async (path, body, parse) => await register.create(path, body, parse),
          patch: async (path, type, body, parse) => await register.patch(path, type, body, parse),
        },
      },
    ],
    ...{ settleMs: SETTLE_MS, headStartMs: 3_600_000, everyMs: 1_000, timeoutMs: 1_000 },
    mayWrite: () => true,
    coreRestored: () => {},
    onEvent: ({ kind }) => told.push(kind),
  });
  const chunks = new BackupChunks({ api: maps, cellID: CELL, namespace: "system", timeoutMs: 1_000 });
  const { signal } = new AbortController();
  await chunks.read(signal);
  chunks.put(BY_HAND.metadata.uid, encodeBackup("core", BY_HAND, CELL));
  await chunks.flush(signal);
  await chunks.putVersions({ core: "2000" }, signal);
  cell.sync();
  core.sync();
  Object.defineProperty(core.protectors, "position", { configurable: true, get: () => "2100" });
  const noted = (): string => JSON.parse(maps.data(versionsName(CELL))?.versions ?? "{}").core;
  return { time, cell, core, keeper, told, noted, run: (): void => void ends.push(leadKeeper(keeper, time)) };
}

test("a process that starts within a settle period learns of a restore that the core has passed again", async () => {
  const { time, keeper, noted, run } = await rig();
  run();
  await time.advance(5_000);
  expect(noted()).toBe("2100");
  keeper.watched("core", WENT_BACK);
  await time.advance(2_000);
  expect(isBehindAny("9999", [noted()])).toBe(true);
  await time.advance(SETTLE_MS + 60_000);
  expect(noted()).toBe("2100");
});

test.each([
  ["has ended for a leader that has seen no restore", 0, "ended"],
  ["is lost for a leader that has seen the restore as a standby", 1, "vanished"],
  ["has ended for a leader that has seen a restore long ago", SETTLE_MS, "ended"],
])("a protector made by hand that a core with higher versions lacks %s", async (_, waitMs, found) => {
  const { time, keeper, told, run } = await rig();
  if (waitMs > 0) keeper.watched("core", WENT_BACK);
  await time.advance(waitMs);
  run();
  await time.advance(5_000);
  expect(told.filter((kind) => kind === "ended" || kind === "vanished")).toEqual([found]);
});

test.each([
  ["is lost, also for the leader that has counted it, where they were raised", "1000002100", "7", "vanished"],
  ["has ended for that leader where they were not", "2200", "7", "ended"],
  ["has ended for that leader where it was written since they were raised", "1000002100", "1000002050", "ended"],
])("a protector made by hand that a core with higher versions lacks %s", async (_, position, version, found) => {
  const { time, cell, core, told, run } = await rig();
  core.objects.set("p", { ...BY_HAND, metadata: { ...BY_HAND.metadata, resourceVersion: version } });
  core.sync();
  cell.put("a");
  run();
  await time.advance(5_000);
  expect(told).not.toContain("ended");
  core.objects.clear();
  Object.defineProperty(core.protectors, "position", { get: () => position });
  core.sync();
  await time.advance(5_000);
  expect(told.filter((kind) => kind === "ended" || kind === "vanished")).toEqual([found]);
});
