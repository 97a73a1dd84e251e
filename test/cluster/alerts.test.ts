/**
 * The unit tests of the alert rules with promtool: each alert fires when it should, and not in normal operation. The
 * dashboard's queries are valid. At full size only, because promtool is built from source where it is not installed.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { root } from "../../scripts/root.ts";
import { ensurePromtool } from "../support/cluster/test-tools.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";

const MONITORING = join(root, "manifests/monitoring");

describe.runIf(FULL)("promtool", () => {
  test("reads every query of the dashboard", async () => {
    const dashboard = readFileSync(join(MONITORING, "dashboard.json"), "utf8");
    const queries = [...dashboard.matchAll(/"expr": ("(?:[^"\\]|\\.)*")/g)].map(([, expr = '""']) =>
      String(JSON.parse(expr)).replaceAll("$__rate_interval", "5m"),
    );
    expect(queries.length).toBeGreaterThan(20);
    const rules = queries.map((expr, index) => ({ record: `query_${index}`, expr }));
    const directory = mkdtempSync(join(tmpdir(), "podseidon-queries-"));
    try {
      // YAML is a superset of JSON.
      writeFileSync(join(directory, "queries.yaml"), JSON.stringify({ groups: [{ name: "dashboard", rules }] }));
      const args = ["check", "rules", join(directory, "queries.yaml")];
      const { status, stderr } = spawnSync(await ensurePromtool(), args, { encoding: "utf8" });
      expect([status, stderr]).toEqual([0, ""]);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });

  test.each([[["check", "rules", "rules.yaml"]], [["test", "rules", "rules.test.yaml"]]])("%j", async (args) => {
    const { status, stdout, stderr } = spawnSync(await ensurePromtool(), args, {
      cwd: MONITORING,
      encoding: "utf8",
    });
    process.stdout.write(stdout);
    expect(stderr).toBe("");
    expect(status).toBe(0);
  });
});
