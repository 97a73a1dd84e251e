/** The health check of docs/gitops.md, in the Lua that Argo CD has. (Other files of test/cluster test the page too.) */

import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { load } from "js-yaml";
import { describe, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { block } from "../../support/cluster/documented.ts";
import { ensureGlua } from "../../support/cluster/test-tools.ts";
import { temporaryDirectory } from "../../support/runtime/temporary-directory.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const PAGE = readFileSync(new URL("../../../docs/gitops.md", import.meta.url), "utf8");
const KEY = "resource.customizations.health.podseidon.kubewharf.io_PodProtector";
const directory = temporaryDirectory();

/** `Type=Status` for each condition; its message is its type. */
async function healthWith(conditions: readonly string[]): Promise<string> {
  const tables = conditions.map((one) => {
    const [type, status] = one.split("=");
    return `{ type = "${type}", status = "${status}", message = "${type}" }`;
  });
  const check = String(field(load(block(PAGE, "the health of a protector")), "data", KEY));
  const status = conditions.length === 0 ? "" : `status = { conditions = { ${tables.join(", ")} } }`;
  const file = join(directory, "check.lua");
  const call = `local function check()\n${check}\nend\nlocal health = check()`;
  writeFileSync(file, `obj = { ${status} }\n${call}\nprint(health.status .. ": " .. health.message)\n`);
  return (await promisify(execFile)(await ensureGlua(), [file])).stdout.trim();
}

describe.runIf(FULL)("the health of a protector in Argo CD", () => {
  test.each([
    [[], "Progressing: No cell has been counted yet"],
    [["Healthy=Unknown"], "Progressing: No cell has been counted yet"],
    [["Healthy=True", "DisruptionImpossible=False"], "Healthy: Healthy"],
    [["Healthy=False"], "Degraded: Healthy"],
    [["Healthy=True", "Suspended=True"], "Suspended: Suspended"],
    [["Healthy=True", "Suspended=False"], "Healthy: Healthy"],
    [["Healthy=True", "SourceVanished=True"], "Degraded: SourceVanished"],
    [["Healthy=True", "Suspended=True", "SourceDeleting=True"], "Degraded: SourceDeleting"],
  ])("%j", async (conditions, expected) => {
    expect(await healthWith(conditions)).toBe(expected);
  });
});
