/** What changes while a source waits for the number of its pods, such as for a scale that is slow. */
import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { GENERATOR_FINALIZER } from "../../../shared/schema/annotations.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { ProblemReports } from "./events.ts";
import { newProtector } from "./protector.ts";
import { reconciler } from "./reconcile.ts";

const plugin = pluginNamed("poddisruptionbudget");
const source = plugin.interpret({
  metadata: { namespace: "shop", name: "web", uid: "b1", resourceVersion: "7", finalizers: [GENERATOR_FINALIZER] },
  spec: { maxUnavailable: 1, selector: { matchLabels: { app: "web" } } },
});
const required = {
  name: "poddisruptionbudget-web",
  spec: { minAvailable: 9, minReadySeconds: 0, selector: { matchLabels: { app: "web" } } },
  derivation: "expected 10 (CloneSet web 10) - maxUnavailable 1 = minAvailable 9",
};

test("a protector that a cell restores meanwhile is not created a second time under another name", async () => {
  const object = newProtector(plugin.kind, source, required, required.name);
  const restored = parsePodProtector({ ...object, metadata: { ...object.metadata, uid: "p1", resourceVersion: "9" } });
  let stored: PodProtector | undefined;
  const writes: string[] = [];
  const time = new VirtualTime();
  const request = async ({ method, body }: { readonly method: string; readonly body?: string | undefined }) => {
    writes.push(`${method} ${JSON.parse(body ?? "{}").metadata?.name}`);
    return { status: 500, headers: {}, body: "" };
  };
  const stream = (): Promise<never> => Promise.reject(new Error("nothing is watched here"));
  const reconcile = reconciler({
    api: new ApiClient({ request, stream, close: () => {} }),
    ports: time.process(),
    plugins: [plugin],
    kinds: new Map([[plugin.name, { kind: plugin.kind, get: () => source }]]),
    resolver: {
      forget: () => {},
      async resolve() {
        stored = restored;
        return { kind: "resolved", protectors: [required], recheck: false };
      },
    },
    protectors: {
      of: () => (stored === undefined ? [] : [stored]),
      get: (key) => (key === `shop/${stored?.metadata.name}` ? stored : undefined),
      ...{ wrote: () => {}, released: () => {} },
    },
    lost: { of: () => [] },
    register: { record: async () => ({ kind: "ok", object: undefined }) },
    ...{ mayWrite: () => true, timeoutMs: 1000, onEvent: () => {} },
    reports: new ProblemReports(time.clock, () => {}),
  });
  const key = "poddisruptionbudget/shop/web";
  expect(await reconcile(key, { signal: new AbortController().signal, failures: 0 })).toEqual({ kind: "done" });
  expect(writes).toEqual([]);
});
