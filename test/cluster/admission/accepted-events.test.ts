/** Events about admitted disruptions (`--accepted-events`), on a real apiserver. The test writes the counts. */

import { afterAll, beforeAll, expect, it } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { AdmissionHarness, NAMESPACE, protectorsIn } from "../../support/cluster/admission-harness.ts";
import { verdictOf } from "../../support/cluster/ask.ts";

let harness: AdmissionHarness;

beforeAll(async () => {
  harness = await AdmissionHarness.start({ webhookArgs: ["--accepted-events"], cell: BARE });
});

afterAll(() => harness?.[Symbol.asyncDispose]());

it("an admitted disruption is an Event Accepted at the budget, with x-pdb's words", async () => {
  const name = harness.unique("accepted");
  const pods = [`${name}-0`, `${name}-1`];
  for (const pod of pods) await harness.pod(pod, name);
  await harness.protector(name, { minAvailable: 1, selector: { matchLabels: { app: name } } }, { available: 1000 });
  const owner = {
    apiVersion: "x-pdb.form3.tech/v1alpha1",
    kind: "XPodDisruptionBudget",
    name,
    uid: "b1",
    controller: true,
  };
  await harness.cluster.admin.call("PATCH", `${protectorsIn(NAMESPACE)}/${name}`, {
    metadata: { ownerReferences: [owner] },
  });
  for (const pod of pods) expect(verdictOf(await harness.delete(pod))).toBe("allow");
  const selector = "reason=Accepted";
  const path = `/api/v1/namespaces/${NAMESPACE}/events?fieldSelector=${encodeURIComponent(selector)}`;
  let all: readonly unknown[] = [];
  const ofBudget = (): readonly unknown[] => all.filter((one) => field(one, "involvedObject", "uid") === owner.uid);
  const counted = async (): Promise<boolean> => {
    all = items(await harness.cluster.admin.get(path));
    // kube-apiserver asks again about a deletion whose pod has changed meanwhile.
    return ofBudget().reduce<number>((sum, one) => sum + Number(field(one, "count")), 0) >= 2;
  };
  await harness.cluster.waitFor("the Event to count both", counted).catch((cause: unknown) => {
    throw new Error(`the Events are ${JSON.stringify(all)}`, { cause });
  });
  expect(ofBudget()[0]).toMatchObject({
    type: "Normal",
    involvedObject: { uid: "b1", namespace: NAMESPACE },
    message: expect.stringMatching(new RegExp(`^attempted eviction of ${name}-\\d \\(asked by `)),
  });
});
