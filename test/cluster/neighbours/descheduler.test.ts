/**
 * The descheduler's evictions: a run ends, evicts no more than the protectors of all clusters allow, and says which
 * pods it left (docs/neighbours.md#descheduler). With PODSEIDON_TEST_SIZE=full only, because the descheduler is built
 * for it.
 */
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { ensureNeighbour, neighbourVersion } from "../../support/neighbours/binaries.ts";
import { changePromise, deployProtected, podsOf } from "../../support/neighbours/protected-deployment.ts";

/** In each of two clusters. */
const REPLICAS = 4;
const CELLS = ["east", "west"];
const RUN_WITHIN_MS = 5 * 60_000;

/** Every running pod is too old. */
const POLICY = {
  apiVersion: "descheduler/v1alpha2",
  kind: "DeschedulerPolicy",
  profiles: [
    {
      name: "old-pods",
      pluginConfig: [{ name: "PodLifeTime", args: { states: ["Running"], namespaces: { include: ["default"] } } }],
      plugins: { deschedule: { enabled: ["PodLifeTime"] } },
    },
  ],
};

let binary: string;
let environment: TestEnvironment;
let clusters: readonly Cluster[];

interface Run {
  readonly code: number;
  readonly evicted: number;
  /** What it says of each pod that it was not allowed to evict. */
  readonly refused: readonly string[];
}

/** Runs it once over a cluster. */
function deschedule(cluster: Cluster): Promise<Run> {
  const policy = join(cluster.directory, "policy.json");
  writeFileSync(policy, JSON.stringify(POLICY));
  const args = ["--kubeconfig", cluster.kubeconfig, "--policy-config-file", policy, "--secure-port=0", "--v=1"];
  const options = { timeout: RUN_WITHIN_MS, maxBuffer: 16 * 1024 * 1024 };
  return new Promise((resolve) => {
    execFile(binary, args, options, (error, _stdout, stderr) => {
      const lines = stderr.split("\n");
      resolve({
        code: error === null ? 0 : Number(error.code ?? -1),
        evicted: lines.filter((line) => line.includes('"Evicted pod"')).length,
        refused: lines.filter((line) => line.includes('"Error evicting pod"')),
      });
    });
  });
}

function tell(name: string, lowest: number, promised: number, runs: readonly Run[]): void {
  const each = runs.map(({ code, evicted, refused }) => `exit ${code}, ${evicted} evicted, ${refused.length} refused`);
  process.stdout.write(`descheduler ${neighbourVersion("descheduler")}, ${name}: ${each.join("; ")}; `);
  process.stdout.write(`lowest ${lowest} of ${promised} promised\n`);
}

const uids = async (): Promise<unknown[]> =>
  (await podsOf(clusters, "web")).map((pod) => field(pod, "metadata", "uid")).sort();

describe.runIf(process.env.PODSEIDON_TEST_SIZE === "full")("with the descheduler", () => {
  beforeAll(async () => {
    ({ binary } = await ensureNeighbour("descheduler"));
    environment = await TestEnvironment.start({ cells: CELLS, replicas: 1, settle: "8s", cell: { nodes: 2 } });
    clusters = CELLS.map((cell) => environment.cell(cell));
  }, 60 * 60_000);

  afterAll(() => environment?.stop());

  test("a run of the descheduler evicts what the protector can spare, in all clusters together", async () => {
    const total = REPLICAS * CELLS.length;
    await deployProtected(environment, "web", { replicas: REPLICAS, minAvailable: total });
    const before = await uids();
    await using availability = await AvailabilityJudge.watch(clusters, "default", "app=web");

    availability.from();
    const denied = await Promise.all(clusters.map(deschedule));
    tell("at the minimum", availability.lowest, total, denied);
    for (const { code, evicted, refused } of denied) {
      expect({ code, evicted, refused: refused.length }).toEqual({ code: 0, evicted: 0, refused: REPLICAS });
      expect(refused[0]).toMatch(/error when evicting pod \(ignoring\).*needs 8 available pods, 8 are available/);
    }
    expect(await uids()).toEqual(before);

    const promised = total - 2;
    await changePromise(environment, "web", promised);
    availability.from();
    const runs = await Promise.all(clusters.map(deschedule));
    await availability.catchUp();
    tell("with a quota of two", availability.lowest, promised, runs);
    for (const { code, evicted, refused } of runs) expect([code, evicted + refused.length]).toEqual([0, REPLICAS]);
    expect(runs.reduce((sum, { evicted }) => sum + evicted, 0)).toBeGreaterThanOrEqual(2);
    expect(availability.lowest).toBeGreaterThanOrEqual(promised);
    expect((await uids()).filter((uid) => before.includes(uid)).length).toBeLessThanOrEqual(promised);
  });
});
