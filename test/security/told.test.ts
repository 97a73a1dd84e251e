/** What a caller learns from answers, and what he makes the webhook write about pods. */
import { expect, test } from "vitest";
import { AttackedWebhook, webPod } from "./attacked-webhook.ts";

const PRE_ACTIVITY = { "pre-activity.xpdb.form3.tech/flush": "" };

function eviction(name: string, preconditions: Readonly<Record<string, string>>): Readonly<Record<string, unknown>> {
  const object = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name }, deleteOptions: { preconditions } };
  return { name, operation: "CREATE", subResource: "eviction", object };
}

test("a precondition that does not hold is refused without the pod's UID and version", async () => {
  const pods = [webPod("web-0", { uid: "a-secret-uid", resourceVersion: "4711" })];
  await using webhook = await AttackedWebhook.start({ pods });
  for (const wanted of [{ uid: "guessed" }, { resourceVersion: "1" }]) {
    const text = await webhook.ask(eviction("web-0", wanted));
    expect(text).toContain('"code":409');
    expect(text).toContain(Object.values(wanted)[0]);
    expect(text).not.toMatch(/a-secret-uid|4711/);
  }
});

test("a pod is marked as pending only where it waits by itself", async () => {
  const pods = [
    webPod("web-0"),
    webPod("web-1", { annotations: PRE_ACTIVITY }),
    webPod("web-2", { annotations: PRE_ACTIVITY }),
  ];
  await using webhook = await AttackedWebhook.start({ pods, flags: ["--mark-pending-disruptions"] });
  const forged = { annotations: PRE_ACTIVITY };
  await webhook.ask({ name: "web-0", oldObject: webPod("web-0", forged) });
  await webhook.ask({ name: "web-1", oldObject: webPod("web-1", { ...forged, uid: "of-another-pod" }) });
  await webhook.ask({ name: "web-2", oldObject: webPod("web-2", forged) });
  await expect.poll(() => webhook.bodies("PATCH", /\/pods\/web-2$/).length).toBe(1);
  // Each mark follows a read of its own; the last one's patch was sent after the reads of the others.
  expect(webhook.bodies("PATCH", /\/pods\/web-[01]$/)).toEqual([]);
});
