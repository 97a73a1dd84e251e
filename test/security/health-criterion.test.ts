/** What a caller gains by asking for another health criterion, on a pod or on the Eviction alone. */
import { expect, test } from "vitest";
import { AttackedWebhook, webPod } from "./attacked-webhook.ts";

const RUNNING = { "podseidon.kubewharf.io/health-criterion": "Running" };
/** At its minimum; the other pods crash-loop. */
const COUNTS = { availableReplicas: 2, runningReplicas: 9, scheduledReplicas: 9 };
const DELETION = { name: "web-0", oldObject: webPod("web-0", { annotations: RUNNING }) };
const EVICTION = {
  ...{ name: "web-1", operation: "CREATE", subResource: "eviction" },
  object: {
    ...{ apiVersion: "policy/v1", kind: "Eviction" },
    metadata: { name: "web-1", annotations: { "podseidon.kubewharf.io/health-criterion": "Scheduled" } },
  },
};

test.each([[[]], [["--bypass-needs-permission"]]])(
  "of a protector at its minimum takes no pod, and is told as not followed (%s)",
  async (flags) => {
    await using webhook = await AttackedWebhook.start({ counts: COUNTS, pods: [webPod("web-1")], flags });
    const answers = [await webhook.decide(DELETION), await webhook.decide(EVICTION)];
    for (const { allowed, status, warnings, auditAnnotations } of answers) {
      expect({ allowed, code: status?.code }).toEqual({ allowed: false, code: 429 });
      expect(warnings?.join()).toContain("the annotation podseidon.kubewharf.io/health-criterion is not followed");
      expect(auditAnnotations).toMatchObject({ "health-criterion-ignored": expect.any(String) });
    }
    expect(webhook.buckets).toEqual([]);
  },
);

test("that the protector allows is followed: warned of, audited, counted, and an Event", async () => {
  const spec = { allowedHealthCriteria: ["Running"] };
  await using webhook = await AttackedWebhook.start({ counts: COUNTS, spec, pods: [webPod("web-1")] });
  expect((await webhook.decide(EVICTION)).allowed).toBe(false);
  await followed(webhook);
});

test("of a user who may bypass protectors is followed, and told as well", async () => {
  const flags = ["--bypass-needs-permission"];
  await using webhook = await AttackedWebhook.start({ counts: COUNTS, flags, bypassers: ["eve"] });
  expect((await webhook.decide({ ...DELETION, userInfo: { username: "mallory" } })).allowed).toBe(false);
  await followed(webhook);
});

async function followed(webhook: AttackedWebhook): Promise<void> {
  const { allowed, warnings, auditAnnotations } = await webhook.decide(DELETION);
  expect(allowed).toBe(true);
  expect(warnings?.join()).toContain("health-criterion annotation");
  expect(auditAnnotations).toMatchObject({ "health-criterion": "Running" });
  expect(await webhook.metric("podseidon_webhook_reviews_total", { outcome: "lowered" })).toBe(1);
  await expect
    .poll(() => webhook.bodies("POST", /\/events$/).filter((body) => body.includes("ProtectionLowered")).length)
    .toBeGreaterThan(0);
  expect(webhook.buckets).toHaveLength(1);
}
