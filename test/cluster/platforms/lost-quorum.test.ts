/**
 * A cell whose etcd has lost its quorum. The member that was the leader keeps what was proposed to it, and commits it
 * when the quorum is back: long after kube-apiserver has given up, and long after a settle period.
 */
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import type { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import type { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { OtherWebhook } from "../../support/cluster/other-webhook.ts";
import { createReadyPods, readyPods } from "../../support/cluster/pods.ts";
import {
  createProtector,
  readProtector,
  reservationCount,
  waitUntilSettled,
} from "../../support/cluster/protectors.ts";
import { HistoryRecorder } from "../../support/history/history-recorder.ts";
import { startEtcdPeer } from "./etcd-peer.ts";

const PODS = 30;
const MINIMUM = 20;
const SETTLE_MS = 10_000;

let environment: TestEnvironment;
let recorder: HistoryRecorder;
let other: OtherWebhook;
let peer: ManagedProcess;

beforeAll(async () => {
  const flags = { "kube-apiserver": { "request-timeout": "8s" } };
  ({ environment, recorder } = await HistoryRecorder.start({
    ...{ cells: ["cell"], replicas: 1, settle: `${SETTLE_MS / 1000}s` },
    cell: { ...BARE, flags },
  }));
  const { core } = environment;
  const cell = environment.cell("cell");
  peer = await startEtcdPeer(cell);
  await createProtector(core, "default", "app", { minAvailable: MINIMUM, selector: { matchLabels: { app: "app" } } });
  await createReadyPods(cell, { namespace: "default", prefix: "app", count: PODS, labels: { app: "app" } });
  await waitUntilSettled(core, "default", "app", PODS);
  await recorder.untilKnown();
  other = await OtherWebhook.start(core);
  await other.register(cell);
});

afterAll(async () => {
  try {
    await recorder?.judged();
  } finally {
    await peer?.kill("SIGKILL");
    await other?.stop();
    await environment?.stop();
  }
});

/** The status; undefined where kube-apiserver gives up in the middle of its answer. */
async function remove(index: number, query = ""): Promise<number | undefined> {
  const path = `/api/v1/namespaces/default/pods/app-${index}${query}`;
  const answer = await environment
    .cell("cell")
    .admin.request("DELETE", path)
    .catch(() => undefined);
  return answer?.status;
}

test("deletions that are committed a settle period late count, and no others pass in their place", async () => {
  const { core } = environment;
  const cell = environment.cell("cell");
  await core.waitFor("the other webhook to be asked", async () => {
    await remove(0, "?dryRun=All");
    return other.requests > 0;
  });
  const hold = Promise.withResolvers<boolean>();
  other.opinion = () => hold.promise;
  let isHeld = true;
  const first = Array.from({ length: PODS }, async (_, index) => {
    // A busy machine may take longer to reserve all quota than kube-apiserver waits for an answer.
    for (;;) {
      const status = await remove(index);
      if (!isHeld || (status !== undefined && status !== 504)) return status;
    }
  });
  await core.waitFor("all quota to be reserved", async () => {
    return reservationCount(await readProtector(core, "default", "app")) === PODS - MINIMUM;
  });
  recorder.fault("no quorum", "begin");
  peer.freeze();
  isHeld = false;
  hold.resolve(true);
  const statuses = await Promise.all(first);
  // None was committed: they are denied, or kube-apiserver has given up.
  expect(statuses).not.toContain(200);
  await delay(SETTLE_MS);
  let isOver = false;
  const repeated = Array.from({ length: PODS }, async (_, index) => {
    while (!isOver && ![200, 404].includes((await remove(index)) ?? 0));
  });
  peer.thaw();
  try {
    const gone = async () => (await readyPods([cell], "app")) <= MINIMUM;
    await core.waitFor("the pods that can be spared to be gone", gone);
    await waitUntilSettled(core, "default", "app", () => readyPods([cell], "app"));
  } finally {
    isOver = true;
    await Promise.all(repeated);
  }
  recorder.fault("no quorum", "end");
  expect(await readyPods([cell], "app")).toBe(MINIMUM);
});
