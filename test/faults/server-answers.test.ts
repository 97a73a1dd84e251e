import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ClusterClient, field } from "../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../scripts/control-plane/cluster.ts";
import { CredentialFile } from "../../shared/kube/credentials/credential-file.ts";
import { REFUSAL, refuseAccounts } from "./flow-control.ts";
import { StreamRig, tokenCredentials } from "./streams/stream-harness.ts";

/** What a healthy network and a healthy server can still answer: 401, 403, 404, 429. No process is restarted. */

const MAPS = "/api/v1/namespaces/default/configmaps";

/**
 * The right of the service account to list and watch one resource. The built-in roles are empty without a
 * controller-manager.
 */
function permission(resource: string): readonly unknown[] {
  const apiVersion = "rbac.authorization.k8s.io/v1";
  const rules = [{ apiGroups: [""], resources: [resource], verbs: ["list", "watch"] }];
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: resource };
  const subjects = [{ kind: "ServiceAccount", name: "watcher", namespace: "default" }];
  return [
    { apiVersion, kind: "ClusterRole", metadata: { name: resource }, rules },
    { apiVersion, kind: "ClusterRoleBinding", metadata: { name: resource }, roleRef, subjects },
  ];
}

let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start({ name: "answers", controllerManager: false, scheduler: false, kwok: false });
  await cluster.apply([
    { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "watcher", namespace: "default" } },
    ...permission("configmaps"),
  ]);
});

afterAll(async () => {
  await cluster?.stop();
});

let counter = 0;
async function createMap(): Promise<string> {
  const name = `map-${++counter}`;
  await cluster.admin.call("POST", MAPS, { metadata: { name } });
  return name;
}

/** A token that is worthless once its Secret is deleted (and the server's cache of ten seconds has forgotten it). */
async function boundToken(): Promise<{ token: string; revoke: () => Promise<void> }> {
  const name = `bound-${++counter}`;
  const secrets = "/api/v1/namespaces/default/secrets";
  const uid = field(await cluster.admin.call("POST", secrets, { metadata: { name } }), "metadata", "uid");
  const request = { spec: { boundObjectRef: { apiVersion: "v1", kind: "Secret", name, uid } } };
  const answer = await cluster.admin.call("POST", "/api/v1/namespaces/default/serviceaccounts/watcher/token", request);
  const token = String(field(answer, "status", "token"));
  const client = new ClusterClient({
    url: cluster.url,
    certificateAuthorityPem: cluster.identity.certificateAuthorityPem,
    token,
  });
  const revoke = async (): Promise<void> => {
    await cluster.admin.call("DELETE", `${secrets}/${name}`);
    await cluster.waitFor("the token to be refused", async () => (await client.request("GET", MAPS)).status === 401);
    client.close();
  };
  return { token, revoke };
}

const ca = (): string => cluster.identity.certificateAuthorityPem;

test("a rotated token: the file is read again, before it matters and at a 401", async () => {
  const file = join(cluster.directory, "token");
  const first = await boundToken();
  writeFileSync(file, first.token);
  await using rig = new StreamRig(
    MAPS,
    cluster.url,
    tokenCredentials(new CredentialFile(file, "the token file"), ca()),
  );
  await rig.until("the list", () => rig.source.synced);

  // Replaced in time: nothing fails.
  const second = await boundToken();
  writeFileSync(file, second.token);
  await first.revoke();
  const startMs = performance.now();
  const early = await createMap();
  await rig.until("a write after the rotation", () => rig.source.get(early) !== undefined);
  expect(rig.failures(0)).toEqual([]);

  // Replaced too late: refused until the new one is there, and the connection is not the process's end.
  await second.revoke();
  await rig.until("a 401", () => rig.failures(startMs).includes("watch unauthorized"));
  const third = await boundToken();
  writeFileSync(file, third.token);
  const late = await createMap();
  await rig.until("a write after the second rotation", () => rig.source.get(late) !== undefined);
  expect(rig.listReasons(0)).toEqual(["first"]);
});

