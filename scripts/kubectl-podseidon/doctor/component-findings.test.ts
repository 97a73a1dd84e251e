/** Deployments of the project in and after an upgrade. */
import { expect, test } from "vitest";
import { deploymentFindings, parseDeployments, versionFinding } from "./component-findings.ts";

const deployment = (image: string, replicas: number, status: object): object => ({
  metadata: { name: "a" },
  spec: { replicas, template: { spec: { containers: [{ image }] } } },
  status: { replicas, readyReplicas: replicas, updatedReplicas: replicas, ...status },
});

test.each<[string, number, object, string]>([
  ["one of two is replaced", 2, { replicas: 3, updatedReplicas: 1 }, "2 of 2 ready, 2 of an earlier version"],
  ["none of two is replaced", 2, { updatedReplicas: undefined }, "2 of 2 ready, 2 of an earlier version"],
  ["one is there beside the new one", 1, { replicas: 2, updatedReplicas: 1 }, "1 of 1 ready, 1 of an earlier version"],
])("replicas of an earlier version, whose successors can't start, are told: %s", (_, replicas, status, found) => {
  const [finding] = deploymentFindings(parseDeployments([deployment("p:2", replicas, status)]), "system");
  expect(finding).toMatchObject({ level: "warning", check: "a", found });
});

test("one version that clusters pull from different registries is one", () => {
  const told = (...images: readonly string[]): unknown =>
    versionFinding(parseDeployments(images.map((image) => deployment(image, 2, {}))));
  expect(told("eu.example.com/p@sha256:1", "us.example.com:5000/mirror/p@sha256:1")).toMatchObject({
    level: "ok",
    found: "eu.example.com/p@sha256:1, us.example.com:5000/mirror/p@sha256:1",
  });
  expect(told("eu.example.com/p@sha256:1", "us.example.com/p@sha256:2")).toMatchObject({ level: "warning" });
});
