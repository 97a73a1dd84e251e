import { expect, test } from "vitest";
import { CommandError } from "./invocation/errors.ts";
import { waitingEvictions } from "./waiting-evictions.ts";

const node = (name: string, ...taints: unknown[]) => ({
  metadata: { name, uid: name, resourceVersion: "1" },
  spec: { taints },
});
const pod = (namespace: string, name: string, type: string) => ({
  metadata: { namespace, name, uid: name },
  spec: {},
  status: { conditions: [{ type }] },
});
const PODS: Record<string, unknown[]> = {
  "node-1": [
    pod("shop", "web-0", "DisruptionTarget"),
    pod("shop", "web-1", "Ready"),
    pod("bank", "a", "DisruptionTarget"),
  ],
  "node-2": [pod("shop", "web-2", "DisruptionTarget")],
};

const cluster = {
  name: "worker",
  list: async (path: string, query: Readonly<Record<string, string>> = {}): Promise<readonly unknown[]> =>
    path === "/api/v1/nodes"
      ? [node("node-1", { key: "broken", effect: "NoExecute" }), node("node-2", { key: "full", effect: "NoSchedule" })]
      : (PODS[query.fieldSelector?.split("=")[1] ?? ""] ?? []),
};

test.each([
  [undefined, "\n2 pods of worker wait on tainted nodes for eviction: shop/web-0, bank/a\n"],
  ["shop", "\n1 pod of worker waits on tainted nodes for eviction: shop/web-0\n"],
  ["empty", ""],
])("the pods that wait, in namespace %s", async (namespace, text) => {
  expect(await waitingEvictions(cluster, namespace)).toBe(text);
});

test("nodes that may not be read are left out", async () => {
  const list = async (): Promise<never> => {
    throw new CommandError("forbidden");
  };
  expect(await waitingEvictions({ name: "worker", list }, undefined)).toBe("");
});
