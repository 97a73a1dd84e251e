/**
 * The alert rules by promtool's own unit tests: each fires when it should, and not when all is well. At full size only, because promtool
 * is built from sources where it is not installed.
 */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ensurePromtool } from "../../scripts/control-plane/promtool.ts";
import { root } from "../../scripts/root.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";

describe.runIf(FULL)("promtool", () => {
  test.each([[["check", "rules", "rules.yaml"]], [["test", "rules", "rules.test.yaml"]]])("%j", async (args) => {
    const { status, stdout, stderr } = spawnSync(await ensurePromtool(), args, {
      cwd: join(root, "manifests/monitoring"),
      encoding: "utf8",
    });
    process.stdout.write(stdout);
    expect(stderr).toBe("");
    expect(status).toBe(0);
  });
});
