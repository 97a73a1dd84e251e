/**
 * manifests/uninstall.sh against a kubectl that is played; on a cluster it is run by
 * test/cluster/installation/uninstall.test.ts.
 */
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { root } from "./root.ts";

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "podseidon-uninstall-"));
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

/**
 * Runs it with a kubectl whose answers are the cases of a shell's `case "$*" in`; all else is answered with nothing.
 */
function uninstall(
  cases: string,
  ...args: readonly string[]
): { readonly code: number | null; readonly output: string; readonly calls: string } {
  const kubectl = join(directory, "kubectl");
  writeFileSync(kubectl, `#!/bin/sh\ncd '${directory}'\necho "$*" >> calls\ncase "$*" in\n${cases}\n*) ;;\nesac\n`);
  chmodSync(kubectl, 0o755);
  const { status, stdout, stderr } = spawnSync("sh", [join(root, "manifests/uninstall.sh"), ...args], {
    encoding: "utf8",
    env: { PATH: `${directory}${delimiter}${process.env.PATH ?? ""}` },
  });
  return { code: status, output: stdout + stderr, calls: readFileSync(join(directory, "calls"), "utf8") };
}

test("a registration that the aggregator put back before it ended goes, too", () => {
  const { code, output } = uninstall(`
    "get deployments "*) echo deployment.apps/podseidon-aggregator ;;
    "delete --namespace podseidon-system deployment"*) touch registration ;;
    "get validatingwebhookconfigurations -o name")
      [ ! -e registration ] || echo validatingwebhookconfiguration.admissionregistration.k8s.io/podseidon ;;
    "delete validatingwebhookconfiguration.admissionregistration.k8s.io/podseidon"*) rm registration ;;`);
  expect([code, output]).toEqual([0, "podseidon is gone from this cluster\n"]);
  expect(existsSync(join(directory, "registration"))).toBe(false);
});

test.each([
  ["every kind that the generator can hold", "", "daemonsets.apps"],
  ["every kind that the generator can hold", "", "replicationcontrollers"],
  ["every kind that the generator can hold", "", "podunavailablebudgets.policy.kruise.io"],
  ["every kind that the generator can hold", "", "xpoddisruptionbudgets.x-pdb.form3.tech"],
  [
    "a kind whose group fits no label",
    `"get podprotectors"*source-resource*) echo rollouts. long.example.com/v1 ;;`,
    "rollouts.v1.long.example.com",
  ],
  [
    "a kind that a label names",
    `"get podprotectors"*source-resource*) echo rollouts.argoproj.io v1 ;;`,
    "rollouts.argoproj.io",
  ],
])("%s is looked through for finalizers", (_, cases, kind) => {
  const { code, calls } = uninstall(cases);
  expect(code).toBe(0);
  expect(calls).toContain(`get ${kind} --all-namespaces`);
});

test("a kind that can't be read ends it, with what kubectl says; one that is not installed does not", () => {
  const missing =
    `"get poddisruptionbudgets.policy"*) ` + `echo "error: the server doesn't have a resource type" >&2; exit 1 ;;`;
  expect(uninstall(missing).code).toBe(0);
  const forbidden = uninstall(`"get poddisruptionbudgets.policy"*) echo "Forbidden: no" >&2; exit 1 ;;`);
  expect([forbidden.code, forbidden.output]).toEqual([1, "Forbidden: no\n"]);
});

test.each(["validatingwebhookconfigurations", "mutatingwebhookconfigurations", "clusterroles", "roles"])(
  "%s that can't be listed end it: it does not say that they are gone",
  (kind) => {
    const { code, output } = uninstall(`"get ${kind} "*) echo "Forbidden: no" >&2; exit 1 ;;`);
    expect([code, output]).toEqual([1, "Forbidden: no\n"]);
  },
);

test("a pod whose gate nobody opens any more becomes Ready", () => {
  const { code, calls } = uninstall(`"get pods "*"podseidon.kubewharf.io/counted"*) echo shop web-1 ;;`);
  expect(code).toBe(0);
  expect(calls).toMatch(/^patch pod web-1 --namespace shop --subresource=status .*podseidon.kubewharf.io\/counted/m);
});

test("the dummy pod of a cell that is a namespace goes, too", () => {
  const { calls } = uninstall("");
  expect(calls).toMatch(/^delete pods --all-namespaces --selector app.kubernetes.io\/part-of=podseidon /m);
});

describe("a workload whose deletion is held", () => {
  const cases = `"get statefulsets.apps "*deletionTimestamp*) echo statefulsets.apps shop db ;;`;

  test("is named, and nothing is changed", () => {
    const { code, output, calls } = uninstall(cases);
    expect(code).toBe(1);
    expect(output).toContain("  statefulsets.apps shop db\n");
    expect(output).toContain("run this again with --complete-deletions as the first argument");
    expect(calls).not.toMatch(/^(delete|patch)/m);
  });

  test("goes where that is asked for; kubectl does not see the flag", () => {
    const { code, output, calls } = uninstall(cases, "--complete-deletions", "--context", "core");
    expect([code, output]).toEqual([0, "podseidon is gone from this cluster\n"]);
    expect(calls).not.toContain("--complete-deletions");
    expect(calls).toMatch(/^--context core /m);
  });
});

test.each([
  ["namespace podseidon-system", "a namespace of podseidon"],
  ["customresourcedefinition", "the CRD podprotectors.podseidon.kubewharf.io"],
])("a %s that does not end is told, and all else goes", (object, told) => {
  const { code, output, calls } = uninstall(`
    "delete ${object}"*) echo timed out >&2; exit 1 ;;
    "get clusterroles -o name") echo clusterrole.rbac.authorization.k8s.io/podseidon-webhook ;;`);
  expect(code).toBe(1);
  expect(output).toContain(`not gone after 180s: ${told}.`);
  expect(output).not.toContain("podseidon is gone");
  expect(calls).toContain("delete clusterrole.rbac.authorization.k8s.io/podseidon-webhook");
});

describe("what is left to do in another cluster, its core", () => {
  const cell = `"get configmap podseidon-cell "*) printf worker-2 ;;`;
  const command = "\n  kubectl podseidon remove-cell worker-2 --all-namespaces --core-context CORE --yes\n";

  test("is told, with the cell's id", () => {
    const { code, output } = uninstall(cell);
    expect([code, output.endsWith(command)]).toEqual([0, true]);
  });

  test("is told where something is not gone yet", () => {
    const { code, output } = uninstall(`${cell}\n"delete namespace podseidon-system"*) exit 1 ;;`);
    expect(code).toBe(1);
    expect(output).toContain(command);
  });

  test("is nothing where the cluster is its own core", () => {
    const crd = `"get customresourcedefinition podprotectors"*) echo crd/podprotectors ;;`;
    expect(uninstall(`${cell}\n${crd}`).output).toBe("podseidon is gone from this cluster\n");
  });
});