test("priority and fairness: 429 with Retry-After is obeyed, and the stream goes on when it ends", async () => {
  const token = await cluster.serviceAccountToken("default", "watcher");
  await using rig = new StreamRig(MAPS, cluster.url, tokenCredentials(token, ca()));
  await rig.until("the list", () => rig.source.synced);
  const startMs = performance.now();
  await cluster.apply(refuseAccounts([{ name: "watcher", namespace: "default" }]));
  await rig.until("a 429", () => rig.failures(startMs).includes("watch throttled"));
  await delay(3000);
  const refused = rig.events.filter((event) => event.kind === "failed" && event.tag === "throttled");
  // The server asks for one second.
  expect(refused.map((event) => (event.kind === "failed" ? event.retryMs >= 1000 : false))).not.toContain(false);
  expect(refused.length).toBeLessThanOrEqual(4);
  await cluster.admin.call("DELETE", REFUSAL);
  const name = await createMap();
  await rig.until("a write after the end of it", () => rig.source.get(name) !== undefined);
  expect(rig.listReasons(0)).toEqual(["first"]);
});

test("a CRD that disappears takes its objects along; when it is back, so is the stream", async () => {
  const path = "/apis/example.com/v1/things";
  const crd = {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: "things.example.com" },
    spec: {
      group: "example.com",
      scope: "Namespaced",
      names: { plural: "things", singular: "thing", kind: "Thing", listKind: "ThingList" },
      versions: [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema: { type: "object" } } }],
    },
  };
  const served = async (): Promise<boolean> => (await cluster.admin.request("GET", path)).status === 200;
  const create = (name: string): Promise<unknown> =>
    cluster.admin.call("POST", "/apis/example.com/v1/namespaces/default/things", {
      apiVersion: "example.com/v1",
      kind: "Thing",
      metadata: { name },
    });
  await cluster.admin.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd);
  await cluster.waitFor("the API to be served", served);
  await using rig = new StreamRig(path, cluster.url, tokenCredentials(cluster.identity.adminToken, ca()));
  await rig.until("the list", () => rig.source.synced);
  await create("one");
  await rig.until("the object", () => rig.source.size === 1);
  const startMs = performance.now();
  await cluster.admin.call("DELETE", `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${crd.metadata.name}`);
  await rig.until("its deletion", () => rig.source.size === 0);
  await rig.until("404", () => rig.failures(startMs).includes("watch not-served"));
  expect(rig.failures(startMs).length).toBeLessThanOrEqual(10);
  await cluster.waitFor("the definition to be gone", async () => {
    return (
      (
        await cluster.admin.request(
          "GET",
          `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${crd.metadata.name}`,
        )
      ).status === 404
    );
  });
  await cluster.admin.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd);
  await cluster.waitFor("the API to be served again", served);
  await create("two");
  await rig.until("the new object", () => rig.source.get("two") !== undefined);
  const { held, truth } = await rig.caughtUp(cluster.admin);
  expect(held).toEqual(truth);
});

test("a permission that is missing is asked for again and again, slowly, and used once it is there", async () => {
  const token = await cluster.serviceAccountToken("default", "watcher");
  const path = "/api/v1/nodes";
  await using rig = new StreamRig(path, cluster.url, tokenCredentials(token, ca()));
  await rig.until("403", () => rig.failures(0).includes("list forbidden"));
  await cluster.apply(permission("nodes"));
  await rig.until("the list", () => rig.source.synced);
});

test("a host name that can't be resolved: at most ten tries in ten seconds", async () => {
  await using rig = new StreamRig(MAPS, "https://no-such-host.invalid:6443", tokenCredentials("none", ca()));
  await rig.until("the failure", () => rig.failures(0).includes("list dns"));
  await delay(10_000);
  expect(rig.failures(0).length).toBeLessThanOrEqual(10);
});
