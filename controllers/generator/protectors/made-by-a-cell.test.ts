/** A worker cluster that is taken over may create protectors in the core, as if it restored them. */
import { describe, expect, test } from "vitest";
import { restoredObject } from "../../../shared/recovery/restore-protector.ts";
import type { PodProtector, PodProtectorSpec } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import type { ProtectionSource } from "../sources/protection-source.ts";
import { alternativeName } from "./names.ts";
import { plan, type ReconcileStep } from "./plan.ts";
import { newProtector } from "./protector.ts";

const GENERATOR = "podseidon.kubewharf.io/generator";
const MARK = "podseidon.kubewharf.io/restored";
const FROM_A = "cell a: the protector before this one vanished without a release";
const plugin = pluginNamed("deployment");
const required = {
  name: "deployment-web",
  spec: { minAvailable: 8, minReadySeconds: 0, selector: { matchLabels: { app: "web" } } },
  derivation: "replicas 10 - maxUnavailable 2 = minAvailable 8",
};
const identity = { plugin: "deployment", namespace: "shop", name: "web" };
/** Each of them takes pods out of the count, or has others counted, or holds the counts back. */
const WEAKENING: Partial<PodProtectorSpec> = {
  healthCriterion: "Scheduled",
  availabilityConditions: ["none"],
  unavailableLabelPrefix: "app",
  allowedHealthCriteria: ["Scheduled"],
  admissionHistoryConfig: { aggregationRateMillis: 2_000_000_000 },
};
const TIGHTER: Partial<PodProtectorSpec> = {
  unhealthyPodPolicy: "IfHealthyBudget",
  protectedOperations: ["DELETE", "EVICT", "UPDATE"],
};

function source(finalizers: readonly string[]): ProtectionSource {
  return {
    ...{ namespace: "shop", name: "web", uid: "u1", resourceVersion: "7", deleting: false, finalizers },
    ...{ decision: "Protected", protectors: [required] },
  };
}

function made(mark: string, metadata: Partial<PodProtector["metadata"]> = {}): PodProtector {
  const made = newProtector(plugin.kind, source([]), required, "deployment-web");
  const { labels, annotations, finalizers, ownerReferences, ...named } = made.metadata;
  return {
    metadata: {
      ...{ ...named, uid: "p1", resourceVersion: "9", labels },
      ...{ finalizers: [...finalizers], ownerReferences: [...ownerReferences] },
      annotations: { ...annotations, [MARK]: mark },
      ...metadata,
    },
    spec: { ...made.spec, ...WEAKENING, ...TIGHTER },
  };
}

function planned(
  of: ProtectionSource,
  own: PodProtector[],
  others: PodProtector[] = [],
  lost: PodProtector[] = [],
): ReconcileStep[] {
  const named = (name: string): PodProtector | undefined =>
    [...own, ...others].find(({ metadata }) => metadata.name === name);
  return plan({ kind: plugin.kind, plugins: [plugin], identity, source: of, protectors: own, named, lost });
}

function updated(steps: readonly ReconcileStep[]): PodProtector {
  expect(steps.map(({ kind }) => kind)).toEqual(["update"]);
  const [step] = steps;
  return step?.kind === "update" ? step.object : expect.fail("no update");
}

const clean = { ...required.spec, ...TIGHTER };

describe("a protector that a cell made", () => {
  test("for a source that never had one does not weaken its promise, and the source is held only then", () => {
    const taken = updated(planned(source([]), [made(FROM_A)]));
    expect(taken.spec).toEqual(clean);
    expect(taken.metadata.annotations?.[MARK]).toBe("the protector before this one vanished without a release");
    expect(planned(source([]), [taken]).map(({ kind }) => kind)).toEqual(["addSourceFinalizer"]);
    expect(planned(source([GENERATOR]), [taken])).toEqual([]);
  });

  test("for a source that had one is restored as it was, and is the generator's from now on", () => {
    const taken = updated(planned(source([GENERATOR]), [made(FROM_A)]));
    expect(taken.spec).toEqual({ ...clean, ...WEAKENING });
    expect(planned(source([GENERATOR]), [taken])).toEqual([]);
    expect(planned(source([]), [taken]).map(({ kind }) => kind)).toEqual(["addSourceFinalizer"]);
  });

  test.each(["deployment-web", alternativeName("deployment-web", "deployment/shop/web")])(
    "as %s, without the labels of a source, does not weaken the promise of a source that is held",
    (name) => {
      const bare = made(FROM_A, { name, labels: {}, ownerReferences: [] });
      const taking = name === "deployment-web" ? [] : [made("x", { labels: {}, ownerReferences: [], finalizers: [] })];
      expect(updated(planned(source([GENERATOR]), [], [bare, ...taking])).spec).toEqual(clean);
    },
  );

  test("and that vanished before its source came is restored without what weakens the promise", () => {
    const [, step] = planned(source([]), [], [], [made(FROM_A)]);
    expect(step).toMatchObject({ kind: "restore", object: { spec: clean } });
    expect(Object.keys(Object(step?.kind === "restore" ? step.object : {}).spec)).not.toContain("healthCriterion");
  });

  test("stays that cell's word when it is created again", () => {
    expect(restoredObject(made(FROM_A), false)).toMatchObject({ metadata: { annotations: { [MARK]: FROM_A } } });
  });

  test("a protector that the generator itself restored is left alone", () => {
    expect(planned(source([]), [made("it vanished")]).map(({ kind }) => kind)).toEqual(["addSourceFinalizer"]);
  });
});
