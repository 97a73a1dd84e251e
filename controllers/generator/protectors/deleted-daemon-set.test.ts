/** A DaemonSet that is deleted before its controller has counted its nodes, so that nobody knows what it asks for. */
import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { GENERATOR_FINALIZER, PROTECT_LABEL as PROTECT } from "../../../shared/schema/annotations.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { Resolver } from "../budgets/resolve.ts";
import { WorkloadScales } from "../budgets/workload-scales.ts";
import { plan } from "./plan.ts";
import { newProtector } from "./protector.ts";

const plugin = pluginNamed("daemonset");
const selector = { matchLabels: { app: "agent" } };

/** The steps for a DaemonSet with this status and metadata beside a protector that promises so many pods. */
async function planned(
  minAvailable: number,
  status: object,
  metadata: object = {},
  leavesPods = false,
): Promise<string[]> {
  const read = plugin.interpret({
    metadata: {
      ...{ namespace: "shop", name: "agent", uid: "d2", resourceVersion: "7", finalizers: [GENERATOR_FINALIZER] },
      ...{ deletionTimestamp: "2026-01-01T00:00:00Z", ...metadata },
    },
    spec: { selector },
    status,
  });
  const source = { ...read, leavesPods };
  const required = { name: "daemonset-agent", spec: { minAvailable, minReadySeconds: 0, selector }, derivation: "" };
  const object = newProtector(plugin.kind, source, required, required.name);
  const present: PodProtector = parsePodProtector({
    ...object,
    metadata: { ...object.metadata, uid: "p1", resourceVersion: "9" },
  });
  const [{ need }, key, { signal }] = [source, "daemonset/shop/agent", new AbortController()];
  const api = new ApiClient({ request: () => Promise.reject(new Error()), stream: () => Promise.reject(), close() {} });
  const { clock } = new VirtualTime();
  const workloads = new WorkloadScales({ api, kinds: new Map(), timeoutMs: 1000, clock });
  const resolver = new Resolver({ workloads, pods: { of: () => undefined, forget: () => {} }, clock });
  const presents = [present];
  const found = need && (await resolver.resolve({ key, kind: plugin.kind, source, need, presents, signal }));
  const protectors = found?.kind === "resolved" ? found.protectors : source.protectors;
  const identity = { plugin: plugin.name, namespace: "shop", name: "agent" };
  const facts = { kind: plugin.kind, plugins: [plugin], identity, protectors: presents, lost: [] };
  return plan({ ...facts, source: { ...source, protectors }, named: () => undefined }).map(({ kind }) => kind);
}

const RELEASED = ["release", "removeSourceFinalizer"];
const FRESH = { desiredNumberScheduled: 0 };

test.each<[string, number, object, object, readonly string[]]>([
  ["keeps a protector that promised pods before it", 4, FRESH, {}, ["update"]],
  ["releases one that promised none", 0, FRESH, {}, RELEASED],
  ["releases it where its protection is given up", 4, FRESH, { labels: { [PROTECT]: "false" } }, RELEASED],
  ["releases it where its controller has counted no nodes", 4, { ...FRESH, observedGeneration: 1 }, {}, RELEASED],
])("a deletion before the count of its nodes %s", async (_, minAvailable, status, metadata, steps) => {
  expect(await planned(minAvailable, status, metadata)).toEqual(steps);
});

test("a deletion that leaves the pods keeps the protector, and lets the DaemonSet go", async () => {
  expect(await planned(4, FRESH, {}, true)).toEqual(["update", "removeSourceFinalizer"]);
});
