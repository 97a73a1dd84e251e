/** A rolling update of 200 replicas and a drain of a node with 50 protected pods, with the project and without it. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { Cluster } from "../control-plane/cluster.ts";
import { TestEnvironment } from "../environment/environment.ts";
import { deploy, drain, type Figures, type RolloutSite, roll } from "./rollout.ts";
import { ratio, table } from "./table.ts";

const ROLLED = 200;
/** Spread over three nodes, so that a drain moves 50. */
const DRAINED = 150;
const CELL = { nodes: 3 };
const CRD = resolve(import.meta.dirname, "../../crds/podseidon.kubewharf.io_podprotectors.yaml");

interface Both {
  readonly rolled: Figures;
  readonly drained: Figures;
}

/** The registrations, the webhooks and the aggregator are there in one of the two clusters only; the clusters follow each other. */
export async function rolloutTable(): Promise<string> {
  const without = await withoutProject();
  const withIt = await withProject();
  const line = (title: string, of: (both: Both) => Figures): string[] => [
    title,
    seconds(of(withIt)),
    seconds(of(without)),
    ratio(of(withIt).tookMs, of(without).tookMs),
    String(of(withIt).refusals),
  ];
  return table(
    ["until finished", "with the project", "without", "ratio", "refusals"],
    [
      line(`rolling update of ${ROLLED} replicas`, ({ rolled }) => rolled),
      line(`kubectl drain of a node with ${DRAINED / CELL.nodes} protected pods`, ({ drained }) => drained),
    ],
  );
}

async function withProject(): Promise<Both> {
  await using estate = await TestEnvironment.start({ cells: ["cell"], single: true, cell: CELL });
  return await both(estate);
}

async function withoutProject(): Promise<Both> {
  await using core = await Cluster.start({ name: "without", ...CELL });
  await core.apply(readFileSync(CRD, "utf8"));
  return await both({ core, webhooks: [] });
}

async function both(place: RolloutSite): Promise<Both> {
  await deploy(place, "web", ROLLED);
  const rolled = await roll(place, "web", ROLLED, "app:2");
  await place.core.kubectl(["delete", "podprotector/web", "deployment/web"]);
  await deploy(place, "drained", DRAINED);
  const drained = await drain(place, "node-1", "drained", DRAINED);
  return { rolled, drained };
}

function seconds({ tookMs }: Figures): string {
  return `${(tookMs / 1000).toFixed(1)} s`;
}
