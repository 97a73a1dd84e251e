/**
 * The manifests and the minimum on the oldest supported Kubernetes. With PODSEIDON_TEST_SIZE=full only, because its
 * apiserver is built for it.
 */

import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ApiAnswer, field } from "../../../scripts/control-plane/api-client.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay } from "../../../scripts/demo/install.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { ask } from "../../support/cluster/ask.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { oldestBinaries, oldestKubernetes } from "../../support/cluster/test-tools.ts";

const PODS = 5;
const MIN_AVAILABLE = 3;
/** Time for a build on a busy machine. */
const BUILD_WITHIN_MS = 30 * 60_000;

let environment: TestEnvironment;
let trigger: Component | undefined;

describe.runIf(process.env.PODSEIDON_TEST_SIZE === "full")(`on Kubernetes ${oldestKubernetes()}`, () => {
  beforeAll(async () => {
    const binaries = await oldestBinaries();
    environment = await TestEnvironment.start({
      cells: ["east"],
      single: true,
      replicas: 2,
      cell: { binaries, ...BARE, flags: { "kube-apiserver": { "feature-gates": "InPlacePodVerticalScaling=true" } } },
    });
    trigger = await environment.startUpdateTrigger("east");
    const version = await environment.core.admin.get("/version");
    expect(field(version, "gitVersion")).toBe(`v${oldestKubernetes()}`);
  }, BUILD_WITHIN_MS);

  afterAll(async () => {
    await trigger?.stop();
    await environment?.stop();
  });

  test.each(["deleted", "evicted"])("as many pods are %s as can be spared, and no more", async (way) => {
    const app = `to-be-${way}`;
    const labels = { app };
    const { core } = environment;
    await createProtector(core, "default", app, { minAvailable: MIN_AVAILABLE, selector: { matchLabels: labels } });
    const names = await createReadyPods(core, { namespace: "default", prefix: app, count: PODS, labels });
    await waitUntilSettled(core, "default", app, PODS);
    const statuses: number[] = [];
    for (const name of names) {
      const path = `/api/v1/namespaces/default/pods/${name}`;
      const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: "default" } };
      const { status } =
        way === "deleted" ? await ask(core, "DELETE", path) : await ask(core, "POST", `${path}/eviction`, eviction);
      statuses.push(status);
      // For a moment a deletion may be subtracted twice (docs/limits.md), and another one is busy then.
      const left = PODS - statuses.filter((one) => one < 300).length;
      await waitUntilSettled(core, "default", app, left);
    }
    const spare = PODS - MIN_AVAILABLE;
    expect(statuses.filter((status) => status < 300)).toHaveLength(spare);
    expect(statuses.filter((status) => status === 409 || status === 429)).toHaveLength(PODS - spare);
    await waitUntilSettled(core, "default", app, MIN_AVAILABLE);
  });

  test.each(["single-cluster", "core", "worker", "rollout/2-dry-run/worker"])(
    "overlays/%s is accepted",
    async (overlay) => {
      const { core } = environment;
      // The present ones have a URL, which cannot be merged with a Service.
      await core.kubectl(["delete", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "podseidon"]);
      // A dry run does not create it for the objects in it.
      await core.kubectl(["create", "namespace", "podseidon-update-trigger", "--save-config"]);
      const directory = join(root, "manifests/overlays", overlay);
      const answer = await core.kubectl(["apply", "-k", directory, "--dry-run=server", "--validate=strict"]);
      expect(answer).toMatchObject({ code: 0, stderr: "" });
    },
  );

  test("a resize is a write of the pod there, and asks nobody", async () => {
    const { core } = environment;
    const resizePolicy = [{ resourceName: "cpu", restartPolicy: "RestartContainer" }];
    const container = { name: "app", image: "app:1", resources: { requests: { cpu: "1" } }, resizePolicy };
    const pods = "/api/v1/namespaces/default/pods";
    await core.admin.call("POST", pods, { metadata: { name: "resized" }, spec: { containers: [container] } });
    await applyOverlay(core, "single-cluster");
    const patch = (change: object): Promise<ApiAnswer> =>
      core.admin.request("PATCH", `${pods}/resized`, { spec: { containers: [{ ...container, ...change }] } });
    // No webhook is behind this configuration.
    await core.waitFor("the webhook to be asked", async () => (await patch({ image: "app:2" })).status === 500);
    expect((await patch({ resources: { requests: { cpu: "2" } } })).status).toBe(200);
  });
});
