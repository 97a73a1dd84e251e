import { describe, expect, test } from "vitest";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { sourceIsThere } from "./changes.ts";

const CLONE_SETS = "/apis/apps.kruise.io/v1alpha1/namespaces/shop/clonesets";
/** A group whose newer version is without CloneSets. */
const served: Readonly<Record<string, unknown>> = {
  "/apis/apps.kruise.io": {
    preferredVersion: { groupVersion: "apps.kruise.io/v1beta1" },
    versions: [{ groupVersion: "apps.kruise.io/v1beta1" }, { groupVersion: "apps.kruise.io/v1alpha1" }],
  },
  [`${CLONE_SETS}/web`]: {},
};
const core = { find: async (path: string): Promise<unknown> => served[path] };

function protector(name: string, ownerReferences: PodProtector["metadata"]["ownerReferences"] = []): PodProtector {
  const labels = {
    "podseidon.kubewharf.io/source-name": name,
    "podseidon.kubewharf.io/source-group": "apps.kruise.io",
    "podseidon.kubewharf.io/source-kind": "CloneSet",
    "podseidon.kubewharf.io/source-resource": "clonesets",
  };
  const metadata = { namespace: "shop", name: `cloneset-${name}`, uid: "p1", resourceVersion: "1", labels };
  const spec = { minAvailable: 1, minReadySeconds: 0, selector: {} };
  return { metadata: { ...metadata, ownerReferences }, spec };
}

describe("the workload of a protector is looked for in every version of its group", () => {
  const owner = { apiVersion: "apps.kruise.io/v1alpha1", kind: "CloneSet", name: "web", uid: "u1", controller: true };
  test.each<[string, PodProtector, boolean]>([
    ["one that its owner reference names", protector("web", [owner]), true],
    ["one that its labels name", protector("web"), true],
    ["one that is gone", protector("other"), false],
  ])("%s", async (_, given, expected) => {
    expect(await sourceIsThere(core, given)).toBe(expected);
  });
});
