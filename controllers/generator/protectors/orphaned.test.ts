import { describe, expect, test } from "vitest";
import type { Condition, ObjectMeta, PodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { plan } from "./plan.ts";
import { newProtector } from "./protector.ts";

const plugin = pluginNamed("deployment");
const GENERATOR = "podseidon.kubewharf.io/generator";
const RUNNING = { "podseidon.kubewharf.io/min-running": "50%" };
const [deletionTimestamp, lastTransitionTime] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"];

/** A Deployment that is being deleted while it asks for replicas. */
function deployment(changes: Partial<ObjectMeta> = {}, replicas = 10) {
  return plugin.interpret({
    metadata: {
      ...{ namespace: "shop", name: "web", uid: "u1", resourceVersion: "7" },
      ...{ finalizers: [GENERATOR], deletionTimestamp, ...changes },
    },
    spec: { replicas, selector: { matchLabels: { app: "web" } } },
  });
}

interface Changes extends Partial<ObjectMeta> {
  readonly orphaned?: boolean;
  readonly conditions?: Condition[];
}

/** Its first protector, as the apiserver has it: it leaves an empty list out. */
function protectorOf({ orphaned = false, conditions = [], ...changes }: Changes = {}): PodProtector {
  const source = deployment();
  const [required] = source.protectors;
  if (required === undefined) throw new Error("it requires one");
  const { metadata, spec } = newProtector(plugin.kind, source, required, required.name);
  const { ownerReferences: owners, ...others } = metadata;
  const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
  return {
    metadata: {
      ...{ ...others, finalizers: [...metadata.finalizers], uid: "p1", resourceVersion: "9", ...changes },
      ...(orphaned ? {} : { ownerReferences: [...owners] }),
    },
    spec,
    status: { cells: [], summary, conditions },
  };
}

function planned(source: ReturnType<typeof deployment>, protector: PodProtector): string[] {
  const identity = { plugin: plugin.name, namespace: "shop", name: "web" };
  const facts = { kind: plugin.kind, plugins: [plugin], identity, source, protectors: [protector], lost: [] };
  return plan({ ...facts, named: () => undefined }).map(({ kind }) => kind);
}

test("an orphaned protector has nothing to repair, so that the rules after the repair have their turn", () => {
  expect(planned(deployment(), protectorOf({ orphaned: true }))).toEqual(["removeSourceFinalizer"]);
  const deleted = protectorOf({ orphaned: true, deletionTimestamp });
  expect(planned(deployment(), deleted)).toEqual(["replace", "removeSourceFinalizer"]);
});

describe("a deletion that leaves the pods", () => {
  const leaving = (...args: Parameters<typeof deployment>) => ({ ...deployment(...args), leavesPods: true });
  const deleting = { type: "SourceDeleting", status: "True" as const, reason: "x", message: "", lastTransitionTime };
  const letGo = "removeSourceFinalizer";

  test.each([
    ["takes the owner from the protector and lets the source go", leaving(), protectorOf(), ["update", letGo]],
    ["which the garbage collector may have done", leaving(), protectorOf({ orphaned: true }), [letGo]],
    [
      "also where the deletion was held before",
      leaving(),
      protectorOf({ orphaned: true, conditions: [deleting] }),
      ["setSourceState", letGo],
    ],
    ["not before each protector is there", leaving({ annotations: RUNNING }), protectorOf(), ["update", "create"]],
    ["not where the source is not held", leaving({ finalizers: ["orphan"] }), protectorOf({ orphaned: true }), []],
    ["not where the pods go with it", deployment(), protectorOf({ conditions: [deleting] }), []],
    ["and zero replicas release, as always", leaving({}, 0), protectorOf(), ["release", letGo]],
  ])("%s", (_, source, protector, steps) => {
    expect(planned(source, protector)).toEqual(steps);
  });
});
