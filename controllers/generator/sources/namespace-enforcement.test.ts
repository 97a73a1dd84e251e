import { expect, test } from "vitest";
import type { Enforcement } from "../../../shared/schema/podprotector.ts";
import { page, ScriptedStream, ScriptedTransport } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { NamespaceEnforcement } from "./namespace-enforcement.ts";

const LABEL = "podseidon.kubewharf.io/enforcement";

function namespace(name: string, resourceVersion: string, enforcement?: string): unknown {
  const labels = enforcement === undefined ? {} : { [LABEL]: enforcement };
  return { metadata: { name, uid: `uid-${name}`, resourceVersion, labels } };
}

test("a namespace states the enforcement of what is in it, and a change of it is told once", async () => {
  const time = new VirtualTime({ seed: 1 });
  const transport = new ScriptedTransport();
  const watch = new ScriptedStream();
  transport.lists.push(page("100", [namespace("shop", "5", "Warn"), namespace("bank", "6", "warn")]));
  transport.watches.push(watch);
  const changed: string[] = [];
  const namespaces = new NamespaceEnforcement({
    ...{ transport, ports: time, byDefault: "Off", onWatch: () => {} },
    onChanged: (name) => changed.push(name),
  });
  const stated = (): readonly Enforcement[] => ["shop", "bank", "none"].map((name) => namespaces.of(name));
  expect(namespaces.synced).toBe(false);
  namespaces.start();
  await time.advance(10);
  expect([namespaces.synced, stated(), changed]).toEqual([true, ["Warn", "Off", "Off"], ["shop", "bank"]]);
  const why = "the label podseidon.kubewharf.io/enforcement of its namespace must be Enforce, Warn or Off";
  expect(["shop", "bank", "none"].map((name) => namespaces.whyInvalid(name))).toEqual([undefined, why, undefined]);

  watch.event("MODIFIED", namespace("shop", "101", "Warn"));
  watch.event("ADDED", namespace("none", "102", "Enforce"));
  await time.advance(0);
  expect([stated(), changed]).toEqual([
    ["Warn", "Off", "Enforce"],
    ["shop", "bank", "none"],
  ]);

  // Without the label it leaves the watch, as a namespace that is gone.
  watch.event("DELETED", namespace("shop", "103"));
  await time.advance(0);
  expect([stated(), changed]).toEqual([
    ["Off", "Off", "Enforce"],
    ["shop", "bank", "none", "shop"],
  ]);

  watch.event("MODIFIED", namespace("bank", "104", "off"));
  watch.event("MODIFIED", namespace("none", "105", ""));
  await time.advance(0);
  expect([stated(), changed.slice(4), namespaces.whyInvalid("none")]).toEqual([["Off", "Off", "Off"], ["none"], why]);
});
