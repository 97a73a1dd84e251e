/** Objects for the webhook's unit tests. */

import type { Pod } from "../../../shared/schema/pod.ts";
import type { Aggregation, PodProtector, PodProtectorSpec } from "../../../shared/schema/podprotector.ts";
import type { Disruption } from "../../../webhook/reserve/pipeline.ts";
import { makePod } from "../decide/fixtures.ts";

export function pod(name: string, overrides: Partial<Pod> = {}): Pod {
  const conditions = [{ type: "Ready", status: true, sinceMs: 1_000 }];
  return { ...makePod(name), resourceVersion: "50", conditions, ...overrides };
}

export function unready(name: string, overrides: Partial<Pod> = {}): Pod {
  return pod(name, { conditions: [{ type: "Ready", status: false, sinceMs: 1_000 }], ...overrides });
}

export function aggregation(available: number, overrides: Partial<Aggregation> = {}): Aggregation {
  return {
    totalReplicas: available,
    availableReplicas: available,
    readyReplicas: available,
    runningReplicas: available,
    scheduledReplicas: available,
    resourceVersion: "100",
    ...overrides,
  };
}

export interface ProtectorFixture {
  readonly name?: string;
  readonly spec?: Partial<PodProtectorSpec>;
  readonly available?: number;
  readonly aggregation?: Partial<Aggregation>;
  readonly uid?: string;
}

/** A protector of pods with `app: web`, counted in cell `cell-1`. */
export function protector(minAvailable: number, fixture: ProtectorFixture = {}): PodProtector {
  const { name = "web", spec = {}, available = 10, uid = `uid-of-${name}` } = fixture;
  return {
    metadata: { namespace: "default", name, uid, resourceVersion: "1", generation: 1, finalizers: [] },
    spec: { minAvailable, minReadySeconds: 0, selector: { matchLabels: { app: "web" } }, ...spec },
    status: {
      cells: [{ cellID: "cell-1", aggregation: aggregation(available, fixture.aggregation) }],
      summary: { totalReplicas: 10, aggregatedAvailableReplicas: 10, estimatedAvailableReplicas: 10 },
    },
  };
}

export function disruption(of: Pod, overrides: Partial<Disruption> = {}): Disruption {
  return {
    cell: "cell-1",
    operation: "DELETE",
    pod: of,
    podReadMs: undefined,
    reread: undefined,
    forced: false,
    criterion: "Available",
    dryRun: false,
    arrivedMs: 0,
    deadlineMs: 9_500,
    isCallerGone: () => false,
    ...overrides,
  };
}

/** The nonces in a protector's history, by pod UID. */
export function noncesOf(object: PodProtector): Map<string, string[]> {
  const nonces = new Map<string, string[]>();
  for (const cell of object.status?.cells ?? []) {
    for (const { podUID, nonce } of cell.admissionHistory?.buckets ?? []) {
      if (podUID !== undefined) nonces.set(podUID, [...(nonces.get(podUID) ?? []), ...(nonce ?? "").split(",")]);
    }
  }
  return nonces;
}
