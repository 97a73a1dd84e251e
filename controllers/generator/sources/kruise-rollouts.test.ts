/** What a protected workload promises while OpenKruise's Rollouts have changed its spec, as their sources do it. */
import { describe, expect, test } from "vitest";
import { isAvailable, maturityCutoffMs } from "../../../shared/decide/availability/availability.ts";
import { specFacts } from "../../../shared/decide/availability/spec-facts.ts";
import { parsePod } from "../../../shared/schema/pod.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import type { ProtectionSource } from "./protection-source.ts";

const PREFIX = "rollouts.kruise.io";
const selector = { matchLabels: { app: "web" } };
const deployments = pluginNamed("deployment");

function deployment(spec: object, annotations: Readonly<Record<string, string>> = {}): ProtectionSource {
  const metadata = { namespace: "shop", name: "web", uid: "u1", resourceVersion: "7", annotations };
  return deployments.interpret({ metadata, spec: { replicas: 10, selector, template: {}, ...spec } });
}

function promised({ protectors: [first] }: ProtectionSource): unknown[] {
  return [first?.spec.minAvailable, first?.spec.protectedOperations ?? "all"];
}

describe("a Deployment whose controller Rollouts have paused, under Recreate", () => {
  const spec = { paused: true, strategy: { type: "Recreate" } };
  const batches = (rollingUpdate: unknown): Readonly<Record<string, string>> => {
    const strategy = { rollingStyle: "Partition", rollingUpdate, partition: 1 };
    return { [`${PREFIX}/deployment-strategy`]: JSON.stringify(strategy) };
  };
  test.each<[string, object, Readonly<Record<string, string>>, unknown[]]>([
    ["promises as before", spec, batches({ maxUnavailable: "10%", maxSurge: 1 }), [9, "all"]],
    ["promises what its defaults do", spec, batches({}), [8, "all"]],
    [
      "is as any other with Recreate once it is paused no more",
      { ...spec, paused: false },
      batches({}),
      [8, ["EVICT"]],
    ],
    ["is as any other with Recreate where it is a person's", spec, {}, [8, ["EVICT"]]],
    ["is as any other with Recreate where nothing can be read", spec, batches("x"), [8, ["EVICT"]]],
  ])("%s", (_, changed, annotations, expected) => {
    expect(promised(deployment(changed, annotations))).toEqual(expected);
  });
});

describe("a workload by whose minReadySeconds no pod ever becomes available", () => {
  const original = (value: string): Readonly<Record<string, string>> => ({
    [`${PREFIX}/original-deployment-strategy`]: value,
  });
  const never = { minReadySeconds: 2_147_483_646 };
  const ready = { type: "Ready", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" };
  const metadata = { namespace: "shop", name: "web-1", uid: "p1", resourceVersion: "1", labels: selector.matchLabels };
  const pod = parsePod({ metadata, spec: {}, status: { phase: "Running", conditions: [ready] } });

  test.each<[string, object, Readonly<Record<string, string>>, number]>([
    ["counts them by its former one", never, original('{"maxUnavailable":"25%","minReadySeconds":30}'), 30],
    ["counts them once they are Ready", never, original('{"maxUnavailable":"25%"}'), 0],
    ["counts them where the former one can't be read", never, original("{"), 0],
    ["counts them where the former one is no number of seconds", never, original('{"minReadySeconds":-1.5}'), 0],
    ["counts them without a former one", never, {}, 0],
    ["counts them where it was always so", never, original('{"minReadySeconds":2147483646}'), 0],
    ["is no other one", { minReadySeconds: 3_600 }, original('{"minReadySeconds":30}'), 3_600],
  ])("%s", (_, spec, annotations, expected) => {
    const [required] = deployment(spec, annotations).protectors;
    if (required === undefined) throw new Error("it requires a protector");
    expect(required.spec.minReadySeconds).toBe(expected);
    // A pod that is not available may be deleted at any time.
    const facts = specFacts(required.spec);
    expect(isAvailable(pod, facts, maturityCutoffMs(Date.parse("2026-01-01T01:00:00Z"), facts))).toBe(true);
  });
});

test("a CloneSet by whose minReadySeconds no pod ever becomes available counts them, too", () => {
  const annotations = { [`${PREFIX}/original-deployment-strategy`]: '{"minReadySeconds":7}' };
  const metadata = { namespace: "shop", name: "web", uid: "u1", resourceVersion: "7", annotations };
  const cloneSets = pluginNamed("clonesets.apps.kruise.io", { scalable: ["apps.kruise.io/v1alpha1/clonesets"] });
  const { need } = cloneSets.interpret({ metadata, spec: { replicas: 3, minReadySeconds: 2_147_483_646 } });
  expect(need).toMatchObject({ kind: "scale", minReadySeconds: 7 });
});
