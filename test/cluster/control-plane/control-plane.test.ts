import { readFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { ApiserverClient, field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";

/** Clusters as the fault tests use them: users, isolation, and processes that die, hang and come back. */

const TIMEOUT_MS = 300_000;
let first: Cluster;
let second: Cluster;

beforeAll(async () => {
  [first, second] = await Promise.all([
    Cluster.start({
      ...BARE,
      name: "first",
      tokens: [{ token: "secret-of-eve", user: "eve", groups: ["guests"] }],
      files: {
        "audit.yaml": JSON.stringify({ apiVersion: "audit.k8s.io/v1", kind: "Policy", rules: [{ level: "Metadata" }] }),
      },
      flags: { "kube-apiserver": { "audit-policy-file": "$FILES/audit.yaml", "audit-log-path": "$FILES/audit.log" } },
    }),
    Cluster.start({ ...BARE, name: "second", address: "127.0.0.2" }),
  ]);
}, TIMEOUT_MS);

afterAll(() => Promise.all([first?.stop(), second?.stop()]));

const MAPS = "/api/v1/namespaces/default/configmaps";
const configMap = (name: string) => ({ apiVersion: "v1", kind: "ConfigMap", metadata: { name } });
const exists = async (name: string): Promise<boolean> =>
  (await first.admin.request("GET", `${MAPS}/${name}`)).status === 200;

describe("two clusters at once", () => {
  test("are apart, each at its address", async () => {
    expect(first.url).toContain("//127.0.0.1:");
    expect(second.url).toContain("//127.0.0.2:");
    await first.admin.call("POST", MAPS, configMap("only-in-first"));
    expect((await second.admin.request("GET", `${MAPS}/only-in-first`)).status).toBe(404);
  });

  test("do not trust each other's certificates", async () => {
    const certificateAuthorityPem = second.identity.certificateAuthorityPem;
    const stranger = new ApiserverClient({ url: first.url, certificateAuthorityPem, token: first.identity.adminToken });
    await expect(stranger.request("GET", "/version")).rejects.toThrow(/certificate/);
    stranger.close();
  });

  test("are of the version that was asked for", async () => {
    expect(await first.admin.get("/version")).toMatchObject({ gitVersion: "v1.36.3", major: "1", minor: "36" });
  });
});

describe("users", () => {
  const whoami = async (kubeconfig: string): Promise<unknown> => {
    const answer = await first.kubectl(["auth", "whoami", "-o", "json"], { kubeconfig });
    const review: unknown = JSON.parse(answer.stdout);
    return field(review, "status", "userInfo");
  };

  test("with a client certificate", async () => {
    const kubeconfig = await first.kubeconfigFor({ user: "zoë", groups: ["developers"] });
    const groups = ["developers", "system:authenticated"];
    expect(await whoami(kubeconfig)).toMatchObject({ username: "zoë", groups });
  });

  test("with a fixed token", async () => {
    const kubeconfig = await first.kubeconfigFor({ token: "secret-of-eve" });
    expect(await whoami(kubeconfig)).toMatchObject({ username: "eve", groups: ["guests", "system:authenticated"] });
  });

  test("with a service account's token, under RBAC", async () => {
    await first.admin.call("POST", "/api/v1/namespaces/default/serviceaccounts", {
      apiVersion: "v1",
      kind: "ServiceAccount",
      metadata: { name: "robot" },
    });
    const kubeconfig = await first.kubeconfigFor({ serviceAccount: { namespace: "default", name: "robot" } });
    expect(await whoami(kubeconfig)).toMatchObject({ username: "system:serviceaccount:default:robot" });
    const refused = await first.kubectl(["get", "configmaps"], { kubeconfig });
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("forbidden");
  });

  test("with an unknown token are refused", async () => {
    const kubeconfig = await first.kubeconfigFor({ token: "guess" });
    expect((await first.kubectl(["get", "configmaps"], { kubeconfig })).code).toBe(1);
  });
});

test("flags and files reach a component", async () => {
  await first.admin.call("POST", MAPS, configMap("audited"));
  const log = join(first.directory, "files", "audit.log");
  await first.waitFor("the audit log to tell", async () => readFileSync(log, "utf8").includes('"name":"audited"'));
});

describe("kube-apiserver", { timeout: TIMEOUT_MS }, () => {
  test("is frozen, so that calls get no answer, and thawed", async () => {
    const apiserver = first.processes["kube-apiserver"];
    apiserver.freeze();
    try {
      await expect(first.admin.request("GET", "/version", undefined, { timeoutMs: 300 })).rejects.toThrow();
    } finally {
      apiserver.thaw();
    }
    expect((await first.admin.request("GET", "/version")).status).toBe(200);
  });

  test("is killed and restarted at the same address with the same objects", async () => {
    const apiserver = first.processes["kube-apiserver"];
    const { pid } = apiserver;
    await first.admin.call("POST", MAPS, configMap("survivor"));
    await apiserver.kill();
    expect(apiserver.running).toBe(false);
    await expect(first.admin.request("GET", "/version")).rejects.toThrow(/ECONNREFUSED/);
    await apiserver.restart();
    expect(apiserver.pid).not.toBe(pid);
    expect(await exists("survivor")).toBe(true);
  });
});

describe("etcd", { timeout: TIMEOUT_MS }, () => {
  test("is killed and restarted under a running apiserver", async () => {
    await first.admin.call("POST", MAPS, configMap("stored"));
    await first.processes.etcd.kill();
    const outage = await first.admin
      .request("GET", `${MAPS}/stored`, undefined, { timeoutMs: 2_000 })
      .catch(() => undefined);
    expect(outage?.status).not.toBe(200);
    await first.processes.etcd.start();
    await first.waitFor("the object to be read again", () => exists("stored"));
  });

  test("is restored from a snapshot: newer objects are gone and versions go back", async () => {
    await first.admin.call("POST", MAPS, configMap("before"));
    const snapshot = first.snapshotEtcd();
    const revision = await first.etcd.revision();
    for (const name of ["after-1", "after-2", "after-3"]) await first.admin.call("POST", MAPS, configMap(name));
    await first.restoreEtcd(snapshot);
    expect(await exists("before")).toBe(true);
    expect(await exists("after-1")).toBe(false);
    expect((await first.etcd.revision()) - revision).toBeLessThan(1000n);
    await first.admin.call("POST", MAPS, configMap("after-restore"));
    expect(await exists("after-restore")).toBe(true);
  });

  test("forgets older versions: an exact list and a watch there get 410", async () => {
    const version = field(await first.admin.get(MAPS), "metadata", "resourceVersion");
    await first.admin.call("POST", MAPS, configMap("newer"));
    await first.expireVersions();
    const exact = await first.admin.request("GET", `${MAPS}?resourceVersion=${version}&resourceVersionMatch=Exact`);
    expect(exact.status).toBe(410);
    const watch = await first.admin.request("GET", `${MAPS}?watch=1&resourceVersion=${version}&timeoutSeconds=5`);
    expect(watch.body).toMatchObject({ type: "ERROR", object: { code: 410 } });
    expect(await exists("newer")).toBe(true);
  });

  test("loses an object without a trace, whatever its finalizers", async () => {
    const body = { ...configMap("erased"), metadata: { name: "erased", finalizers: ["example.test/hold"] } };
    await first.admin.call("POST", MAPS, body);
    expect(await first.etcd.keys("/registry/configmaps/default/erased")).toEqual([
      "/registry/configmaps/default/erased",
    ]);
    expect(await first.etcd.deleteKey("/registry/configmaps/default/erased")).toBe(true);
    expect(await first.etcd.deleteKey("/registry/configmaps/default/erased")).toBe(false);
    await first.waitFor("the object to be gone", async () => !(await exists("erased")));
  });
});

test("a cluster that can't start says why, keeps its logs and leaves nothing else", {
  timeout: TIMEOUT_MS,
}, async () => {
  const logs = join(first.directory, "kept-logs");
  vi.stubEnv("PODSEIDON_LOG_DIRECTORY", logs);
  const written = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  try {
    const start = Cluster.start({ ...BARE, name: "broken", flags: { "kube-apiserver": { "no-such-flag": "1" } } });
    await expect(start).rejects.toThrow(/kube-apiserver ended before it was ready.*unknown flag: --no-such-flag/s);
    expect(written.mock.calls.join("\n")).toContain(`the logs of broken are in ${logs}`);
  } finally {
    written.mockRestore();
    vi.unstubAllEnvs();
  }
  const [kept = ""] = await readdir(logs);
  expect(await readdir(join(logs, kept))).toContain("kube-apiserver.log");
  expect((await readdir(join(first.directory, ".."))).filter((name) => name.startsWith("broken-"))).toEqual([]);
});

test("a stopped cluster leaves no process and no file", { timeout: TIMEOUT_MS }, async () => {
  const { pid } = second.processes.etcd;
  await second.stop();
  expect(() => process.kill(pid ?? 0, 0)).toThrow(/ESRCH/);
  await expect(readdir(second.directory)).rejects.toThrow(/ENOENT/);
});
