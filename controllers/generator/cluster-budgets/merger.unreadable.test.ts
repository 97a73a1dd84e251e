import { expect, test } from "vitest";
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import { ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { clusterBudgetOf } from "./cluster-budget.ts";
import { planMerge } from "./merge.ts";
import { BudgetMerger } from "./merger.ts";

const KEEP_MS = 600_000;
const metadata = { namespace: "ns", name: "db", uid: "u", resourceVersion: "3" };
const xpdb = (value: string) => ({ metadata, spec: { minAvailable: 2, selector: { matchLabels: { app: value } } } });

function cluster(items: readonly object[], writes: string[] = []): Transport {
  const request = async ({ method, path }: ApiRequest): Promise<ApiResponse> => {
    if (method !== "GET") writes.push(`${method} ${path.split("/").at(-1)?.split("?")[0]}`);
    return { status: 200, headers: {}, body: JSON.stringify({ metadata: { resourceVersion: "9" }, items }) };
  };
  const stream = async ({ signal }: ApiRequest): Promise<ApiStream> => ({
    ...{ status: 200, headers: {}, chunks: new ScriptedStream().read(signal), close: () => {} },
  });
  return { request, stream, close: () => {} };
}

test("a budget that can't be read any more is there all the same, also for a new leader", async () => {
  const before = [{ name: "a", isListed: true, budget: clusterBudgetOf(xpdb("db")) }];
  const input = { namespace: "ns", name: "db", stored: [], goneForMs: () => 0, keepMs: KEEP_MS };
  const { labels, annotations, spec } = planMerge({ ...input, clusters: before }).creates[0]?.wanted ?? {};
  const given = <T extends object>(record: T | undefined) =>
    Object.fromEntries(Object.entries(record ?? {}).filter(([, value]) => value !== null));
  const stored = { metadata: { ...metadata, labels, annotations: given(annotations) }, spec: given(spec) };
  const writes: string[] = [];
  const time = new VirtualTime();
  const merger = new BudgetMerger({
    transport: cluster([stored], writes),
    // x-pdb's CRD accepts a label value that no pod can have.
    clusters: [{ name: "a", transport: cluster([xpdb("not a label value")]) }],
    ...{ ports: time, keepMs: KEEP_MS, covers: () => true, mayWrite: () => true, onWatch: () => {}, onEvent: () => {} },
  });
  const end = new AbortController();
  const ended = merger.lead(end.signal);
  await time.advance(2 * KEEP_MS);
  expect(writes).toEqual([]);
  end.abort();
  await time.advance(1_000);
  await ended;
});
