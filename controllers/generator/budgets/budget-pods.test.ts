import { expect, test } from "vitest";
import { ScriptedStream, ScriptedTransport } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { BudgetPods } from "./budget-pods.ts";

const selector = { matchLabels: { app: "web" } };

function pod(name: string, kind: string, phase: string, resourceVersion = "1") {
  const owner = { apiVersion: kind === "Job" ? "batch/v1" : "apps/v1", kind, name: kind, uid: kind, controller: true };
  const metadata = { name, namespace: "shop", uid: name, labels: { app: "web" }, resourceVersion };
  return { metadata: { ...metadata, ownerReferences: [owner] }, status: { phase } };
}

/** Three pods of a StatefulSet, and one of a Job with the same labels, as the hook of a Helm chart has them. */
async function rig() {
  const time = new VirtualTime();
  const transport = new ScriptedTransport();
  const stream = new ScriptedStream();
  const items = [..."abc"].map((name) => pod(name, "StatefulSet", "Running"));
  const body = { metadata: { resourceVersion: "9" }, items: [...items, pod("hook", "Job", "Running")] };
  transport.lists.push({ status: 200, body });
  transport.confirmations.push({ status: 200, body: { metadata: { resourceVersion: "9" }, items: [] } });
  transport.watches.push(stream);
  const changed: string[] = [];
  const pods = new BudgetPods({ transport, ports: time, onWatch: () => {}, onChanged: (key) => changed.push(key) });
  const of = (key: string, withoutFinished: boolean) => {
    const found = pods.of(key, "shop", selector, withoutFinished);
    return found && { total: found.total, kinds: [...found.controllers].map(({ kind }) => kind) };
  };
  for (const key of ["pub", "pdb", "gone"]) expect(of(key, key === "pub")).toBeUndefined();
  pods.forget("gone");
  await time.advance(1_000);
  expect(changed).toEqual(["pub", "pdb"]);
  return { time, stream, changed, pods, of };
}

// OpenKruise counts over active pods alone (GetPodsForPub); the disruption controller and x-pdb over all of them.
test("a finished pod and its controller count for the budgets alone that count all pods", async () => {
  const { time, stream, changed, pods, of } = await rig();
  const all = { total: 4, kinds: ["StatefulSet", "Job"] };
  expect(of("pub", true)).toEqual(all);
  expect(of("pdb", false)).toEqual(all);
  expect(pods.of("pdb", "shop", selector)?.jobPods).toBe(1);
  changed.length = 0;
  stream.event("MODIFIED", pod("hook", "Job", "Succeeded", "10"));
  await time.advance(1_000);
  // A pod of a Job that has ended is no longer asked for.
  expect(changed).toEqual(["pub", "pdb"]);
  expect(["pub", "pdb"].map((key) => pods.of(key, "shop", selector, key === "pub")?.jobPods)).toEqual([0, 0]);
  expect(of("pub", true)).toEqual({ total: 3, kinds: ["StatefulSet"] });
  expect(of("pdb", false)).toEqual(all);
  stream.event("MODIFIED", pod("a", "StatefulSet", "Failed", "11"));
  stream.event("ADDED", pod("d", "StatefulSet", "Running", "12"));
  await time.advance(1_000);
  expect(changed).toEqual(["pub", "pdb", "pub", "pub", "pdb"]);
  expect([of("pub", true)?.total, of("pdb", false)?.total]).toEqual([3, 5]);
  await pods.stop();
});

test("a controller counts until the last of its pods has left", async () => {
  const { time, stream, pods, of } = await rig();
  const kinds = async (gone: string): Promise<unknown> => {
    stream.event("DELETED", pod(gone, "StatefulSet", "Running", "10"));
    await time.advance(1_000);
    return of("pub", true);
  };
  expect(of("pub", true)).toEqual({ total: 4, kinds: ["StatefulSet", "Job"] });
  expect(await kinds("a")).toEqual({ total: 3, kinds: ["StatefulSet", "Job"] });
  expect(await kinds("b")).toEqual({ total: 2, kinds: ["StatefulSet", "Job"] });
  expect(await kinds("c")).toEqual({ total: 1, kinds: ["Job"] });
  expect(of("later", true)).toEqual({ total: 1, kinds: ["Job"] });
  await pods.stop();
});

test("a budget is told of its own pods alone, and follows its selector", async () => {
  const { time, stream, changed, pods, of } = await rig();
  of("pub", true);
  pods.of("other", "shop", { matchLabels: { app: "api" } });
  pods.of("away", "elsewhere", selector);
  const told = async (type: "ADDED" | "MODIFIED", object: ReturnType<typeof pod>): Promise<readonly string[]> => {
    changed.length = 0;
    stream.event(type, object);
    await time.advance(1_000);
    return [...changed];
  };
  expect(await told("MODIFIED", pod("a", "StatefulSet", "Pending", "10"))).toEqual([]);
  expect(await told("ADDED", pod("d", "StatefulSet", "Running", "11"))).toEqual(["pub"]);
  expect(await told("MODIFIED", pod("d", "ReplicaSet", "Running", "12"))).toEqual(["pub"]);
  expect(of("pub", true)).toEqual({ total: 5, kinds: ["StatefulSet", "Job", "ReplicaSet"] });
  expect(pods.of("away", "elsewhere", selector)).toEqual({ total: 0, jobPods: 0, controllers: [] });
  expect(pods.of("other", "shop", selector)?.total).toBe(5);
  pods.forget("pub");
  expect(await told("ADDED", pod("e", "StatefulSet", "Failed", "13"))).toEqual(["other"]);
  await pods.stop();
});

test("a controller is the one that its pods name now, also after its kind has got another version", async () => {
  const { time, stream, pods } = await rig();
  const versions = () => pods.of("pub", "shop", selector, true)?.controllers.map(({ apiVersion }) => apiVersion);
  expect(versions()).toEqual(["apps/v1", "batch/v1"]);
  const replaced = pod("d", "StatefulSet", "Running", "10");
  const ownerReferences = replaced.metadata.ownerReferences.map((owner) => ({ ...owner, apiVersion: "apps/v2" }));
  stream.event("ADDED", { ...replaced, metadata: { ...replaced.metadata, ownerReferences } });
  for (const gone of "abc") stream.event("DELETED", pod(gone, "StatefulSet", "Running", "11"));
  await time.advance(1_000);
  expect(versions()?.sort()).toEqual(["apps/v2", "batch/v1"]);
  await pods.stop();
});
