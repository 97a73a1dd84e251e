import { describe, expect, test } from "vitest";
import { chunkName, encodeBackup, VERSIONS_KEY, versionsName } from "../../../shared/recovery/backup/backup-format.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { makeCell, makeProtector } from "../../../test/support/decide/fixtures.ts";
import { backupFindings } from "./backup-findings.ts";

const NOW_MS = Date.parse("2026-01-01T12:00:00Z");

function protector(name: string): PodProtector {
  const made = makeProtector([makeCell("a", 4)]);
  return { ...made, metadata: { ...made.metadata, namespace: "shop", name, uid: `uid-${name}` } };
}
const text = (one: PodProtector): string => encodeBackup("core", one, "a");

const map = (name: string, agoMs: number, data: Record<string, string>): unknown => ({
  metadata: {
    ...{ name, uid: name, resourceVersion: "1" },
    managedFields: [
      { manager: "before", time: new Date(NOW_MS - 7_200_000).toISOString() },
      { manager: "podseidon", time: new Date(NOW_MS - agoMs).toISOString() },
    ],
  },
  data,
});
const versions = (agoMs: number): unknown => map(versionsName("a"), agoMs, { [VERSIONS_KEY]: '{"core":"12"}' });
const [web, db] = [protector("web"), protector("db")];
const both = { [web.metadata.uid]: text(web), [db.metadata.uid]: text(db) };
const chunk = (data: Record<string, string>): unknown => map(chunkName("a", 0), 3_600_000, data);

describe("the backups of a cell", () => {
  test("of all its protectors are in order, however long ago each was written", () => {
    const findings = backupFindings([web, db], [chunk(both), versions(40_000)], NOW_MS, "podseidon-system");
    expect(findings).toEqual([{ check: "backups", level: "ok", found: "of 2 protectors", advice: "" }]);
  });

  test("are not asked for where no protector has pods", () => {
    expect(backupFindings([], [], NOW_MS, "podseidon-system")).toEqual([]);
  });

  test.each<[string, readonly unknown[], readonly string[]]>([
    ["there are none", [], ["there are none, for 2 protectors with pods here"]],
    [
      "one has none",
      [chunk({ [web.metadata.uid]: text(web) }), versions(0)],
      ["missing of shop/db: what the core loses"],
    ],
    ["they are old", [chunk(both), versions(3_600_000)], ["not written since 60m"]],
    [
      "one can't be read",
      [chunk({ ...both, [db.metadata.uid]: "{" }), versions(0)],
      ["missing of shop/db", `can't be read: ${chunkName("a", 0)}/uid-db`],
    ],
    [
      "the versions can't be read",
      [chunk(both), map(versionsName("a"), 0, { [VERSIONS_KEY]: "[]" })],
      [`can't be read: ${versionsName("a")}/versions`],
    ],
  ])("%s: told, with what to do", (_, maps, expected) => {
    const findings = backupFindings([web, db], maps, NOW_MS, "elsewhere");
    expect(findings.map(({ found }) => found)).toEqual(expected.map((part) => expect.stringContaining(part)));
    for (const { level, advice } of findings) {
      expect(level).toBe("warning");
      expect(advice).toContain("kubectl --namespace elsewhere ");
    }
  });
});
