/** One protector from audit to enforcement (docs/design.md#enforcement): the annotation of its Deployment decides. */

import { afterAll, beforeAll, expect, test } from "vitest";
import { deploy } from "../../../scripts/bench/rollout.ts";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { kubectlDecided } from "../../support/cluster/ask.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { eventually, protectorPath } from "../../support/generator/generator-harness.ts";

const NAME = "web";
const PODS = 3;
const PROTECTOR = "deployment-web";
const ANNOTATION = "podseidon.kubewharf.io/enforcement";

let environment: TestEnvironment;
let generator: Component;

beforeAll(async () => {
  environment = await TestEnvironment.start({ cells: ["cell"], single: true, replicas: 1, cell: { nodes: 1 } });
  generator = await environment.startGenerator();
  await deploy(environment, NAME, PODS);
  await environment.core.kubectl(["delete", `podprotector/${NAME}`]);
  const key = Object.keys(PROTECTED)[0];
  await kubectl("label", `deployment/${NAME}`, `${key}=true`);
  await kubectl("annotate", `deployment/${NAME}`, `podseidon.kubewharf.io/min-available=${PODS}`);
  await enforcement("Warn");
  await waitUntilSettled(environment.core, "default", PROTECTOR, PODS);
  await environment.core.waitFor("the webhook to know", async () =>
    (await deletePod("--dry-run=server")).includes("not enforced"),
  );
});

afterAll(async () => {
  await generator?.stop();
  await environment?.stop();
});

async function kubectl(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await kubectlDecided(environment.core, args);
  return `${code} ${stdout}${stderr}`;
}

/** States it at the Deployment, and waits for the protector; undefined takes the annotation off. */
async function enforcement(stated: "Warn" | "Off" | undefined): Promise<void> {
  const change = stated === undefined ? `${ANNOTATION}-` : `${ANNOTATION}=${stated}`;
  await kubectl("annotate", "--overwrite", `deployment/${NAME}`, change);
  const path = protectorPath("default", PROTECTOR);
  await eventually(environment.core, path, (one) => field(one, "spec", "enforcement") === stated);
}

async function podName(): Promise<string> {
  const pods = items(await environment.core.admin.get(`/api/v1/namespaces/default/pods?labelSelector=app%3D${NAME}`));
  const running = pods.filter((one) => field(one, "metadata", "deletionTimestamp") === undefined);
  return String(field(running[0], "metadata", "name"));
}

const deletePod = async (...flags: readonly string[]): Promise<string> =>
  await kubectl("delete", "pod", await podName(), "--wait=false", ...flags);

test("Warn deletes at the minimum, with the text of the denial as a warning, a record and an Event", async () => {
  const metric = async (name: string, labels: Readonly<Record<string, string>>): Promise<number> =>
    (await environment.webhooks[0]?.component.metric(`podseidon_webhook_${name}_total`, labels)) ?? 0;
  const reviews = (): Promise<number> => metric("reviews", { kind: "delete", outcome: "dryRunDenied" });
  const denials = (): Promise<number> =>
    metric("denials", { namespace: "default", protector: PROTECTOR, enforced: "false" });
  let [before, answer]: [readonly number[], string] = [[], ""];
  // Where the record takes more than a second, the pod goes without one and without a warning.
  await environment.core.waitFor("a record that is written within a second", async () => {
    before = [await reviews(), await denials()];
    answer = await deletePod();
    expect(answer).toMatch(/^0 /);
    return answer.includes("Warning: ");
  });
  expect(answer).toContain(`Warning: not enforced: pod default/${NAME}-`);
  expect(answer).toContain("its capacity is at the minimum");
  expect([await reviews(), await denials()]).toEqual(before.map((count) => count + 1));
  await environment.core.waitFor("the Event", async () => {
    const events = items(await environment.core.admin.get("/api/v1/namespaces/default/events"));
    return events.some((one) => field(one, "reason") === "DisruptionWouldBeRefused");
  });
  await waitUntilSettled(environment.core, "default", PROTECTOR, PODS);
});

test("what is written into the protector itself is put back: the Deployment decides", async () => {
  const path = protectorPath("default", PROTECTOR);
  await environment.core.admin.call("PATCH", path, { spec: { enforcement: "Off" } });
  await eventually(environment.core, path, (one) => field(one, "spec", "enforcement") === "Warn");
});

test("Off does not protect, as a suspension without an end, and says so", async () => {
  await enforcement("Off");
  await environment.core.waitFor("the webhook to know", async () =>
    (await deletePod("--dry-run=server")).includes("is suspended (spec.enforcement is Off)"),
  );
  const { status } = await readProtector(environment.core, "default", PROTECTOR);
  expect(status?.conditions).toContainEqual(expect.objectContaining({ type: "Suspended", status: "True" }));
});

test("a namespace says it for all in it that say nothing; a workload that does has precedence", async () => {
  const path = protectorPath("default", PROTECTOR);
  const until = (enforcement: string | undefined): Promise<unknown> =>
    eventually(environment.core, path, (one) => field(one, "spec", "enforcement") === enforcement);
  await kubectl("label", "namespace/default", `${ANNOTATION}=Warn`);
  await kubectl("annotate", "--overwrite", `deployment/${NAME}`, `${ANNOTATION}=Enforce`);
  await until(undefined);
  await kubectl("annotate", `deployment/${NAME}`, `${ANNOTATION}-`);
  await until("Warn");
  await kubectl("label", "--overwrite", "namespace/default", `${ANNOTATION}=Off`);
  await until("Off");
  await kubectl("label", "namespace/default", `${ANNOTATION}-`);
  await until(undefined);
});

test("without the annotation the same deletion is denied", async () => {
  await enforcement(undefined);
  await environment.core.waitFor("the webhook to know", async () =>
    (await deletePod("--dry-run=server")).includes("may not be deleted now"),
  );
  expect(await deletePod()).toMatch(/^1 .*its capacity is at the minimum/s);
  const labels = { protector: PROTECTOR, enforced: "true" };
  expect(await environment.webhooks[0]?.component.metric("podseidon_webhook_denials_total", labels)).toBe(1);
});
