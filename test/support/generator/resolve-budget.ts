/** Resolves a PodDisruptionBudget over workloads, pods and cells that a test states. */

import { type Resolution, Resolver } from "../../../controllers/generator/budgets/resolve.ts";
import { WorkloadScales } from "../../../controllers/generator/budgets/workload-scales.ts";
import { newProtector } from "../../../controllers/generator/protectors/protector.ts";
import { plugins } from "../../../controllers/generator/sources/plugins.ts";
import type {
  Budget,
  Need,
  ProtectionSource,
  WorkloadRef,
} from "../../../controllers/generator/sources/protection-source.ts";
import { specHash } from "../../../shared/decide/availability/spec-facts.ts";
import type { StatedLimits } from "../../../shared/decide/minimum/workload-minimum.ts";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse, Transport } from "../../../shared/kube/client/transport.ts";
import { RESTORED } from "../../../shared/recovery/restore-protector.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";
import type { Aggregation, CellStatus, LabelSelector, PodProtector } from "../../../shared/schema/podprotector.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { VirtualTime } from "../runtime/virtual-ports.ts";

const all = plugins({ protectSelector: "", protectNonZero: true });
export const selector = { matchLabels: { app: "web" } };

export function workload(kind: string, name: string, replicas: number, owner?: WorkloadRef): ProtectionSource {
  const plugin = all.find((one) => one.kind.kind === kind);
  if (plugin === undefined) throw new Error(`there is no plugin for ${kind}`);
  return plugin.interpret({
    metadata: {
      name,
      namespace: "shop",
      uid: `${kind}-${name}`,
      resourceVersion: "1",
      ownerReferences: owner === undefined ? [] : [{ ...owner, controller: true }],
    },
    spec: {
      replicas,
      selector: kind === "ReplicationController" ? selector.matchLabels : selector,
      template: { metadata: { labels: { app: "web" } } },
    },
  });
}

export const ref = (kind: string, name: string, uid = `${kind}-${name}`): WorkloadRef => ({
  apiVersion: kind === "ReplicationController" ? "v1" : kind === "Rollout" ? "argoproj.io/v1alpha1" : "apps/v1",
  kind,
  name,
  uid,
});

export interface GivenBudget {
  readonly workloads?: readonly (readonly [string, ProtectionSource])[];
  /** Undefined: not listed yet. */
  readonly pods?:
    | { readonly total: number; readonly controllers: readonly WorkloadRef[]; readonly jobPods?: number }
    | undefined;
  readonly notReady?: boolean;
  /** The plugin of a kind that the generator may not list. */
  readonly denied?: string;
  /** Responses by path without query. */
  readonly answers?: Readonly<Record<string, unknown>>;
  readonly present?: number;
  /** Of the number that is present. */
  readonly derivation?: string | undefined;
  /** The pods that the protector is for; the budget's own where it is absent. */
  readonly presentSelector?: LabelSelector;
  /** The pods that each cell has counted, where the cells say so. */
  readonly countedSelectors?: readonly LabelSelector[];
  /** Pods of each cell, and how many its workloads ask for; the protector was told that they count. */
  readonly cells?: readonly (readonly [pods: number, expected: number | undefined])[];
  readonly isCounted?: boolean;
  /** The first cell is on hold. */
  readonly isOnHold?: boolean;
  /** The protector was created again for one that was lost. */
  readonly isRestored?: boolean;
  /** What cell `z`, which has not counted this protector, has in its entry. */
  readonly uncounted?: Partial<Aggregation>;
  /** How long ago each cell has sent a heartbeat, where it does. */
  readonly silentMs?: readonly number[];
}

function resolverOf(given: GivenBudget): { readonly resolver: Resolver; readonly clock: Clock } {
  const objects = new Map(given.workloads ?? []);
  const transport: Transport = {
    request: async ({ path }: ApiRequest): Promise<ApiResponse> => {
      const body = given.answers?.[path];
      if (body === "down") throw new Error("no connection");
      return body === undefined
        ? { status: 404, headers: {}, body: "404 page not found" }
        : { status: 200, headers: {}, body: JSON.stringify(body) };
    },
    stream: () => Promise.reject(new Error("no watch in this test")),
    close: () => {},
  };
  const api = new ApiClient(transport);
  const kinds = new Map(
    all.map(({ name }) => [
      name,
      {
        ready: given.notReady !== true && given.denied !== name,
        isDenied: given.denied === name,
        get: (key: string) => objects.get(`${name}/${key}`),
      },
    ]),
  );
  const { clock } = new VirtualTime();
  const workloads = new WorkloadScales({ api, kinds, timeoutMs: 1000, clock });
  for (const [key, source] of objects) workloads.changed(key, undefined, source);
  const pods = { of: () => given.pods && { jobPods: 0, ...given.pods }, forget: () => {} };
  return { resolver: new Resolver({ workloads, pods, clock }), clock };
}

