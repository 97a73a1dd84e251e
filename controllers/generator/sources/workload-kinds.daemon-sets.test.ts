import { expect, test } from "vitest";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";

const plugin = pluginNamed("daemonset");

function interpreted(status: object | undefined): ReturnType<typeof plugin.interpret> {
  return plugin.interpret({
    metadata: { namespace: "shop", name: "agent", uid: "d1", resourceVersion: "1", generation: 1 },
    spec: { selector: { matchLabels: { app: "agent" } } },
    ...(status === undefined ? {} : { status }),
  });
}

/** The status before the first write of the DaemonSet controller. */
const FRESH = { currentNumberScheduled: 0, numberMisscheduled: 0, desiredNumberScheduled: 0, numberReady: 0 };

test.each<[string, object | undefined]>([
  ["without a status", undefined],
  ["with the status of its creation", FRESH],
])("a DaemonSet %s needs its controller to count its nodes", (_, status) => {
  const { decision, need, protectors } = interpreted(status);
  expect({ decision, protectors }).toEqual({ decision: "Protected", protectors: [] });
  expect(need).toMatchObject({ kind: "status", required: [{ name: "daemonset-agent", spec: { minAvailable: 0 } }] });
});

test.each([
  [0, 0],
  [5, 4],
])("a DaemonSet on %i nodes requires %i pods", (desiredNumberScheduled, minAvailable) => {
  const { need, protectors } = interpreted({ ...FRESH, desiredNumberScheduled, observedGeneration: 1 });
  expect(need).toBeUndefined();
  expect(protectors.map(({ spec }) => spec.minAvailable)).toEqual([minAvailable]);
});
