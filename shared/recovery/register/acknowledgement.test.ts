import { expect, test } from "vitest";
import { page, ScriptedStream, ScriptedTransport } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { ApiClient } from "../../kube/client/api-client.ts";
import { ReleaseAcknowledgement } from "./acknowledgement.ts";
import { ReleaseRegister } from "./release-register.ts";

test("a cell acknowledges a version once, and again after an hour: somebody may have deleted it", async () => {
  const ports = new VirtualTime();
  const transport = new ScriptedTransport();
  const written = {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "podseidon-cells", namespace: "system", uid: "cells", resourceVersion: "6" },
  };
  transport.lists.push(page("5", []), { status: 200, body: written }, { status: 200, body: written });
  for (let left = 200; left > 0; left -= 1) transport.watches.push(new ScriptedStream());
  const releases = new ReleaseRegister({ core: "core", transport, ports, namespace: "system" });
  releases.start();
  await ports.advance(100);
  const told: string[] = [];
  const acknowledgement = new ReleaseAcknowledgement({
    ...{ core: { name: "core", api: new ApiClient(transport), releases }, cellID: "cell-1", namespace: "system" },
    ...{ ports, timeoutMs: 1_000, onEvent: ({ kind }) => void told.push(kind) },
  });
  const pass = async (ms: number): Promise<void> => {
    await ports.advance(ms);
    const version = acknowledgement.due(() => false);
    if (version !== undefined) await acknowledgement.write(version, new AbortController().signal);
  };
  await pass(0);
  await pass(60_000);
  await pass(3_400_000);
  expect(told).toEqual(["acknowledged"]);
  await pass(300_000);
  await pass(60_000);
  expect(told).toEqual(["acknowledged", "acknowledged"]);
  await releases.stop();
});

test("a cell acknowledges nothing while it has the backup of a protector that a segment releases", async () => {
  const ports = new VirtualTime();
  const transport = new ScriptedTransport();
  const segment = (name: string, uid: string, resourceVersion: string): object => ({
    metadata: { name: `podseidon-released-${name}`, uid: name, resourceVersion },
    data: { [uid]: "2026-01-01T00:00:00Z" },
  });
  transport.lists.push(page("5", [segment("0", "old", "3"), segment("by-hand", "operator's", "4")]));
  transport.watches.push(new ScriptedStream());
  const releases = new ReleaseRegister({ core: "core", transport, ports, namespace: "system" });
  releases.start();
  await ports.advance(100);
  const acknowledgement = new ReleaseAcknowledgement({
    ...{ core: { name: "core", api: new ApiClient(transport), releases }, cellID: "cell-1", namespace: "system" },
    ...{ ports, timeoutMs: 1_000, onEvent: () => undefined },
  });
  expect(acknowledgement.due((uid) => uid === "old")).toBeUndefined();
  expect(acknowledgement.due((uid) => uid === "operator's")).toBe("4");
  await releases.stop();
});