const ROLLOUTS = plugins({
  protectSelector: "",
  protectNonZero: true,
  scalable: ["argoproj.io/v1alpha1/rollouts"],
}).find(({ name }) => name === "rollouts.argoproj.io");

type ScaleNeed = Extract<Need, { readonly kind: "scale" }>;

const NOTHING_STATED = { minAvailable: undefined, maxUnavailable: undefined, minRunning: undefined };

/** Resolves a Rollout, whose number of pods is in its scale subresource. */
export async function resolveScale(
  { stated, ...limits }: Partial<Omit<ScaleNeed, "stated">> & { readonly stated?: Partial<StatedLimits> },
  given: GivenBudget,
  changes: Partial<ProtectionSource> = {},
): Promise<Resolution> {
  if (ROLLOUTS === undefined) throw new Error("there is no plugin for Rollouts");
  const source = ROLLOUTS.interpret({ metadata: { name: "web", namespace: "shop", uid: "r1", resourceVersion: "1" } });
  return await resolverOf(given).resolver.resolve({
    key: "rollouts.argoproj.io/shop/web",
    kind: { ...ROLLOUTS.kind, kind: "Rollout" },
    source: { ...source, ...changes },
    need: { kind: "scale", stated: { ...NOTHING_STATED, ...stated }, ...limits },
    presents: [],
    signal: new AbortController().signal,
  });
}

export async function resolve(budget: Partial<Budget>, given: GivenBudget = {}): Promise<Resolution> {
  const { resolver, clock } = resolverOf(given);
  const pdb = all.find(({ name }) => name === "poddisruptionbudget");
  if (pdb === undefined) throw new Error("there is no plugin for PodDisruptionBudgets");
  const source = pdb.interpret({ metadata: { name: "web", namespace: "shop", uid: "u1", resourceVersion: "1" } });
  const { kind } = pdb;
  const required = {
    name: "x",
    spec: {
      ...{ minAvailable: given.present ?? 0, minReadySeconds: 0, selector: given.presentSelector ?? selector },
      ...(given.isCounted === true ? { countExpectedPods: true } : {}),
    },
    derivation: given.derivation ?? "",
  };
  const mark = given.isRestored === true ? RESTORED : undefined;
  const { spec, metadata } = newProtector(kind, source, required, "x", mark);
  const { name, namespace, annotations } = metadata;
  const stored = { name, namespace, uid: "p", resourceVersion: "1", annotations };
  return await resolver.resolve({
    key: "poddisruptionbudget/shop/web",
    kind,
    source,
    need: { kind: "budget", budget: { selector, spec: {}, owns: [], ...budget } },
    presents: given.present === undefined ? [] : [{ metadata: stored, spec, status: statusOf(given, clock.nowMs()) }],
    signal: new AbortController().signal,
  });
}

function statusOf(
  { cells = [], countedSelectors = [], isOnHold = false, silentMs = [], uncounted }: GivenBudget,
  nowMs: number,
): NonNullable<PodProtector["status"]> {
  const zero = { totalReplicas: 0, availableReplicas: 0 };
  const others = uncounted === undefined ? [] : [{ cellID: "z", aggregation: { ...zero, ...uncounted } }];
  return {
    cells: cells
      .map(([totalReplicas, expected], index): CellStatus => {
        const by = countedSelectors[index];
        const ageMs = silentMs[index];
        const counted = {
          ...{ totalReplicas, availableReplicas: totalReplicas, resourceVersion: "1" },
          ...(by === undefined ? {} : { specHash: specHash({ minAvailable: 0, minReadySeconds: 0, selector: by }) }),
          ...(isOnHold && index === 0 ? { hold: "Restored/1-t" } : {}),
          ...(ageMs === undefined ? {} : { heartbeatTime: formatMs(nowMs - ageMs) }),
        };
        const aggregation = expected === undefined ? counted : { ...counted, expectedReplicas: expected };
        return { cellID: "abc".charAt(index) || `in-a-region-far-away-${index}`, aggregation };
      })
      .concat(others),
    summary: { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 },
  };
}

export function minimum(resolution: Resolution): number | undefined {
  return resolution.kind === "resolved" ? resolution.protectors[0]?.spec.minAvailable : undefined;
}

const deployment = workload("Deployment", "web", 10);
export const replicaSet = workload("ReplicaSet", "web-1", 7, ref("Deployment", "web"));
export const ofDeployment: GivenBudget = {
  workloads: [
    ["deployment/shop/web", deployment],
    ["replicaset/shop/web-1", replicaSet],
  ],
  pods: { total: 7, controllers: [ref("ReplicaSet", "web-1")] },
};
