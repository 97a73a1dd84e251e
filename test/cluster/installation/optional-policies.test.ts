/** The policies of optional components on a real cluster: `doctor` finds those of this release in order. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay } from "../../../scripts/demo/install.ts";
import { BUNDLES } from "../../../scripts/environment/component.ts";

const POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const NAMES = ["counted-gate", "void-reservations", "pre-activities", "namespace-marks"].map(
  (name) => `podseidon-${name}`,
);

let cluster: Cluster;

beforeAll(async () => {
  const flags = { "kube-apiserver": { "disable-admission-plugins": "ServiceAccount" } };
  cluster = await Cluster.start({ controllerManager: false, scheduler: false, kwok: false, flags });
  await applyOverlay(cluster, "single-cluster");
});

afterAll(async () => {
  await cluster?.stop();
});

/** The level of each finding that names an optional policy. */
async function found(): Promise<Readonly<Record<string, string>>> {
  const env = { PATH: "/usr/bin:/bin", HOME: cluster.directory, KUBECONFIG: cluster.kubeconfig };
  const plugin = join(BUNDLES, "kubectl-podseidon.mjs");
  const answer = promisify(execFile)(process.execPath, [plugin, "doctor"], { env });
  // With a problem it ends with 1.
  const stdout = await answer.then((ended) => ended.stdout).catch((error: unknown) => String(field(error, "stdout")));
  const lines = stdout.split("\n").filter((line) => / policy {2}/.test(line));
  const named = NAMES.map((name) => [name, lines.find((line) => line.includes(name))?.split(" ")[0]] as const);
  return Object.fromEntries(named.flatMap(([name, level]) => (level === undefined ? [] : [[name, level]])));
}

test("are not asked for without their components, in order with them, and told where they differ", async () => {
  expect(await found()).toEqual({});
  const components = ["counted-gate", "void-reservations", "pre-activities", "mark-namespaces"];
  await applyOverlay(cluster, "single-cluster", { components });
  const inOrder = Object.fromEntries(NAMES.map((name) => [name, "ok"]));
  expect(await found()).toEqual(inOrder);
  await cluster.admin.call("PATCH", `${POLICY}/podseidon-void-reservations`, {
    spec: { validations: [{ expression: "true" }] },
  });
  await cluster.admin.call("DELETE", `${POLICY}/podseidon-pre-activities`);
  const loose = { "podseidon-void-reservations": "WARN", "podseidon-pre-activities": "WARN" };
  expect(await found()).toEqual({ ...inOrder, ...loose });
});
