/** What a caller gains by an annotation force-delete that the pod does not have. */
import { expect, test } from "vitest";
import { AttackedWebhook, webPod } from "./attacked-webhook.ts";

const FORCED = { annotations: { "podseidon.kubewharf.io/force-delete": "true" } };

test("a forged annotation reserves nothing beyond the quota", async () => {
  await using webhook = await AttackedWebhook.start({ pods: [webPod("web-0"), webPod("web-1", FORCED)] });
  const forgeries = [
    webPod("web-0", FORCED),
    webPod("web-1", { ...FORCED, uid: "of-another-pod" }),
    webPod("is-not-there", FORCED),
  ];
  for (const oldObject of forgeries) {
    const { allowed, warnings } = await webhook.decide({ name: "web", oldObject });
    expect(allowed).toBe(false);
    expect(warnings?.join()).toContain("the annotation podseidon.kubewharf.io/force-delete is not followed");
  }
  expect(webhook.buckets).toEqual([]);
});

test("an annotation that the pod has is followed", async () => {
  await using webhook = await AttackedWebhook.start({ pods: [webPod("web-1", FORCED)] });
  expect((await webhook.decide({ name: "web-1", oldObject: webPod("web-1", FORCED) })).allowed).toBe(true);
  expect(webhook.buckets).toHaveLength(1);
});
