/**
 * Histories under random faults: in each, pods are deleted and evicted at once while something breaks, and the whole
 * record is judged. Three by default, a hundred at full size.
 */
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { TestEnvironment } from "../../scripts/environment/environment.ts";
import { eachAtMost } from "../../shared/runtime/each-at-most.ts";
import { Chance } from "../simulation/scenario/random.ts";
import { loadSpecification } from "../spec/specification.ts";
import { createReadyPods, readyPods, setReady } from "../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../support/cluster/protectors.ts";
import { HistoryRecorder } from "../support/history/history-recorder.ts";
import { judge } from "./checker/judge.ts";
import { CELL, CELLS, PODS, SETTLE } from "./recorded-installation.ts";
import { replayAll } from "./replay/replay-all.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
/** Each environment is recorded and judged as a whole. */
const ENVIRONMENTS = FULL ? 10 : 1;
const EACH = FULL ? 10 : 3;
const PAUSE_MS = 3_000;
/** Denials of each record that are turned into admissions, each alone, to see the checker notice. */
const FLIPS = 2;

type Fault = (environment: TestEnvironment, chance: Chance, recorder: HistoryRecorder) => Promise<void>;

const clusterOf = (environment: TestEnvironment, chance: Chance) =>
  chance.pick([environment.core, ...environment.cells.values()]);
/** By the name under which the replay knows that an aggregator begins anew. */
const componentOf = ({ webhooks, aggregators }: TestEnvironment, chance: Chance) =>
  chance.pick([
    ...webhooks.map(({ component }, index) => ({ name: `replica ${index + 1}`, process: component.process })),
    ...[...aggregators].map(([cell, { process }]) => ({ name: `aggregator ${cell}`, process })),
  ]);

const FAULTS: Readonly<Record<string, Fault>> = {
  nothing: async () => {},
  "a component is killed": async (environment, chance, recorder) => {
    const { name, process: victim } = componentOf(environment, chance);
    await recorder.during(name, async () => {
      await victim.kill("SIGKILL");
      await victim.start();
    });
  },
  "a component is frozen": async (environment, chance) => {
    const { process: victim } = componentOf(environment, chance);
    victim.freeze();
    await delay(PAUSE_MS);
    victim.thaw();
  },
  "an apiserver is killed": async (environment, chance) => {
    const { "kube-apiserver": apiserver } = clusterOf(environment, chance).processes;
    await apiserver.kill("SIGKILL");
    await apiserver.start();
  },
  "an etcd is killed": async (environment, chance) => {
    const { etcd } = clusterOf(environment, chance).processes;
    await etcd.kill("SIGKILL");
    await etcd.start();
  },
  "an etcd is frozen": async (environment, chance) => {
    const { etcd } = clusterOf(environment, chance).processes;
    etcd.freeze();
    await delay(PAUSE_MS);
    etcd.thaw();
  },
  "an etcd is restored": async (environment, chance) => {
    const cluster = clusterOf(environment, chance);
    const snapshot = cluster.snapshotEtcd();
    await delay(chance.between(0, PAUSE_MS));
    await cluster.restoreEtcd(snapshot);
  },
};

type How = "delete" | "evict" | "flap";

interface Target {
  readonly cell: string;
  readonly name: string;
}

/** Deletes or evicts a pod, whatever becomes of it, or takes its readiness away for a moment. */
async function disrupt(environment: TestEnvironment, { cell, name }: Target, how: How): Promise<void> {
  const cluster = environment.cell(cell);
  const { admin } = cluster;
  if (how === "flap") {
    await setReady(cluster, "default", name, false);
    await setReady(cluster, "default", name, true);
  } else if (how === "evict") {
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: "default" } };
    await admin.request("POST", `${PODS}/${name}/eviction`, body);
  } else await admin.request("DELETE", `${PODS}/${name}`);
}

async function play(environment: TestEnvironment, recorder: HistoryRecorder, seed: number): Promise<void> {
  const chance = new Chance(seed);
  const app = `seed-${seed}`;
  const count = chance.between(4, 20);
  const minAvailable = chance.between(1, 2 * count - 1);
  const spec = { minAvailable, selector: { matchLabels: { app } } };
  await createProtector(environment.core, "default", app, spec);
  const targets: Target[] = [];
  for (const cell of CELLS) {
    const pods = { namespace: "default", prefix: `${app}-${cell}`, count, labels: { app } };
    const names = await createReadyPods(environment.cell(cell), pods);
    targets.push(...names.map((name) => ({ cell, name })));
  }
  await waitUntilSettled(environment.core, "default", app, 2 * count);
  await recorder.untilKnown();
  const fault = chance.pick(Object.keys(FAULTS));
  process.stdout.write(`seed ${seed}: ${minAvailable} of ${2 * count} pods are promised; ${fault}\n`);
  // A pod that is lost by itself may be one too many.
  const hasFlaps = chance.chance(0.3);
  const ways: readonly How[] = hasFlaps ? ["delete", "evict", "flap"] : ["delete", "delete", "evict"];
  const attempts = [...targets, ...targets].map((target) => ({ target, how: chance.pick(ways) }));
  const during = recorder.during(fault, async () => await FAULTS[fault]?.(environment, chance, recorder));
  await eachAtMost(chance.between(1, 20), attempts, async ({ target, how }) => {
    await disrupt(environment, target, how).catch(() => undefined);
  });
  await during;
  const left = async (): Promise<number> => await readyPods(environment.cells.values(), app);
  await waitUntilSettled(environment.core, "default", app, left);
  if (!hasFlaps) expect(await left()).toBeGreaterThanOrEqual(minAvailable);
}

/** Writes a history that failed to a file, and returns its name. */
function kept(lines: readonly string[]): string {
  const file = join(mkdtempSync(join(tmpdir(), "podseidon-history-")), "history.ndjson");
  writeFileSync(file, lines.join("\n"));
  return file;
}

/** What the specification has no word for, and what leaves too much open, is told; nothing may be refused. */
function replayedToo(lines: readonly string[]): void {
  const worlds = replayAll(loadSpecification(), lines);
  for (const { protectors, outcome, reason, events, states } of worlds)
    process.stdout.write(`${protectors.join()}: ${outcome}, ${reason ?? `${events} events, ${states} states`}\n`);
  const refused = worlds.filter(({ outcome }) => outcome === "refused");
  expect(refused, refused.length === 0 ? "" : kept(lines)).toEqual([]);
  if (!FULL) expect(worlds.map(({ outcome }) => outcome)).toContain("replayed");
}

describe.each(Array.from({ length: ENVIRONMENTS }, (_, index) => index * EACH + 1))("from seed %i", (first) => {
  test(`${EACH} histories fit`, async () => {
    const { environment, recorder } = await HistoryRecorder.start({
      cells: CELLS,
      replicas: 2,
      cell: CELL,
      settle: SETTLE,
    });
    try {
      for (let seed = first; seed < first + EACH; seed++) await play(environment, recorder, seed);
      const lines = await recorder.judged();
      replayedToo(lines);
      const denials = lines.filter((line) => line.includes('"operation":"DELETE"') && line.includes("=AtMinimum"));
      expect(denials).not.toEqual([]);
      for (const denial of denials.slice(0, FLIPS)) {
        const flipped = denial.replace('"allowed":false', '"allowed":true');
        const { violations } = judge(lines.map((line) => (line === denial ? flipped : line)));
        expect(violations).toEqual([expect.stringContaining("was allowed, and no version records it")]);
      }
    } finally {
      await environment.stop();
    }
  });
});
