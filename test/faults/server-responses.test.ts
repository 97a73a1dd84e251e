import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiserverClient, field } from "../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { CredentialFile } from "../../shared/kube/credentials/file-credentials.ts";
import { loadClusterAccess } from "../../shared/kube/credentials/kubeconfig.ts";
import { holdSeat, REFUSAL, refuseAccounts } from "./flow-control.ts";
import { StreamHarness, tokenCredentials } from "./streams/stream-harness.ts";

/** Responses of a healthy server over a healthy network: 401, 403, 404, 429. No process is restarted. */

const MAPS = "/api/v1/namespaces/default/configmaps";

/**
 * Permission of the service account to list and watch one resource. Without a controller-manager the built-in roles are
 * empty.
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
  cluster = await Cluster.start({ name: "answers", ...BARE });
  await cluster.apply([
    { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "watcher", namespace: "default" } },
    ...permission("configmaps"),
  ]);
});

afterAll(() => cluster?.stop());

const base64 = (text: string): string => Buffer.from(text).toString("base64");

let counter = 0;
async function createMap(): Promise<string> {
  const name = `map-${++counter}`;
  await cluster.admin.call("POST", MAPS, { metadata: { name } });
  return name;
}

/** A token that becomes invalid when its Secret is deleted and the server's cache of ten seconds has expired. */
async function boundToken(): Promise<{ token: string; revoke: () => Promise<void> }> {
  const name = `bound-${++counter}`;
  const secrets = "/api/v1/namespaces/default/secrets";
  const uid = field(await cluster.admin.call("POST", secrets, { metadata: { name } }), "metadata", "uid");
  const request = { spec: { boundObjectRef: { apiVersion: "v1", kind: "Secret", name, uid } } };
  const answer = await cluster.admin.call("POST", "/api/v1/namespaces/default/serviceaccounts/watcher/token", request);
  const token = String(field(answer, "status", "token"));
  const client = new ApiserverClient({
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

test("a rotated token is read from its file again, before it expires and after a 401", async () => {
  const file = join(cluster.directory, "token");
  const first = await boundToken();
  writeFileSync(file, first.token);
  await using harness = new StreamHarness(
    MAPS,
    cluster.url,
    tokenCredentials(new CredentialFile(file, "the token file"), ca()),
  );
  await harness.until("the list", () => harness.source.synced);

  // Replaced in time: no request fails.
  const second = await boundToken();
  writeFileSync(file, second.token);
  await first.revoke();
  const startMs = performance.now();
  const early = await createMap();
  await harness.until("a write after the rotation", () => harness.source.get(early) !== undefined);
  expect(harness.failures(0)).toEqual([]);

  // Replaced too late: requests fail until the new token is there, and the process continues.
  await second.revoke();
  await harness.until("a 401", () => harness.failures(startMs).includes("watch unauthorized"));
  const third = await boundToken();
  writeFileSync(file, third.token);
  const late = await createMap();
  await harness.until("a write after the second rotation", () => harness.source.get(late) !== undefined);
  harness.expectLists(0, "first");
});

test("a revoked token of an exec plugin: the plugin runs again after the 401, and no request fails", async () => {
  const answer = join(cluster.directory, "exec-credential.json");
  const give = (token: string): void =>
    writeFileSync(answer, JSON.stringify({ kind: "ExecCredential", status: { token } }));
  const exec = { apiVersion: "client.authentication.k8s.io/v1", command: "cat", args: [answer] };
  const config = {
    "current-context": "here",
    contexts: [{ name: "here", context: { cluster: "c", user: "u" } }],
    clusters: [{ name: "c", cluster: { server: cluster.url, "certificate-authority-data": base64(ca()) } }],
    users: [{ name: "u", user: { exec } }],
  };
  const path = join(cluster.directory, "exec.kubeconfig");
  writeFileSync(path, JSON.stringify(config));
  const first = await boundToken();
  give(first.token);
  const { credentials } = await loadClusterAccess(path);
  await using harness = new StreamHarness(MAPS, cluster.url, credentials);
  await harness.until("the list", () => harness.source.synced);
  give((await boundToken()).token);
  await first.revoke();
  const name = await createMap();
  await harness.until("a write after the renewal", () => harness.source.get(name) !== undefined);
  expect(harness.failures(0)).toEqual([]);
});

test("priority and fairness: a 429 with Retry-After is obeyed, and the stream continues afterwards", async () => {
  const token = await cluster.serviceAccountToken("default", "watcher");
  await using harness = new StreamHarness(MAPS, cluster.url, tokenCredentials(token, ca()));
  await harness.until("the list", () => harness.source.synced);
  const startMs = performance.now();
  await cluster.apply(refuseAccounts([{ name: "watcher", namespace: "default" }]));
  await harness.until("a 429", () => harness.failures(startMs).includes("watch throttled"));
  await delay(3000);
  const refused = harness.events.filter((event) => event.kind === "failed" && event.tag === "throttled");
  // The server asks for a pause of one second.
  expect(refused.map((event) => (event.kind === "failed" ? event.retryMs >= 1000 : false))).not.toContain(false);
  // Not until now: on a busy machine more than these seconds have passed.
  const firstMs = refused[0]?.atMs ?? 0;
  expect(refused.filter(({ atMs }) => atMs <= firstMs + 3000).length).toBeLessThanOrEqual(4);
  await cluster.admin.call("DELETE", REFUSAL);
  const name = await createMap();
  await harness.until("a write after the end of it", () => harness.source.get(name) !== undefined);
  harness.expectLists(0, "first");
});

test("a 429 of a server that shuts down is asked again at once, and everything is listed when it is back", async () => {
  const { url, process } = await cluster.addApiserver({ "shutdown-send-retry-after": "true" });
  const token = await cluster.serviceAccountToken("default", "watcher");
  await using harness = new StreamHarness(MAPS, url, tokenCredentials(token, ca()));
  await harness.until("the list", () => harness.source.synced);
  // A server that shuts down waits for the requests that it has begun.
  const held = await holdSeat(cluster, url);
  await held.begun;
  const ended = process.kill("SIGTERM");
  const failures = () => harness.events.flatMap((event) => (event.kind === "failed" ? [event] : []));
  await harness.until("two answers", () => failures().length >= 2);
  held[Symbol.dispose]();
  await ended;
  const [first] = failures();
  expect([first?.tag, first?.error.message]).toEqual(["server-error", expect.stringContaining("is shutting down")]);
  // Less than the five seconds that it asks for.
  expect(first?.retryMs).toBeLessThan(1000);
  await process.start();
  await harness.until("a list", () => harness.listReasons(0).length === 2);
  harness.expectLists(0, "first", "outage");
});

test("a CRD that disappears takes its objects along, and its stream comes back with it", async () => {
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
  await using harness = new StreamHarness(path, cluster.url, tokenCredentials(cluster.identity.adminToken, ca()));
  await harness.until("the list", () => harness.source.synced);
  await create("one");
  await harness.until("the object", () => harness.source.size === 1);
  const startMs = performance.now();
  await cluster.admin.call("DELETE", `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${crd.metadata.name}`);
  await harness.until("its deletion", () => harness.source.size === 0);
  await harness.until("404", () => harness.failures(startMs).includes("watch not-served"));
  expect(harness.failures(startMs).length).toBeLessThanOrEqual(10);
  await cluster.waitFor("the CRD to be gone", async () => {
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
  await harness.until("the new object", () => harness.source.get("two") !== undefined);
  const { held, truth } = await harness.caughtUp(cluster.admin);
  expect(held).toEqual(truth);
});

test("a missing permission is retried slowly, and used once it is granted", async () => {
  const token = await cluster.serviceAccountToken("default", "watcher");
  const path = "/api/v1/nodes";
  await using harness = new StreamHarness(path, cluster.url, tokenCredentials(token, ca()));
  await harness.until("403", () => harness.failures(0).includes("list forbidden"));
  await cluster.apply(permission("nodes"));
  await harness.until("the list", () => harness.source.synced);
});

test("a host name without an address is tried at most ten times in ten seconds", async () => {
  await using harness = new StreamHarness(MAPS, "https://no-such-host.invalid:6443", tokenCredentials("none", ca()));
  await harness.until("the failure", () => harness.failures(0).includes("list dns"));
  const firstMs = harness.noticedMs(0) ?? 0;
  await delay(10_000);
  expect(harness.failures(firstMs, firstMs + 10_000).length).toBeLessThanOrEqual(10);
});
