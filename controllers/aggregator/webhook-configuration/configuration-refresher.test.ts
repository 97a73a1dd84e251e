import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { REFRESHED_GENERATION_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { ConfigurationTable } from "../../../test/support/aggregator/configuration-table.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { ConfigurationRefresher } from "./configuration-refresher.ts";
import { ConfigurationWatches } from "./configuration-watch.ts";

const VALIDATING = "validatingwebhookconfigurations/podseidon";
const GATE = "mutatingwebhookconfigurations/podseidon-gate";
const PATH = `/apis/admissionregistration.k8s.io/v1/${VALIDATING}`;

function start(...paths: readonly string[]) {
  const time = new VirtualTime();
  const cell = new ConfigurationTable();
  for (const path of paths) cell.put(path);
  const failures: string[] = [];
  const state = { mayWrite: true };
  const watches = new ConfigurationWatches({ transport: cell, ports: time, onEvent: () => {} });
  const api = new ApiClient(cell);
  const refresher = new ConfigurationRefresher({
    ...{ watches, api, ports: time, name: "podseidon", namespace: "podseidon-system", timeoutMs: 1_000 },
    mayWrite: () => state.mayWrite,
    onFailed: (configuration) => failures.push(configuration),
  });
  const end = new AbortController();
  const running = refresher.run(end.signal);
  const stop = async (): Promise<void> => {
    end.abort();
    await time.advance(10_000);
    await running;
  };
  const refreshed = (path: string): string | undefined =>
    cell.configurations.get(path)?.metadata.annotations[REFRESHED_GENERATION_ANNOTATION];
  const change = (): Promise<unknown> =>
    api.patch(PATH, "application/json-patch+json", [], (raw) => raw, { timeoutMs: 1_000 });
  return { time, cell, failures, state, stop, refreshed, change };
}

test("a configuration is written once more, five seconds after each change of its webhooks", async () => {
  const { time, cell, failures, stop, refreshed, change } = start(VALIDATING, GATE);
  await time.advance(4_000);
  expect(refreshed(VALIDATING)).toBeUndefined();
  await time.advance(2_000);
  expect([refreshed(VALIDATING), refreshed(GATE)]).toEqual(["1", "1"]);

  const before = cell.configurations.get(VALIDATING)?.metadata.resourceVersion;
  await time.advance(600_000);
  expect(cell.configurations.get(VALIDATING)?.metadata.resourceVersion).toBe(before);

  await change();
  await time.advance(4_000);
  await change();
  await time.advance(4_000);
  expect(refreshed(VALIDATING)).toBe("1");
  await time.advance(2_000);
  expect([refreshed(VALIDATING), refreshed(GATE)]).toEqual(["3", "1"]);
  expect(failures).toEqual([]);
  await stop();
});

test("also five seconds after it was created again, with generation 1", async () => {
  const { time, cell, stop, refreshed } = start(VALIDATING);
  await time.advance(6_000);
  cell.remove(VALIDATING);
  await time.advance(1_000);
  cell.put(VALIDATING);
  await time.advance(4_000);
  expect(refreshed(VALIDATING)).toBeUndefined();
  await time.advance(2_000);
  expect(refreshed(VALIDATING)).toBe("1");
  await stop();
});

test("one created again, which no watch has shown yet, is not written before its time", async () => {
  const { time, cell, failures, stop, refreshed } = start(VALIDATING);
  await time.advance(4_900);
  cell.isSilent = true;
  cell.remove(VALIDATING);
  cell.put(VALIDATING);
  await time.advance(1_000);
  expect([refreshed(VALIDATING), failures]).toEqual([undefined, []]);
  cell.isSilent = false;
  cell.put(VALIDATING);
  await time.advance(6_000);
  expect(refreshed(VALIDATING)).toBe("1");
  await stop();
});

test("a write that fails, or may not be made, is made later", async () => {
  const { time, cell, failures, state, stop, refreshed } = start(VALIDATING);
  state.mayWrite = false;
  await time.advance(10_000);
  expect(refreshed(VALIDATING)).toBeUndefined();
  state.mayWrite = true;
  cell.isRefusing = true;
  await time.advance(60_000);
  expect([failures, refreshed(VALIDATING)]).toEqual([[PATH], undefined]);
  cell.isRefusing = false;
  await time.advance(60_000);
  expect(refreshed(VALIDATING)).toBe("1");
  await stop();
});
