/** Measures one aggregator from outside, with the same work for each contender. */
import { setTimeout as delay } from "node:timers/promises";
import type { ApiserverClient } from "../control-plane/api-client.ts";
import type { Component } from "../environment/component.ts";
import { type BenchSize, each, PODS, PROTECTORS, podName, protectorName, readiness } from "./fixture/cell-fixture.ts";
import { processFigures } from "./fixture/figures.ts";
import type { ProtectorWatch } from "./fixture/protector-watch.ts";

const COUNT_LIMIT_MS = 300_000;
const FLIP_LIMIT_MS = 30_000;
/** More concurrent changes would delay the aggregator's own few writes. */
const MOST_UNDER_WAY = 16;
const BLANK = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };

/** Removes every count, so that the next contender starts like the first. */
export async function clearStatuses(admin: ApiserverClient, { protectors }: BenchSize): Promise<void> {
  await each(protectors, async (index) => {
    await admin.call("PATCH", `${PROTECTORS}/${protectorName(index)}/status`, {
      status: { cells: [], summary: BLANK, conditions: null, observedGeneration: null },
    });
  });
}

/** Milliseconds from now until every protector has the right count; NaN when it takes too long. */
export async function timeToCounted(
  watch: ProtectorWatch,
  { pods, protectors }: BenchSize,
  sinceMs: number,
): Promise<number> {
  const want = pods / protectors;
  let next = 0;
  // A right count stays right.
  const isMet = (): boolean => {
    while (next < protectors && watch.available(protectorName(next)) === want) next++;
    return next === protectors;
  };
  return (await watch.until(isMet, COUNT_LIMIT_MS)) ? performance.now() - sinceMs : Number.NaN;
}

/** Milliseconds from each of `count` readiness changes to the protector's status, one change at a time. */
export async function changeLatencies(
  admin: ApiserverClient,
  watch: ProtectorWatch,
  size: BenchSize,
  count: number,
): Promise<number[]> {
  const latencies: number[] = [];
  const want = size.pods / size.protectors;
  for (let index = 0; index < count; index++) {
    const protector = protectorName(index % size.protectors);
    for (const ready of [false, true]) {
      const startMs = performance.now();
      await admin.call("PATCH", `${PODS}/${podName(index)}/status`, readiness(ready));
      const met = await watch.until(() => watch.available(protector) === (ready ? want : want - 1), FLIP_LIMIT_MS);
      // Only the loss of a pod is timed.
      if (!ready) latencies.push(met ? performance.now() - startMs : Number.NaN);
    }
  }
  return latencies;
}

/** `rate` readiness changes a second for `seconds`, spread over all protectors; some are timed. */
export async function underLoad(
  admin: ApiserverClient,
  watch: ProtectorWatch,
  size: BenchSize,
  rate: number,
  seconds: number,
  pid: number,
) {
  const want = size.pods / size.protectors;
  const total = rate * seconds;
  const writesBefore = watch.changes;
  const cpuBefore = processFigures(pid).cpuMs;
  const startMs = performance.now();
  const timed: Promise<number>[] = [];
  const underWay = new Set<Promise<unknown>>();
  for (let index = 0; index < total; index++) {
    const dueMs = startMs + (index * 1000) / rate;
    const waitMs = dueMs - performance.now();
    if (waitMs > 1) await delay(waitMs);
    // Each pod becomes unready and, a round of all protectors later, ready again.
    const protector = index % size.protectors;
    const ready = Math.floor(index / size.protectors) % 2 === 1;
    const name = protectorName(protector);
    const sentMs = performance.now();
    // A slow server slows the load; the table shows how much was sent.
    while (underWay.size >= MOST_UNDER_WAY) await Promise.race(underWay);
    const change = admin.call("PATCH", `${PODS}/${podName(protector)}/status`, readiness(ready)).finally(() => {
      underWay.delete(change);
    });
    underWay.add(change);
    const expected = ready ? want : want - 1;
    // The status can't show this change before the previous one is published.
    if (index % 20 === 0 && watch.available(name) !== expected) {
      timed.push(
        watch
          .until(() => watch.available(name) === expected, FLIP_LIMIT_MS)
          .then((met) => (met ? performance.now() - sentMs : Number.NaN)),
      );
    }
  }
  await Promise.all(underWay);
  const sentMs = performance.now();
  const rounds = (protector: number): number => Math.floor((total - 1 - protector) / size.protectors);
  const final = (protector: number): number => (protector >= total || rounds(protector) % 2 === 1 ? want : want - 1);
  const isRight = (): boolean => {
    for (let index = 0; index < size.protectors; index++)
      if (watch.available(protectorName(index)) !== final(index)) return false;
    return true;
  };
  const settled = await watch.until(isRight, FLIP_LIMIT_MS);
  const endMs = performance.now();
  return {
    sentPerSecond: (total * 1000) / (sentMs - startMs),
    writesPerSecond: ((watch.changes - writesBefore) * 1000) / (endMs - startMs),
    // From the last change to the last right status.
    backlogMs: settled ? endMs - sentMs : Number.NaN,
    cpuPercent: ((processFigures(pid).cpuMs - cpuBefore) * 100) / (endMs - startMs),
    latenciesMs: await Promise.all(timed),
  };
}

export async function restoreReadiness(admin: ApiserverClient, { protectors }: BenchSize): Promise<void> {
  await each(protectors, async (index) => {
    await admin.call("PATCH", `${PODS}/${podName(index)}/status`, readiness(true));
  });
}

/** The longest event-loop delay since the last call, in milliseconds; undefined without metrics. */
export async function eventLoopDelayMs(component: Component | undefined): Promise<number | undefined> {
  const seconds = await component?.metric("nodejs_eventloop_lag_max_seconds");
  return seconds === undefined ? undefined : seconds * 1000;
}
