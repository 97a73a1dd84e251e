/**
 * A worker cluster joins a core by `kubectl podseidon join`, and its processes, as the manifests start them, work with
 * accounts of their own there. The core cluster itself is a second cell.
 */

import { spawn } from "node:child_process";
import { createPrivateKey, generateKeyPairSync } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiserverClient, field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay, SYSTEM, startPods } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { BUNDLES } from "../../../scripts/environment/component.ts";
import { readAccountToken } from "../../../shared/kube/credentials/account-token.ts";
import { ask } from "../../support/cluster/ask.ts";
import { DeletionLoad } from "../../support/cluster/deletion-load.ts";
import { block } from "../../support/cluster/documented.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, readProtector } from "../../support/cluster/protectors.ts";
import { type Ended, ended } from "../../support/runtime/ended.ts";

const CELL = "worker-1";
const COMPONENTS = ["webhook", "aggregator"] as const;
const LOAD = { app: "load" };
/** The least that an apiserver issues. */
const LIFE_SECONDS = 600;
const SECRETS = `/api/v1/namespaces/${SYSTEM}/secrets`;
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";

let core: Cluster;
let worker: Cluster;
let balancer: Balancer;
let pods: DemoKubelet;

/** The plugin, with the contexts `core` and `worker-1`; the worker is the current one. */
function plugin(...args: readonly string[]): Promise<Ended> {
  const env = { KUBECONFIG: `${worker.kubeconfig}:${core.kubeconfig}`, HOME: core.directory };
  return ended(spawn(process.execPath, [join(BUNDLES, "kubectl-podseidon.mjs"), ...args], { env }));
}

const joined = (cell: string, context: string, ...more: readonly string[]): Promise<Ended> =>
  plugin("join", cell, "--core-context", "core", "--context", context, ...more);

/** The arguments of the command in docs/install.md. */
function documented(name: string): readonly string[] {
  const words = block(readFileSync(new URL("../../../docs/install.md", import.meta.url), "utf8"), name)
    .trim()
    .split(" ");
  const here: Readonly<Record<string, string>> = { "worker-2": CELL, CORE: "core", WORKER: CELL };
  return words.slice(2).map((word) => here[word] ?? word);
}

/** The kubeconfig that a component of a cluster mounts. */
async function kubeconfigOf(cluster: Cluster, component: string): Promise<string> {
  const secret = await cluster.admin.get(`${SECRETS}/podseidon-core-${component}`);
  return Buffer.from(String(field(secret, "data", "kubeconfig")), "base64").toString();
}

async function tokenOf(cluster: Cluster, component: string): Promise<string> {
  return String(field(JSON.parse(await kubeconfigOf(cluster, component)), "users", 0, "user", "token"));
}

/** The core, as the holder of this token. */
function asHolder(token: string): ApiserverClient {
  return new ApiserverClient({ url: core.url, certificateAuthorityPem: core.identity.certificateAuthorityPem, token });
}

async function statusFor(token: string, path = PROTECTORS): Promise<number> {
  const client = asHolder(token);
  const { status } = await client.request("GET", path);
  client.close();
  return status;
}

/** Names and versions of everything that belongs to a cell, in both clusters. */
async function objectsOf(cell: string): Promise<readonly string[]> {
  const kinds = "secrets,serviceaccounts,clusterrolebindings,rolebindings,roles";
  const columns = "custom-columns=:.kind,:.metadata.name,:.metadata.resourceVersion";
  const args = ["get", kinds, "--namespace", SYSTEM, "--output", columns, "--no-headers"];
  const ofCore = (await core.kubectl(args)).stdout.split("\n").filter((line) => line.includes(`.${cell} `));
  const ofWorker = (await worker.kubectl(args)).stdout.split("\n").filter((line) => line.includes("podseidon-core-"));
  return [...ofCore, ...ofWorker.filter((line) => line.startsWith("Secret"))];
}

