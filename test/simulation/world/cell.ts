/** One cell of the world: its API server, kubelets, workload controller, admission chain and aggregators. */
import { AdmissionRequests, type InFlightRequest, type ObservedResponse } from "../actors/admission-requests.ts";
import type { AggregatorNode } from "../actors/aggregator-node.ts";
import { CHANGEABLE_CONTAINER, ContainerRestarts } from "../actors/container-restarts.ts";
import { VOLUNTARY_GATES } from "../actors/gate-controllers.ts";
import { Kubelet } from "../actors/kubelet.ts";
import { PODS_OF_NODE } from "../actors/node-deletions.ts";
import { WorkloadController } from "../actors/workload-controller.ts";
import type { EtcdChange } from "../apiserver/etcd.ts";
import type { ApiServer } from "../apiserver/server.ts";
import type { CellTruth } from "../judge/count-checks.ts";
import { PodTruth } from "../truth/pod-truth.ts";
import type { World } from "./world.ts";

export interface SimulatedCell extends CellTruth {
  readonly name: string;
  readonly server: ApiServer;
  readonly kubelet: Kubelet;
  readonly workload: WorkloadController;
  readonly restarts: ContainerRestarts | undefined;
  aggregators: AggregatorNode[];
  /** How many former leaders run that do not know yet that they no longer lead. */
  oldLeaders: number;
}

interface CellWatcher {
  responded(inFlight: InFlightRequest | undefined, response: ObservedResponse): void;
  /** Called after the pod's truth is recorded, and before the kubelet reacts. */
  podChanged(change: EtcdChange): void;
}

/** The order in which the parts draw their randomness and observe etcd belongs to a seed's history. */
export function makeCell(world: World, server: ApiServer, watcher: CellWatcher): SimulatedCell {
  const { name, etcd } = server;
  const { scenario, time, chance } = world;
  const violation = (invariant: string, message: string): void => world.violation(invariant, message);
  const pods = new PodTruth(etcd);
  const admission = new AdmissionRequests(name, etcd, {
    ...{ ports: time, scenario, chance: chance.fork(), coverage: world.coverage, violation },
    faultsActive: () => world.faultsActive,
    replicas: () => world.replicas,
    responded: (_cell, inFlight, response) => watcher.responded(inFlight, response),
    failsOpen: () => world.failsOpen,
    allowedWithoutVerdict: (_cell, { uid }) => world.exemptions.unknown(uid),
  });
  server.admission = admission;
  etcd.observe((change) => watcher.podChanged(change));
  const kubelet = new Kubelet(server, time, chance.fork());
  const isChanged = scenario.features.inPlaceEveryMs > 0;
  const container = isChanged ? CHANGEABLE_CONTAINER : {};
  const podsOfNode = scenario.features.nodesEveryMs > 0 ? PODS_OF_NODE : 0;
  const { podsPerCell } = scenario;
  const labels = { app: "web" };
  const parts = [
    labels,
    container,
    podsOfNode,
    scenario.features.habits.has("voluntaryGates") ? VOLUNTARY_GATES : {},
  ] as const;
  const workload = new WorkloadController(server, time, chance.fork(), podsPerCell, ...parts);
  const restarts = isChanged ? startRestarts(world, server, kubelet) : undefined;
  const { podReads } = server;
  return { name, server, pods, admission, podReads, kubelet, workload, restarts, aggregators: [], oldLeaders: 0 };
}

function startRestarts(world: World, server: ApiServer, kubelet: Kubelet): ContainerRestarts {
  const restarts = new ContainerRestarts({
    ...{ server, kubelet, time: world.time, chance: world.chance.fork() },
    resolvesImages: world.scenario.features.habits.has("resolvedImages"),
    faultsActive: () => world.faultsActive,
    rule: (name) => world.coverage.rule(name),
  });
  kubelet.isStopped = (uid) => restarts.isDown(uid);
  return restarts;
}
