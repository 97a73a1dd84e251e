/**
 * The webhook's modes on a real kube-apiserver: dry run, eviction preconditions, and a CRD that drops this project's
 * fields.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ApiAnswer, field } from "../../scripts/control-plane/api-client.ts";
import { registrations } from "../../scripts/environment/webhook-configuration.ts";
import { startWebhook, type WebhookReplica } from "../../scripts/environment/webhook-process.ts";
import { AdmissionHarness, CELL, NAMESPACE } from "../support/cluster/admission-harness.ts";
import { messageOf, verdictOf } from "../support/cluster/ask.ts";
import { reservationCount } from "../support/cluster/protectors.ts";

let harness: AdmissionHarness;

beforeAll(async () => {
  harness = await AdmissionHarness.start({ replicas: 0 });
});

afterAll(() => harness?.[Symbol.asyncDispose]());

/** Starts a replica with `args` and applies the webhook configurations of `parts` for it. */
async function serve(
  name: string,
  args: readonly string[],
  parts: "both" | "validating" = "both",
): Promise<WebhookReplica> {
  const replica = await startWebhook({
    name,
    directory: harness.cluster.directory,
    authority: harness.cluster,
    cores: { core: harness.cluster.kubeconfig },
    cells: { [CELL]: harness.cluster.kubeconfig },
    args,
  });
  harness.replica = replica;
  await register(replica, parts);
  return replica;
}

async function register(replica: WebhookReplica, parts: "both" | "validating"): Promise<void> {
  const all = registrations({ cell: CELL, url: replica.url, caPem: replica.caPem });
  await harness.cluster.apply(parts === "both" ? all : all.slice(0, 1));
  if (parts === "both") return;
  const path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/podseidon";
  await harness.cluster.admin.request("DELETE", path);
}

async function given(min: number, available: number, setting = {}): Promise<string> {
  const name = harness.unique("modes");
  await harness.pod(name, name, setting);
  await harness.protector(name, { minAvailable: min, selector: { matchLabels: { app: name } } }, { available });
  return name;
}

/** Retries `act` until `holds`: the apiserver's cache sees a webhook configuration a moment later. */
async function until(act: () => Promise<ApiAnswer>, holds: (answer: ApiAnswer) => boolean): Promise<ApiAnswer> {
  let last: ApiAnswer | undefined;
  await harness.cluster.waitFor("the registration to be in force", async () => {
    last = await act();
    return holds(last);
  });
  if (last === undefined) throw new Error("nothing was asked");
  return last;
}

describe("dry-run mode", () => {
  let replica: WebhookReplica;

  beforeAll(async () => {
    replica = await serve("webhook-dry-run", ["--dry-run"]);
    // A replica that stood still on a busy machine reserves nothing for twelve seconds.
    await harness.cluster.waitFor("the replica to reserve", async () => {
      const name = await given(1, 2);
      return verdictOf(await harness.delete(name)) === "allow" && (await harness.buckets(name)).length === 1;
    });
  });
  afterAll(() => replica?.component.stop());

  test("nothing is denied: a warning, an audit annotation, and the deletion is recorded", async () => {
    const name = await given(2, 2);
    const asked = (): Promise<ApiAnswer> => harness.delete(name, undefined, "?dryRun=All");
    const answer = await until(asked, ({ headers }) => headers.warning !== undefined);
    expect(verdictOf(answer)).toBe("allow");
    expect(String(answer.headers.warning)).toContain(`dry run: pod ${NAMESPACE}/${name} may not be deleted now`);
    expect(await harness.buckets(name)).toHaveLength(0);
    expect(verdictOf(await harness.delete(name))).toBe("allow");
    expect(await harness.buckets(name)).toMatchObject([{ operation: "DELETE" }]);
  });

  test("what is allowed anyway is as usual, without a warning", async () => {
    const name = await given(1, 2);
    const answer = await harness.delete(name);
    expect(verdictOf(answer)).toBe("allow");
    expect(answer.headers.warning).toBeUndefined();
    expect(await harness.buckets(name)).toHaveLength(1);
  });
});