beforeAll(async () => {
  [core, worker, balancer] = await Promise.all([
    Cluster.start({ name: "core", ...BARE }),
    Cluster.start({ name: CELL, ...BARE }),
    Balancer.listen([]),
  ]);
  const replicas = { "podseidon-aggregator": 1, "podseidon-webhook": 2 };
  await Promise.all([
    applyOverlay(core, "core"),
    applyOverlay(worker, "worker", { servicePort: balancer.port, replicas }),
  ]);
});

afterAll(async () => {
  await pods?.stop();
  await balancer?.close();
  await Promise.all([core?.stop(), worker?.stop()]);
});

describe("join", () => {
  test.each([
    ["an id that is no name", ["Worker_1"], /a DNS-1123 subdomain/],
    ["an id of a core that is not named", ["worker-1", "--context", CELL], /name the core's context/],
    ["an id that the manifests of the cluster do not have", ["other", "--core-context", "core"], /id worker-1/],
  ])("refuses %s", async (_, args, message) => {
    const { code, stderr } = await plugin("join", ...args);
    expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
    expect(await objectsOf(args[0] ?? "")).toEqual([]);
  });

  test("makes accounts and kubeconfigs; a second time it changes nothing", async () => {
    const first = await plugin(...documented("join"));
    process.stdout.write(`$ kubectl podseidon join ${CELL}\n${first.stdout}${first.stderr}\n`);
    expect([first.code, first.stdout.match(/created$/gm)?.length]).toEqual([0, 13]);
    const before = await objectsOf(CELL);
    const second = await joined(CELL, CELL);
    expect([second.code, second.stdout.match(/ (created|changed)$/gm)]).toEqual([0, null]);
    expect([await objectsOf(CELL), before.length]).toEqual([before, 13]);
  });

  test("refuses a second cluster with the id of the first", async () => {
    const { code, stderr } = await joined(CELL, "core");
    expect([code, stderr]).toEqual([2, expect.stringMatching(/another cluster has joined core as worker-1/)]);
  });

  test("refuses a second id of a cluster, also once its kubeconfigs are gone, as after an uninstall", async () => {
    expect((await joined("worker-2", "core")).code).toBe(0);
    for (const component of COMPONENTS) {
      await core.admin.call("DELETE", `${SECRETS}/podseidon-core-${component}`);
      const { code, stderr } = await joined("worker-3", "core");
      const first = "first kubectl podseidon leave worker-2 --core-context core --context core --yes";
      expect([code, stderr]).toEqual([2, expect.stringContaining(first)]);
    }
  });

  test("gives each component an account of its own, whose tokens end with the Secret of the cell", async () => {
    expect((await joined("worker-2", "core")).code).toBe(0);
    for (const component of COMPONENTS) {
      const token = await tokenOf(worker, component);
      const claims = readAccountToken(token);
      expect([claims?.account?.name, claims?.boundTo?.name]).toEqual([
        `podseidon-${component}.${CELL}`,
        `podseidon-cell.${CELL}`,
      ]);
      const client = asHolder(token);
      const request = async (name: string, boundObjectRef?: object): Promise<number> => {
        const path = `/api/v1/namespaces/${SYSTEM}/serviceaccounts/${name}/token`;
        const body = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: { boundObjectRef } };
        return (await client.request("POST", path, body)).status;
      };
      const own = { apiVersion: "v1", kind: "Secret", name: `podseidon-cell.${CELL}` };
      const other = component === "webhook" ? "aggregator" : "webhook";
      const asked = [
        await request(`podseidon-${component}.${CELL}`, own),
        // A token that nothing revokes, or that another cell's Secret does.
        await request(`podseidon-${component}.${CELL}`),
        await request(`podseidon-${component}.${CELL}`, { ...own, name: "podseidon-cell.worker-2" }),
        // Tokens of others.
        await request(`podseidon-${other}.${CELL}`, own),
        await request(`podseidon-${component}.worker-2`, own),
        await request(`podseidon-${component}`),
      ];
      expect([component, asked]).toEqual([component, [201, 422, 422, 403, 403, 403]]);
      client.close();
    }
  });
});

