/** Webhook configurations that are declared anew by other tools than before (docs/gitops.md). */
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { registrations } from "../../../scripts/environment/webhook-configuration.ts";
import { REFRESHED_GENERATION_ANNOTATION } from "../../../shared/schema/annotations.ts";

const PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podseidon";
const RECORD = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-registration";
const SERVICE = { namespace: "podseidon-system", name: "podseidon-webhook", path: "/webhook/east" };

let environment: TestEnvironment;

beforeAll(async () => {
  environment = await TestEnvironment.start({ cells: ["east"], single: true, replicas: 1, cell: BARE });
  await untilKept({ timeoutSeconds: 10 });
});

afterAll(() => environment?.stop());

/** The webhooks of the environment, with these fields. */
function webhooks(change: object): readonly object[] {
  const url = `https://127.0.0.1:${environment.balancer.port}`;
  const caPem = environment.core.identity.certificateAuthorityPem;
  return items(registrations({ cell: "east", url, caPem })[0], "webhooks").map((one) => ({
    ...Object(one),
    ...change,
  }));
}

async function declare(change: object, ...args: readonly string[]): Promise<{ code: number; stderr: string }> {
  const kind = { apiVersion: "admissionregistration.k8s.io/v1", kind: "ValidatingWebhookConfiguration" };
  const input = JSON.stringify({ ...kind, metadata: { name: "podseidon" }, webhooks: webhooks(change) });
  return environment.core.kubectl([...args, "--filename=-"], { input });
}

async function apply(change: object, ...flags: readonly string[]): Promise<void> {
  expect(await declare(change, "apply", ...flags)).toMatchObject({ code: 0 });
}

async function patch(change: object, manager: string): Promise<void> {
  const live = items(await environment.core.admin.get(PATH), "webhooks");
  const body = { webhooks: live.map((one) => ({ ...Object(one), ...change })) };
  await environment.core.admin.call("PATCH", `${PATH}?fieldManager=${manager}`, body);
}

/** Until both are so: the webhook configuration, and what is on record; and the aggregator has no more to do. */
async function untilKept(expected: object): Promise<void> {
  await environment.core.waitFor(`${JSON.stringify(expected)} to be kept`, async () => {
    const text = field(
      (await environment.core.admin.request("GET", RECORD)).body,
      "data",
      "ValidatingWebhookConfiguration",
    );
    if (typeof text !== "string") return false;
    const forms = [await environment.core.admin.get(PATH), JSON.parse(text).declared];
    const isSo = (form: unknown): boolean =>
      items(form, "webhooks").every((one) =>
        Object.entries(expected).every(([key, value]) => JSON.stringify(field(one, key)) === JSON.stringify(value)),
      );
    const kept = await environment.aggregators.get("east")?.metric("podseidon_registration_kept");
    return forms.every(isSo) && kept === 1;
  });
}

/** With another manager than kubectl's own, for which kube-apiserver writes the annotation of `kubectl apply`, too. */
const SERVER_SIDE = ["--server-side", "--force-conflicts", "--field-manager=argocd-controller"] as const;
const serverSide = (change: object): Promise<void> => apply(change, ...SERVER_SIDE);

test.each<[string, (change: object) => Promise<void>]>([
  // First, because kube-apiserver refuses it where another client owns the address, too.
  ["server-side apply", serverSide],
  ["helm", (change) => patch(change, "helm")],
])("by %s from a URL to a Service and back: an edit of it is still put back", async (_, write) => {
  for (const [timeoutSeconds, change] of [
    [7, {}],
    [8, { clientConfig: { service: SERVICE } }],
    [9, {}],
  ] as const) {
    const [{ clientConfig }] = webhooks(change) as [{ clientConfig: object }];
    await write({ failurePolicy: "Fail", clientConfig, timeoutSeconds });
    await untilKept({ failurePolicy: "Fail", timeoutSeconds });
    await patch({ failurePolicy: "Ignore" }, "kubectl-edit");
    await untilKept({ failurePolicy: "Fail", timeoutSeconds });
  }
});

test("by kubectl as before, after another client declared it", async () => {
  for (const _ of ["the first time", "with the same annotation"]) {
    await apply({ failurePolicy: "Fail", timeoutSeconds: 5 });
    await untilKept({ failurePolicy: "Fail", timeoutSeconds: 5 });
    await patch({ failurePolicy: "Ignore", timeoutSeconds: 6 }, "helm");
    await untilKept({ failurePolicy: "Ignore", timeoutSeconds: 6 });
  }
});

test("as Helm 4 applies: refused after an edit was put back, until --force-conflicts", async () => {
  const helm = ["apply", "--server-side", "--field-manager=helm"] as const;
  await apply({ failurePolicy: "Fail", timeoutSeconds: 3 }, ...helm.slice(1), "--force-conflicts");
  await untilKept({ failurePolicy: "Fail", timeoutSeconds: 3 });
  await patch({ failurePolicy: "Ignore" }, "kubectl-edit");
  await untilKept({ failurePolicy: "Fail", timeoutSeconds: 3 });
  const next = { failurePolicy: "Ignore", timeoutSeconds: 3 };
  expect((await declare(next, ...helm)).stderr).toContain('with "podseidon-aggregator"');
  await untilKept({ failurePolicy: "Fail", timeoutSeconds: 3 });
  expect(await declare(next, ...helm, "--force-conflicts")).toMatchObject({ code: 0 });
  await untilKept(next);
});

test("where another owner keeps server-side apply from a move, kubectl replace makes it", async () => {
  const moved = { failurePolicy: "Fail", timeoutSeconds: 4 };
  for (const client of [{ clientConfig: { service: SERVICE } }, {}]) {
    await environment.core.admin.call("DELETE", PATH);
    await environment.core.waitFor("it to be created again", async () => {
      return (await environment.core.admin.request("GET", PATH)).status === 200;
    });
    const refused = await declare({ ...moved, ...client }, "apply", ...SERVER_SIDE);
    expect(refused.stderr).toContain("exactly one of url or service is required");
    expect(await declare({ ...moved, ...client }, "replace", "--save-config")).toMatchObject({ code: 0 });
    await untilKept(moved);
    await serverSide({ ...moved, ...client });
    await patch({ failurePolicy: "Ignore" }, "kubectl-edit");
    await untilKept(moved);
  }
});

test("each configuration is written once more after its webhooks have changed, the counted gate's, too", async () => {
  await environment.registerGate("east");
  const mutating = PATH.replace("validating", "mutating");
  for (const at of [PATH, mutating, `${mutating}-gate`]) {
    await environment.core.waitFor(`a second write of ${at}`, async () => {
      const { generation, annotations } = Object(field(await environment.core.admin.get(at), "metadata"));
      return field(annotations, REFRESHED_GENERATION_ANNOTATION) === String(generation);
    });
  }
});
