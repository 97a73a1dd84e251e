import { describe, expect, test } from "vitest";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { makeCell, makeProtector } from "../../test/support/decide/fixtures.ts";
import { findProtectors, requireProtector } from "./find-protectors.ts";
import { CommandError } from "./invocation/errors.ts";
import { viewProtector } from "./view.ts";

function of(kind: string, workload: string, name = `${kind.toLowerCase()}-${workload}`): PodProtector {
  const protector = makeProtector([makeCell("a", 3)]);
  const labels = {
    "podseidon.kubewharf.io/source-name": workload,
    "podseidon.kubewharf.io/source-group": kind === "CloneSet" ? "apps.kruise.io" : "apps",
    "podseidon.kubewharf.io/source-kind": kind,
    "podseidon.kubewharf.io/source-resource": `${kind.toLowerCase()}s`,
  };
  return { ...protector, metadata: { ...protector.metadata, namespace: "shop", name, labels } };
}

const known = [
  of("Deployment", "web"),
  of("StatefulSet", "web"),
  of("Deployment", "api"),
  of("CloneSet", "x", "web-2"),
];

describe("a protector is found as people name it", () => {
  test.each<[string, string[]]>([
    ["deployment-web", ["deployment-web"]],
    ["ppr/deployment-web", ["deployment-web"]],
    ["podprotector/deployment-web", ["deployment-web"]],
    ["deployment/web", ["deployment-web"]],
    ["deployments/web", ["deployment-web"]],
    ["StatefulSet/web", ["statefulset-web"]],
    ["deploy/web", ["deployment-web"]],
    ["sts/web", ["statefulset-web"]],
    ["podprotector.podseidon.kubewharf.io/deployment-web", ["deployment-web"]],
    ["deployment.apps/web", ["deployment-web"]],
    ["cloneset.apps.kruise.io/x", ["web-2"]],
    ["deployment.example.com/web", []],
    ["api", ["deployment-api"]],
    ["web", ["deployment-web", "statefulset-web"]],
    ["web-2", ["web-2"]],
    ["ppr/web", []],
    ["daemonset/web", []],
    ["we", []],
  ])("%s", (word, names) => {
    expect(findProtectors(word, known).map(({ metadata }) => metadata.name)).toEqual(names);
  });

  test.each([
    ["web", "web has several protectors: name one of deployment-web, statefulset-web"],
    ["deployment-wbe", "there is no PodProtector deployment-wbe in namespace shop of c; did you mean deployment-web?"],
    ["deployment/apy", "there is no PodProtector deployment/apy in namespace shop of c; did you mean deployment-api?"],
    ["ppr/payments", "there is no PodProtector payments in namespace shop of c; see -n"],
  ])("%s is refused", (word, text) => {
    expect(() => requireProtector(word, known, "shop", { name: "c" })).toThrow(new CommandError(text));
  });

  test("no other namespace is advised after a search in all", () => {
    const text = "there is no PodProtector payments in any namespace of c";
    expect(() => requireProtector("payments", known, undefined, { name: "c" })).toThrow(new CommandError(text));
  });
});

test("a workload whose name is too long for a label is found by that name", () => {
  const long = "w".repeat(253);
  const made = of("Deployment", `${"w".repeat(54)}-1a2b3c4d`, "deployment-long");
  const owner = { apiVersion: "apps/v1", kind: "Deployment", name: long, uid: "u1", controller: true };
  const protector = { ...made, metadata: { ...made.metadata, ownerReferences: [owner] } };
  for (const word of [long, `deployment/${long}`, `deployment.apps/${long}`])
    expect(findProtectors(word, [...known, protector])).toEqual([protector]);
  expect(viewProtector(protector, 0).source).toBe(`Deployment ${long}`);
});
