import { describe, expect, test } from "vitest";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { pod, protector } from "../../test/support/webhook/fixtures.ts";
import { generated, LostProtectorHarness, VANISHED } from "../../test/support/webhook/lost-protector-harness.ts";

describe("the backups of the cells, at the start", () => {
  const version = (object: PodProtector): ProtectorVersion => new ProtectorVersion(object, 0);

  test("a protector in neither the core nor the register is lost", async () => {
    const harness = new LostProtectorHarness(undefined);
    harness.source.swap(new Map(), "90", false);
    harness.core.adopt({ entries: [version(generated())], versions: ["80"] });
    expect(harness.core.lostCount).toBe(1);
    expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
    expect(harness.lost).toEqual([]);
  });

  test.each<[string, PodProtector, readonly string[], number]>([
    ["a recorded protector", generated(), ["uid-of-web"], 0],
    ["a protector made by hand", protector(5), [], 0],
  ])("%s is not lost", (_name, object, recorded, lostCount) => {
    const harness = new LostProtectorHarness(undefined);
    harness.source.swap(new Map(), "90", false);
    for (const uid of recorded) harness.recorded.add(uid);
    harness.core.adopt({ entries: [version(object)], versions: [] });
    expect(harness.core.lostCount).toBe(lostCount);
  });

  test.each(["the older first", "the younger first"])(
    "of two of one name the younger is in force: %s",
    async (order) => {
      const harness = new LostProtectorHarness(undefined);
      harness.source.swap(new Map(), "90", false);
      const of = (uid: string, creationTimestamp: string, app: string): ProtectorVersion => {
        const { metadata, spec, ...rest } = generated();
        const selector = { matchLabels: { app } };
        return version({ ...rest, metadata: { ...metadata, uid, creationTimestamp }, spec: { ...spec, selector } });
      };
      const entries = [
        of("old", "2026-01-01T00:00:00Z", "other"),
        of("old", "2026-01-01T00:00:00Z", "changed"),
        of("young", "2026-01-01T00:01:00Z", "web"),
      ];
      if (order === "the younger first") entries.reverse();
      for (const entry of entries) harness.core.adopt({ entries: [entry], versions: [] });
      expect(await harness.ask(pod("a"))).toMatchObject({ decisions: [{ decision: { kind: "lost", uid: "young" } }] });
      for (const app of ["other", "changed"])
        expect(await harness.ask(pod("b", { labels: { app } }))).toEqual({ kind: "allowed", decisions: [] });
    },
  );

  describe("of two of one object, which differ, both are in force", () => {
    function bothAdopted(recorded: readonly string[] = []): LostProtectorHarness {
      const harness = new LostProtectorHarness(undefined);
      harness.source.swap(new Map(), "90", false);
      for (const uid of recorded) harness.recorded.add(uid);
      for (const matchLabels of [{ app: "other" }, { app: "web" }, { app: "web" }])
        harness.core.adopt({ entries: [version(generated({ selector: { matchLabels } }))], versions: [] });
      return harness;
    }
    const other: Pod = { ...pod("b"), labels: { app: "other" } };

    test("under the name of the object", async () => {
      const harness = bothAdopted();
      for (const of of [pod("a"), other])
        expect(await harness.ask(of)).toMatchObject({ decisions: [{ protector: { name: "web" } }] });
    });

    test("a pod that is relabelled from one to the other leaves the first", async () => {
      const harness = new LostProtectorHarness(undefined);
      harness.source.swap(new Map(), "90", false);
      const protectedOperations = ["UPDATE"];
      for (const matchLabels of [{ app: "other" }, { app: "web" }])
        harness.core.adopt({
          entries: [version(generated({ selector: { matchLabels }, protectedOperations }))],
          versions: [],
        });
      const change = { operation: "UPDATE", labelsAfter: { app: "web" } } as const;
      expect(await harness.ask(other, change)).toMatchObject(VANISHED);
    });

    test("whichever was read first", async () => {
      const harness = bothAdopted();
      expect(harness.core.lostCount).toBe(1);
      expect(harness.told).toEqual(["default/web vanished"]);
      expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
      expect(await harness.ask(other)).toMatchObject(VANISHED);
    });

    test("and a pod that both cover is denied once", async () => {
      const harness = bothAdopted();
      const spec = { selector: { matchLabels: { app: "web" } }, minAvailable: 0 };
      harness.core.adopt({ entries: [version(generated(spec))], versions: [] });
      const verdict = await harness.ask(pod("a"));
      expect(verdict).toMatchObject({ kind: "denied", decisions: [{ decision: { kind: "lost" } }] });
      expect(verdict.kind === "denied" && verdict.decisions).toHaveLength(1);
    });

    test("until the protector is back", async () => {
      const harness = bothAdopted();
      harness.show(generated());
      expect(await harness.ask(pod("a"))).toMatchObject({ kind: "allowed" });
      expect(await harness.ask(other)).toEqual({ kind: "allowed", decisions: [] });
      harness.vanish();
      expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
      expect(await harness.ask(other)).toEqual({ kind: "allowed", decisions: [] });
    });

    test("until it is released", async () => {
      const harness = bothAdopted();
      harness.recorded.add("uid-of-web");
      harness.core.dropReleased();
      expect(harness.core.isEmpty).toBe(true);
      for (const of of [pod("a"), other]) expect(await harness.ask(of)).toEqual({ kind: "allowed", decisions: [] });
    });

    test("unless its release was known before", () => {
      expect(bothAdopted(["uid-of-web"]).core.isEmpty).toBe(true);
    });

    test("or a younger object of the name was lost", async () => {
      const harness = bothAdopted();
      const { metadata, ...rest } = generated();
      const creationTimestamp = "2036-01-01T00:00:00Z";
      harness.core.adopt({
        entries: [version({ ...rest, metadata: { ...metadata, uid: "young", creationTimestamp } })],
        versions: [],
      });
      expect(await harness.ask(pod("a"))).toMatchObject({ decisions: [{ decision: { kind: "lost", uid: "young" } }] });
      expect(await harness.ask(other)).toEqual({ kind: "allowed", decisions: [] });
    });
  });

  test("a protector that exists is not lost", async () => {
    const harness = new LostProtectorHarness(generated());
    harness.core.adopt({ entries: [version(generated())], versions: [] });
    expect([harness.core.lostCount, harness.lost, harness.told]).toEqual([0, [], []]);
    expect(await harness.ask(pod("a"))).toMatchObject({ kind: "allowed" });
  });

  test("a core older than its highest version has lost history, and protectors made by hand", async () => {
    const harness = new LostProtectorHarness(generated());
    const other = protector(5, { name: "other" });
    harness.core.adopt({ entries: [version(other)], versions: ["1000"] });
    expect(harness.lost).toEqual(["wentBack default/web"]);
    expect(harness.told).toEqual(["default/other vanished"]);
  });

  test.each<[string, string, readonly string[]]>([
    ["its predecessor", "2036-01-01T00:00:00Z", ["wentBack default/web"]],
    ["its successor", "2016-01-01T00:00:00Z", ["replaced default/web"]],
  ])("a core at a higher version that has %s of what was backed up", (_name, creationTimestamp, lost) => {
    const { metadata, ...rest } = generated();
    const created = (uid: string, at: string): PodProtector => ({
      ...rest,
      metadata: { ...metadata, uid, creationTimestamp: at },
    });
    const harness = new LostProtectorHarness(created("uid-of-web", "2026-01-01T00:00:00Z"));
    const entry = version(created("other", creationTimestamp));
    harness.core.adopt({ entries: [entry], versions: ["1"] });
    expect(harness.lost).toEqual(lost);
    expect(harness.core.lostCount).toBe(0);
  });

  test("the successor of a protector that was released has lost nothing", () => {
    const harness = new LostProtectorHarness(generated());
    const { metadata, ...rest } = generated();
    harness.recorded.add("other");
    harness.core.adopt({ entries: [version({ ...rest, metadata: { ...metadata, uid: "other" } })], versions: ["1"] });
    expect(harness.lost).toEqual([]);
  });

  test("a core that went on by what a restore adds has lost protectors made by hand", async () => {
    const harness = new LostProtectorHarness(undefined);
    harness.source.swap(new Map(), "1000000070", false);
    harness.core.adopt({ entries: [version(protector(5))], versions: ["80"] });
    expect(harness.told).toEqual(["default/web vanished"]);
    expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
  });

  test("a protector made by hand is lost where an aggregator found that a restored core lacks it", () => {
    const harness = new LostProtectorHarness(undefined);
    harness.source.swap(new Map(), "90", false);
    harness.core.adopt({ entries: [version(protector(5))], versions: ["80"], lost: new Set(["uid-of-web"]) });
    expect(harness.told).toEqual(["default/web vanished"]);
  });

  test.each<[string, string, readonly string[], number]>([
    ["went on by writes", "900000080", ["81"], 0],
    ["went on by what a restore adds", "1000000070", ["80"], 1],
    ["was not seen before", "1000000070", [], 0],
    ["has versions that are no numbers", "x", ["80"], 0],
  ])("a core whose version %s", (_name, position, versions, comebacks) => {
    const harness = new LostProtectorHarness(undefined);
    harness.source.swap(new Map(), position, false);
    harness.core.adopt({ entries: [], versions });
    expect(harness.comebacks).toBe(comebacks);
  });
});
