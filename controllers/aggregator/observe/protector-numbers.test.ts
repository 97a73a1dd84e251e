import { expect, test } from "vitest";
import { Metrics } from "../../../shared/observe/metrics.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { makeProtector } from "../../../test/support/decide/fixtures.ts";
import { protectorNumbers } from "./protector-numbers.ts";

function protectorWith(name: string, minAvailable: number, total: number, available: number, estimated: number) {
  const protector = makeProtector([]);
  const summary = {
    totalReplicas: total,
    aggregatedAvailableReplicas: available,
    estimatedAvailableReplicas: estimated,
    ...{ aggregatedScheduled: total, aggregatedRunning: Math.max(0, total - (name === "web" ? 1 : 0)) },
    aggregatedReady: available,
  };
  const labels = { team: name === "web" ? "shop" : "bank", "app.kubernetes.io/name": name };
  return {
    ...protector,
    metadata: { ...protector.metadata, namespace: "ns", name, labels },
    spec: { ...protector.spec, minAvailable },
    status: { cells: [], summary },
  };
}

const PROTECTORS = [
  protectorWith("web", 4, 5, 4, 2),
  protectorWith("db", 2, 2, 1, 1),
  protectorWith("off", 0, 0, 0, 0),
];

async function series(isByProtector: boolean, labels: readonly string[] = []): Promise<string[]> {
  const metrics = new Metrics();
  const protectorsOf = (): readonly PodProtector[] => PROTECTORS;
  protectorNumbers(metrics, { cores: ["core"], protectorsOf, isByProtector, labels });
  const { body } = await metrics.render();
  return body.split("\n").filter((line) => line.startsWith("podseidon_"));
}

test("the numbers of each protector are served where they are asked for", async () => {
  const of = (number: string): string =>
    `podseidon_protector_pods{core="core",namespace="ns",protector="web",number="${number}"}`;
  const found = await series(true);
  for (const [number, value] of Object.entries({ required: 4, available: 4, estimated: 2, reserved: 2, matched: 5 }))
    expect(found).toContain(`${of(number)} ${value}`);
  expect((await series(false)).join()).not.toContain("podseidon_protector_pods");
});

test("the labels of each protector are served where they are asked for", async () => {
  const found = await series(false, ["team", "app.kubernetes.io/name"]);
  const labels = 'label_team="shop",label_app_kubernetes_io_name="web"';
  expect(found).toContain(`podseidon_protector_labels{core="core",namespace="ns",protector="web",${labels}} 1`);
});

test("a core has sums, how many protectors keep their promise, and in what proportion", async () => {
  expect(await series(false)).toEqual([
    'podseidon_fleet_pods{core="core",number="required"} 6',
    'podseidon_fleet_pods{core="core",number="available"} 5',
    'podseidon_fleet_pods{core="core",number="estimated"} 3',
    'podseidon_fleet_pods{core="core",number="reserved"} 2',
    'podseidon_fleet_pods{core="core",number="matched"} 7',
    'podseidon_fleet_pods{core="core",number="scheduled"} 7',
    'podseidon_fleet_pods{core="core",number="running"} 6',
    'podseidon_fleet_pods{core="core",number="ready"} 5',
    'podseidon_fleet_protectors{core="core",which="all"} 3',
    'podseidon_fleet_protectors{core="core",which="requiringPods"} 2',
    'podseidon_fleet_protectors{core="core",which="withEnoughPods"} 3',
    'podseidon_fleet_protectors{core="core",which="withEnoughAvailable"} 2',
    'podseidon_fleet_available_ratio{core="core"} 0.75',
  ]);
});