test("webhook and aggregator of the manifests work by the accounts of their cell", async () => {
  pods = await startPods(worker, balancer, ["podseidon-certificates", "podseidon-webhook", "podseidon-aggregator"]);
  const selector = { matchLabels: { app: "web" } };
  await createProtector(core, "default", "web", { minAvailable: 2, minReadySeconds: 0, selector });
  await createReadyPods(worker, { namespace: "default", prefix: "web", count: 3, labels: { app: "web" } });
  await core.waitFor("the pods to be counted", async () => {
    const [cell] = (await readProtector(core, "default", "web")).status?.cells ?? [];
    return cell?.cellID === CELL && cell.aggregation?.availableReplicas === 3;
  });
  const remove = (name: string) => ask(worker, "DELETE", `/api/v1/namespaces/default/pods/${name}`);
  expect((await remove("web-0")).status).toBe(200);
  expect((await remove("web-1")).status).toBe(429);
});

/** The token with this share of ten minutes passed, as the core itself signs it. */
async function agedToken(component: string, share: number): Promise<string> {
  const [, payload = ""] = (await tokenOf(worker, component)).split(".");
  const claims = JSON.parse(Buffer.from(payload, "base64url").toString());
  const iat = Math.round(Date.now() / 1000 - share * LIFE_SECONDS);
  const key = createPrivateKey(readFileSync(join(core.identity.directory, "service-account.key")));
  const { keys } = JSON.parse((await core.kubectl(["get", "--raw", "/openid/v1/jwks"])).stdout);
  return await new SignJWT({ ...claims, iat, nbf: iat, exp: iat + LIFE_SECONDS })
    .setProtectedHeader({ alg: "ES256", kid: keys[0].kid })
    .sign(key);
}

/** Puts the token into the Secret of the worker cluster. */
async function hold(component: string, token: string): Promise<void> {
  const text = (await kubeconfigOf(worker, component)).replaceAll(await tokenOf(worker, component), token);
  const data = { kubeconfig: Buffer.from(text).toString("base64") };
  await worker.admin.call("PATCH", `${SECRETS}/podseidon-core-${component}`, { data });
}

/** When the tokens expire that the processes of the worker cluster hold, Unix milliseconds. */
async function heldUntil(): Promise<number[]> {
  const using = pods.pods.filter(({ deployment }) => /-(webhook|aggregator)$/.test(deployment));
  const texts = await Promise.all(using.map(async ({ metricsUrl }) => (await fetch(metricsUrl)).text()));
  return texts.map(
    (text) => 1000 * Number(/^podseidon_core_token_expiry_timestamp_seconds\S* (\S+)$/m.exec(text)?.[1]),
  );
}

test("a token that ends is renewed under load: no review fails, and a restart finds the new one", async () => {
  await createProtector(core, "default", "load", {
    minAvailable: 1,
    minReadySeconds: 0,
    selector: { matchLabels: LOAD },
  });
  await createReadyPods(worker, { namespace: "default", prefix: "base", count: 8, labels: LOAD });
  const load = new DeletionLoad(worker, 2, LOAD);
  await load.more(20);
  // Half a minute is left; the core takes a token for a minute longer than it says.
  const old = { webhook: await agedToken("webhook", 0.95), aggregator: await agedToken("aggregator", 0.95) };
  const endMs = readAccountToken(old.webhook)?.expiresMs ?? 0;
  for (const component of COMPONENTS) await hold(component, old[component]);
  await worker.waitFor("every process to hold a renewed token", async () => {
    const ends = await heldUntil();
    return ends.length === 3 && ends.every((ms) => ms > endMs && ms < endMs + LIFE_SECONDS * 1000);
  });
  for (const component of COMPONENTS) {
    const claims = readAccountToken(await tokenOf(worker, component));
    expect([claims?.account?.name, claims?.boundTo?.name]).toEqual([
      `podseidon-${component}.${CELL}`,
      `podseidon-cell.${CELL}`,
    ]);
    await core.waitFor("the old token to end", async () => (await statusFor(old[component])) === 401, 180_000);
  }
  await load.more(20);
  await Promise.all(
    pods.pods.filter(({ webhookPort }) => webhookPort === undefined).map((pod) => pod.process.restart()),
  );
  await load.more(20);
  await load.stop();
  // A denial of a deletion for which there is no quota is an answer.
  expect(load.oddities.filter((answer) => !answer.startsWith("429"))).toEqual([]);
});

