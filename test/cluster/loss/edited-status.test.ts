/**
 * Whoever may write the status of protectors has edited it: counts, cells, and a cell's epoch, which is set to the
 * highest number that the CRD allows. The next lost history can't raise it, and the cell has to be put on hold all the
 * same.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { items } from "../../../scripts/control-plane/api-client.ts";
import type { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { createReadyPods, setReady } from "../../support/cluster/pods.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { CELL, labels, NAME, NAMESPACE, PODS, PROMISED, PROTECTOR, startFivePods } from "./five-pods.ts";

const JSON_PATCH = { contentType: "application/json-patch+json" };

let environment: TestEnvironment;

beforeAll(async () => {
  environment = await startFivePods();
});

afterAll(() => environment?.stop());

async function epoch(): Promise<number | undefined> {
  return (await readProtector(environment.core, NAMESPACE, NAME)).status?.cells[0]?.aggregation?.epoch;
}

/** What a client reads who deletes the pod, and repeats it as long as the answer is busy. */
async function deletePod(name: string): Promise<number> {
  let last = 0;
  const isDecided = async (): Promise<boolean> => {
    const { status, text } = await environment.cell(CELL).admin.request("DELETE", `${PODS}/${name}`);
    last = status;
    return status === 200 || text.includes("its capacity is at the minimum");
  };
  await environment.core.waitFor(`a decision about ${name}`, isDecided);
  return last;
}

test("a count that is raised by hand is put back, and an invented cell gives no quota", async () => {
  const { core } = environment;
  const cell = { cellID: "invented", aggregation: { totalReplicas: 100, availableReplicas: 100 } };
  const patch = [
    { op: "replace", path: "/status/cells/0/aggregation/availableReplicas", value: 100 },
    { op: "add", path: "/status/cells/-", value: cell },
  ];
  await core.admin.call("PATCH", `${PROTECTOR}/status`, patch, JSON_PATCH);
  await waitUntilSettled(core, NAMESPACE, NAME, 100 + PROMISED + 2);
  for (const name of ["web-0", "web-1"]) expect(await deletePod(name)).toBe(200);
  for (const name of ["web-2", "web-3", "web-4"]) {
    expect((await environment.cell(CELL).admin.request("DELETE", `${PODS}/${name}`)).status).toBe(429);
  }
  await core.admin.call("PATCH", `${PROTECTOR}/status`, [{ op: "remove", path: "/status/cells/1" }], JSON_PATCH);
  await createReadyPods(environment.cell(CELL), { namespace: NAMESPACE, prefix: "web", count: 2, labels });
  await waitUntilSettled(core, NAMESPACE, NAME, PROMISED + 2);
});

test("a cell that is restored is held, and pods that fail afterwards are counted no more", async () => {
  const { core } = environment;
  const cell = environment.cell(CELL);
  const patch = [{ op: "add", path: "/status/cells/0/aggregation/epoch", value: Number.MAX_SAFE_INTEGER }];
  await core.admin.call("PATCH", `${PROTECTOR}/status`, patch, JSON_PATCH);
  const backup = cell.snapshotEtcd();
  await setReady(cell, NAMESPACE, "web-0", false);
  await waitUntilSettled(core, NAMESPACE, NAME, PROMISED + 1);
  await setReady(cell, NAMESPACE, "web-0", true);
  await waitUntilSettled(core, NAMESPACE, NAME, PROMISED + 2);
  expect(await epoch()).toBe(Number.MAX_SAFE_INTEGER);
  await cell.restoreEtcd(backup);
  await setReady(cell, NAMESPACE, "web-0", false);
  await setReady(cell, NAMESPACE, "web-1", false);
  for (const name of ["web-2", "web-3", "web-4"]) expect(await deletePod(name)).toBe(429);
  expect(items(await cell.admin.get(PODS))).toHaveLength(PROMISED + 2);
});

test("a removed cell is counted again", async () => {
  const { core } = environment;
  const cells = [
    { cellID: CELL, aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: Number.MAX_SAFE_INTEGER } },
  ];
  await core.admin.call(
    "PATCH",
    `${PROTECTOR}/status`,
    [{ op: "replace", path: "/status/cells", value: cells }],
    JSON_PATCH,
  );
  await setReady(environment.cell(CELL), NAMESPACE, "web-0", true);
  await waitUntilSettled(core, NAMESPACE, NAME, PROMISED + 1);
  expect(await deletePod("web-2")).toBe(200);
  expect(await deletePod("web-3")).toBe(429);
});
