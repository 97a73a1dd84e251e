/** When a reconcile writes the status of a budget (docs/decisions/0013-who-writes-the-status-of-a-budget.md). */
import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest } from "../../../shared/kube/client/transport.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { makeCell, makeProtector } from "../../../test/support/decide/fixtures.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { plugins } from "../sources/plugins.ts";
import { ProblemReports } from "./events.ts";
import { newProtector } from "./protector.ts";
import { type ReconcilerOptions, reconciler } from "./reconcile.ts";

const plugin = pluginNamed("podunavailablebudget");
const METADATA = { namespace: "shop", name: "web", uid: "b1", resourceVersion: "7", generation: 4 };
const HELD = { ...METADATA, finalizers: ["podseidon.kubewharf.io/generator"] };
const spec = { minAvailable: 2, selector: { matchLabels: { app: "web" } } };
const DELETING = { ...HELD, deletionTimestamp: "2026-05-01T12:00:00Z" };
const LET_GO = { ...HELD, annotations: { "podseidon.kubewharf.io/protect": "false" } };

const required = {
  name: "podunavailablebudget-web",
  spec: { minAvailable: 2, minReadySeconds: 0, selector: spec.selector },
  derivation: "minAvailable 2, as the budget says",
};
const budget = (metadata: object) => plugin.interpret({ metadata, spec, status: { currentAvailable: 9 } });
const made = newProtector(plugin.kind, budget(HELD), required, required.name);
const protector = parsePodProtector({
  ...made,
  metadata: { ...made.metadata, uid: "p1", resourceVersion: "9" },
  status: makeProtector([makeCell("cell-1", 3)]).status,
});

/** The calls of one reconcile after another. */
async function callsOf(rounds: readonly (readonly [object, readonly PodProtector[]])[], mayWrite = () => true) {
  const calls: string[] = [];
  let [metadata, own]: readonly [object, readonly PodProtector[]] = [HELD, []];
  const request = async ({ method, path, body }: ApiRequest) => {
    calls.push(`${method} ${path.split("/").slice(-2).join("/").replace(/\?.*/, "")}`);
    const object = method === "GET" ? { metadata, spec, status: { currentAvailable: 9 } } : JSON.parse(body ?? "{}");
    const stored = { ...object, metadata: { ...METADATA, ...object.metadata } };
    return { status: method === "POST" ? 201 : 200, headers: {}, body: JSON.stringify(stored) };
  };
  const ports = new VirtualTime().process();
  const options: ReconcilerOptions = {
    api: new ApiClient({ request, stream: () => Promise.reject(new Error("nothing is watched")), close: () => {} }),
    ...{ ports, timeoutMs: 1_000, mayWrite, onEvent: () => {} },
    plugins: plugins({ protectSelector: "", protectNonZero: true }),
    kinds: new Map([[plugin.name, { kind: plugin.kind, get: () => budget(metadata) }]]),
    resolver: {
      resolve: async () => ({ kind: "resolved", protectors: [required], recheck: false }),
      forget: () => {},
    },
    protectors: { of: () => [...own], get: () => undefined, wrote: () => {}, released: () => {} },
    lost: { of: () => [] },
    register: { record: async () => ({ kind: "ok", object: undefined }) },
    reports: new ProblemReports(ports.clock, () => {}),
  };
  const reconcile = reconciler(options);
  for (const round of rounds) {
    [metadata, own] = round;
    await reconcile("podunavailablebudget/shop/web", { signal: new AbortController().signal, failures: 0 });
  }
  return calls;
}

const RELEASED = `podprotectors/${required.name}`;
const SHOWN = ["GET podunavailablebudgets/web", "PUT web/status"];

test.each<[string, Parameters<typeof callsOf>[0], string[]]>([
  ["is written once its protector is as it should be", [[HELD, [protector]]], SHOWN],
  ["waits for its protector", [[HELD, []]], ["POST shop/podprotectors"]],
  [
    "is taken away before its finalizer, once the budget has given its protection up",
    [
      [HELD, [protector]],
      [LET_GO, []],
    ],
    [...SHOWN, ...SHOWN, "PATCH podunavailablebudgets/web"],
  ],
  [
    "is left alone while the budget is being deleted",
    [[DELETING, [protector]]],
    ["PATCH podunavailablebudgets/web", `PUT ${RELEASED}`, `DELETE ${RELEASED}`, `GET ${RELEASED}`],
  ],
])("the status of a budget %s", async (_, rounds, expected) => {
  expect(await callsOf(rounds)).toEqual(expected);
});

test("a deposed leader writes no status", async () => {
  expect(await callsOf([[HELD, [protector]]], () => false)).toEqual([]);
});
