/** The annotation min-running: a second protector (docs/design.md#criterion-of-a-protector). */
import { describe, expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { Resolver } from "../budgets/resolve.ts";
import { WorkloadScales } from "../budgets/workload-scales.ts";
import type { ProtectionSource, RequiredProtector, SourcePlugin } from "./protection-source.ts";

const SCALABLE = "x.example.com/v1/sets?name=.parts[*].name&replicas=.parts[*].n&selector=part={.parts[*].name}";
const deployments = pluginNamed("deployment");
const daemonSets = pluginNamed("daemonset");
const sets = pluginNamed("sets.x.example.com", { scalable: [SCALABLE] });

function object(minRunning: string | undefined, rest: object): unknown {
  const labels = { "podseidon.kubewharf.io/protect": "true" };
  const annotations = minRunning === undefined ? {} : { "podseidon.kubewharf.io/min-running": minRunning };
  return {
    metadata: { namespace: "shop", name: "web", uid: "u1", resourceVersion: "7", labels, annotations },
    ...rest,
  };
}

const selector = { matchLabels: { app: "web" } };
const deployment = (minRunning: string | undefined, spec: object = {}): readonly RequiredProtector[] =>
  deployments.interpret(object(minRunning, { spec: { replicas: 10, selector, ...spec } })).protectors;

async function required(plugin: SourcePlugin, source: ProtectionSource, presents: readonly PodProtector[] = []) {
  const { need } = source;
  if (need === undefined) throw new Error("it needs nothing");
  const unasked = (): never => {
    throw new Error("not to be asked");
  };
  const api = new ApiClient({ request: unasked, stream: unasked, close: () => {} });
  const { clock } = new VirtualTime();
  const workloads = new WorkloadScales({ api, kinds: new Map(), timeoutMs: 1000, clock });
  const resolver = new Resolver({ workloads, pods: { of: unasked, forget: () => {} }, clock });
  const { signal } = new AbortController();
  const kind = { ...plugin.kind, kind: plugin.kind.kind || "Set" };
  const resolution = await resolver.resolve({ key: "k", kind, source, need, presents, signal });
  if (resolution.kind !== "resolved") throw new Error(resolution.kind);
  return resolution.protectors.map(({ name, spec }) => [name, spec.minAvailable, spec.healthCriterion]);
}

describe("a workload with the annotation", () => {
  test("requires a second protector, which counts the same pods by their phase", () => {
    const [first, second, ...others] = deployment("45%");
    expect([first?.name, first?.spec.healthCriterion, others]).toEqual(["deployment-web", undefined, []]);
    expect(second).toEqual({
      name: "deployment-web.running",
      spec: { minAvailable: 5, minReadySeconds: 0, healthCriterion: "Running", selector },
      derivation: "45% of replicas 10 (by annotation) = minAvailable 5, of pods in phase Running",
    });
    expect(deployment(undefined)).toHaveLength(1);
  });

  test.each<[string, object, number]>([
    ["3", {}, 3],
    ["12", {}, 10],
    ["many", {}, 10],
    ["3", { replicas: 0 }, 0],
    ["3", { strategy: { type: "Recreate" } }, 3],
  ])("%s of %j is a floor of %i, for deletions too", (text, spec, expected) => {
    expect(deployment(text, spec)[1]?.spec).toMatchObject({ minAvailable: expected });
    expect(deployment(text, spec)[1]?.spec).not.toHaveProperty("protectedOperations");
  });

  test("has a floor for each group of its pods, under a name that no group has", async () => {
    const parts = {
      parts: [
        { name: "a", n: 4 },
        { name: "a-running", n: 8 },
      ],
    };
    expect(await required(sets, sets.interpret(object("50%", parts)))).toEqual([
      ["set-web-a", 3, undefined],
      ["set-web-a.running", 2, "Running"],
      ["set-web-a-running", 6, undefined],
      ["set-web-a-running.running", 4, "Running"],
    ]);
  });

  test("keeps the number of each protector while its controller has counted nothing", async () => {
    const applied = daemonSets.interpret(object("50%", { spec: { selector } }));
    const present = (name: string, minAvailable: number): PodProtector => ({
      metadata: { namespace: "shop", name, uid: name, resourceVersion: "1" },
      spec: { minAvailable, minReadySeconds: 0, selector },
    });
    const presents = [present("daemonset-web.running", 5), present("daemonset-web", 9)];
    expect(await required(daemonSets, applied, presents)).toEqual([
      ["daemonset-web", 9, undefined],
      ["daemonset-web.running", 5, "Running"],
    ]);
  });
});
