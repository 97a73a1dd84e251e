import { expect, test } from "vitest";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { plan } from "./plan.ts";
import { newProtector } from "./protector.ts";

const plugin = pluginNamed("deployment");

/** A Deployment of ten that is being deleted, and its protector as the apiserver has it once a deletion orphaned it. */
function planned(status: PodProtector["status"], deletionTimestamp?: string) {
  const source = plugin.interpret({
    metadata: {
      ...{ namespace: "shop", name: "web", uid: "u1", resourceVersion: "7" },
      ...{ finalizers: ["podseidon.kubewharf.io/generator"], deletionTimestamp: "2026-01-01T00:00:00Z" },
    },
    spec: { replicas: 10, selector: { matchLabels: { app: "web" } } },
  });
  const [required] = source.protectors;
  if (required === undefined) throw new Error("it requires one");
  const { metadata, spec } = newProtector(plugin.kind, source, required, required.name);
  // The apiserver leaves an empty list out.
  const { ownerReferences: _, ...others } = metadata;
  const deleted = deletionTimestamp === undefined ? {} : { deletionTimestamp };
  const protector: PodProtector = {
    metadata: { ...others, ...deleted, uid: "p1", resourceVersion: "9" },
    spec,
    ...(status === undefined ? {} : { status }),
  };
  const identity = { plugin: plugin.name, namespace: "shop", name: "web" };
  const facts = { kind: plugin.kind, plugins: [plugin], identity, source, protectors: [protector], lost: [] };
  return plan({ ...facts, named: () => undefined }).map(({ kind }) => kind);
}

test("an orphaned protector has nothing to repair, so that the rules after the repair have their turn", () => {
  expect(planned(undefined)).toEqual(["reportSource", "setSourceState"]);
  expect(planned(undefined, "2026-01-01T00:00:01Z")).toEqual(["replace"]);
});