test("doctor says whose token ends when", async () => {
  const { stdout } = await plugin("doctor", "--core-context", "core");
  for (const component of COMPONENTS)
    expect(stdout).toMatch(
      new RegExp(`ok .* core token .* of podseidon-${component}.${CELL} expires in \\S+, and renews`),
    );
});

test("the deletion of a cell's Secret revokes its tokens alone, until it joins again", async () => {
  const tokens = await Promise.all([worker, core].map((cluster) => tokenOf(cluster, "webhook")));
  const answers = (): Promise<number[]> => Promise.all(tokens.map((token) => statusFor(token)));
  expect(await answers()).toEqual([200, 200]);
  await core.admin.call("DELETE", `${SECRETS}/podseidon-cell.${CELL}`);
  await core.waitFor("the cell to be rejected", async () => (await answers())[0] === 401);
  expect(await answers()).toEqual([401, 200]);
  const remove = () => worker.admin.request("DELETE", "/api/v1/namespaces/default/pods/base-0?dryRun=All");
  await worker.waitFor("the cell's webhook to decide nothing", async () => (await remove()).status === 500);
  const { code, stdout } = await plugin(...documented("join"));
  expect([code, stdout.match(/ issued, /g)?.length]).toEqual([0, 2]);
  await worker.waitFor("the cell's webhook to decide again", async () => (await remove()).status === 200);
});

test("tokens that a core with a new service-account key rejects are told of and replaced by another join", async () => {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const { directory } = core.identity;
  writeFileSync(join(directory, "service-account.key"), privateKey.export({ type: "pkcs8", format: "pem" }));
  writeFileSync(join(directory, "service-account.pub"), publicKey.export({ type: "spki", format: "pem" }));
  await core.processes["kube-apiserver"].restart();
  const held = await tokenOf(worker, "webhook");
  await core.waitFor("the cell to be rejected", async () => (await statusFor(held)) === 401);
  const { stdout: findings } = await plugin("doctor", "--core-context", "core");
  expect(findings.match(/^FAIL +worker-1 +core token +the core rejects that of podseidon-/gm)).toHaveLength(2);
  const { code, stdout } = await plugin(...documented("join"));
  expect([code, stdout.match(/ issued, /g)?.length]).toEqual([0, 2]);
  const remove = () => worker.admin.request("DELETE", "/api/v1/namespaces/default/pods/base-0?dryRun=All");
  await worker.waitFor("the cell's webhook to decide again", async () => (await remove()).status === 200);
});

describe("leave", () => {
  test("without --yes changes nothing", async () => {
    const before = await objectsOf(CELL);
    const { code, stdout } = await plugin(...documented("leave").filter((word) => word !== "--yes"));
    expect([code, stdout]).toEqual([1, expect.stringContaining("Nothing was changed")]);
    expect(await objectsOf(CELL)).toEqual(before);
  });

  test("keeps the kubeconfigs of another cell", async () => {
    const { code, stdout } = await plugin("leave", "worker-2", "--core-context", "core", "--context", CELL);
    expect([code, stdout.match(/kept: it is of worker-1/g)?.length]).toEqual([1, 2]);
  });

  test("takes everything back, and says what is left to do", async () => {
    const token = await tokenOf(worker, "webhook");
    const { code, stdout } = await plugin(...documented("leave"));
    expect([code, stdout]).toEqual([
      0,
      expect.stringContaining("remove-cell worker-1 --all-namespaces --core-context core --yes"),
    ]);
    expect(await objectsOf(CELL)).toEqual([]);
    await core.waitFor("the token to be rejected", async () => (await statusFor(token)) === 401);
    const again = await plugin(...documented("leave"));
    expect([again.code, again.stderr]).toEqual([2, expect.stringContaining("no cluster has joined core as worker-1")]);
  });
});
