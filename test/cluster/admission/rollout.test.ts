/** A rolling update and a drain finish without help while their pods are protected. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { deploy, drain, roll } from "../../../scripts/bench/rollout.ts";
import { items } from "../../../scripts/control-plane/api-client.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { wakingControllers } from "../../support/cluster/denied-controllers.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const REPLICAS = FULL ? 200 : 40;
/** Spread over three nodes, so that a drain evicts a third. */
const DRAINED = FULL ? 150 : 24;

let environment: TestEnvironment;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    cells: ["cell"],
    single: true,
    replicas: 2,
    settle: "40s",
    cell: { nodes: 3 },
  });
});

afterAll(() => environment?.stop());

describe("the ordinary work of controllers and operators", () => {
  it(`rolls ${REPLICAS} replicas with the real Deployment controller`, async () => {
    await deploy(environment, "web", REPLICAS);
    await waitUntilSettled(environment.core, "default", "web", REPLICAS);
    const figures = await roll(environment, "web", REPLICAS, "app:2", wakingControllers(environment.core));
    process.stdout.write(
      `rolling update of ${REPLICAS}: ${Math.round(figures.tookMs)} ms, ${figures.refusals} refusals\n`,
    );
    await waitUntilSettled(environment.core, "default", "web", REPLICAS);
    expect((await readProtector(environment.core, "default", "web")).status?.summary.estimatedAvailableReplicas).toBe(
      REPLICAS,
    );
    await environment.core.kubectl(["delete", "podprotector/web", "deployment/web"]);
  });

  it("drains a node full of protected pods with kubectl", async () => {
    await deploy(environment, "drained", DRAINED);
    await waitUntilSettled(environment.core, "default", "drained", DRAINED);
    const figures = await drain(environment, "node-1", "drained", DRAINED);
    process.stdout.write(
      `drain of a node with protected pods: ${Math.round(figures.tookMs)} ms, ${figures.refusals} refusals\n`,
    );
    const left = await environment.core.admin.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1");
    expect(items(left)).toHaveLength(0);
  });
});