describe("eviction preconditions", () => {
  let replica: WebhookReplica;

  beforeAll(async () => {
    replica = await serve("webhook-bound", ["--require-bound-evictions"]);
  });
  afterAll(() => replica?.component.stop());

  test("with the mutating webhook an eviction gets the UID precondition of its pod", async () => {
    const name = await given(1, 2, { scheduled: true });
    const dry = { deleteOptions: { dryRun: ["All"] } };
    await until(
      () => harness.evict(name, dry),
      (answer) => verdictOf(answer) === "allow",
    );
    expect(verdictOf(await harness.evict(name))).toBe("allow");
    const pod = await harness.cluster.admin.get(`/api/v1/namespaces/${NAMESPACE}/pods/${name}`);
    expect(await harness.buckets(name)).toMatchObject([{ podUID: field(pod, "metadata", "uid"), operation: "EVICT" }]);
  });

  test.each<[string, Readonly<Record<string, unknown>>, readonly unknown[] | undefined]>([
    ["no delete options", {}, [{ op: "add", path: "/deleteOptions", value: { preconditions: { uid: "UID" } } }]],
    [
      "no preconditions",
      { deleteOptions: { gracePeriodSeconds: 5 } },
      [{ op: "add", path: "/deleteOptions/preconditions", value: { uid: "UID" } }],
    ],
    [
      "another precondition",
      { deleteOptions: { preconditions: { resourceVersion: "1" } } },
      [{ op: "add", path: "/deleteOptions/preconditions/uid", value: "UID" }],
    ],
    ["bound already", { deleteOptions: { preconditions: { uid: "another" } } }, undefined],
  ])("the patch of an eviction with %s", async (_name, change, patch) => {
    const name = harness.unique("patched");
    const uid = field(await harness.pod(name, name), "metadata", "uid");
    const object = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: NAMESPACE }, ...change };
    const review = { operation: "CREATE", subResource: "eviction", name, object };
    const answer = await harness.review(review, `/webhook/${CELL}/mutate`, replica);
    expect(field(answer.body, "response", "allowed")).toBe(true);
    const sent = field(answer.body, "response", "patch");
    const decoded = typeof sent === "string" ? Buffer.from(sent, "base64").toString() : "undefined";
    expect(decoded).toBe(patch === undefined ? "undefined" : JSON.stringify(patch).replace("UID", String(uid)));
  });

  test("without the mutating webhook an eviction is denied, with what to look at", async () => {
    await register(replica, "validating");
    const name = await given(1, 2);
    const dry = { deleteOptions: { dryRun: ["All"] } };
    const answer = await until(
      () => harness.evict(name, dry),
      (one) => verdictOf(one) !== "allow",
    );
    expect(verdictOf(answer)).toBe("denial");
    expect(messageOf(answer)).toMatch(/not bound to the pod's UID.*mutating webhook/);
    expect(await harness.buckets(name)).toHaveLength(0);
  });
});

describe("upstream's CRD, which drops this project's fields", () => {
  test("admissions continue, one reservation for each pod, and the webhook says that it is not exact", async () => {
    const replica = await serve("webhook-upstream-crd", []);
    // The CRD takes the protectors of the tests above along, so their number means nothing any more.
    harness.replica = undefined;
    const crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podprotectors.podseidon.kubewharf.io";
    await harness.cluster.admin.call("DELETE", crd);
    await harness.cluster.waitFor(
      "the CRD to be gone",
      async () => (await harness.cluster.admin.request("GET", crd)).status === 404,
    );
    await harness.cluster.apply(readFileSync(join(import.meta.dirname, "upstream/podprotectors.crd.yaml"), "utf8"));
    const name = harness.unique("dropped");
    await harness.pod(name, name);
    const spec = { minAvailable: 1, selector: { matchLabels: { app: name } } };
    const counts = { available: 2, aggregation: { lastEventTime: new Date().toISOString().replace("Z", "000Z") } };
    await harness.cluster.waitFor("the CRD to be served", async () =>
      harness.protector(name, spec, counts).then(
        () => true,
        () => false,
      ),
    );
    await until(
      () => harness.delete(name, undefined, "?dryRun=All"),
      (answer) => verdictOf(answer) === "allow",
    );
    await harness.cluster.waitFor("the webhook to have read the protectors again", async () => {
      return (await replica.component.metric("podseidon_webhook_protectors")) === 1;
    });
    expect(verdictOf(await harness.delete(name))).toBe("allow");
    expect(reservationCount(await harness.read(name))).toBe(1);
    expect(await replica.component.metric("podseidon_webhook_exact")).toBe(0);
    await replica.component.stop();
  });
});
