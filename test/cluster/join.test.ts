/**
 * A worker cluster joins a core by `kubectl podseidon join`, and its processes, as the manifests start them, work with
 * accounts of their own there. The core cluster itself is a second cell.
 */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiserverClient, field } from "../../scripts/control-plane/api-client.ts";
import { Cluster, type ClusterOptions } from "../../scripts/control-plane/cluster.ts";
import { applyOverlay, kubelet, SYSTEM, untilTrusted, webhookEndpoints } from "../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../scripts/demo/kubelet.ts";
import { Balancer } from "../../scripts/environment/balancer.ts";
import { root } from "../../scripts/root.ts";
import { readAccountToken } from "../../shared/kube/credentials/account-token.ts";
import { block } from "../support/cluster/documented.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import { createProtector, readProtector } from "../support/cluster/protectors.ts";

const CELL = "worker-1";
const SECRETS = `/api/v1/namespaces/${SYSTEM}/secrets`;
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";
const BUNDLES = process.env.PODSEIDON_BUNDLES ?? join(root, "dist");
const bare: ClusterOptions = {
  controllerManager: false,
  scheduler: false,
  kwok: false,
  flags: { "kube-apiserver": { "disable-admission-plugins": "ServiceAccount" } },
};

let core: Cluster;
let worker: Cluster;
let balancer: Balancer;
let pods: DemoKubelet;

interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The plugin, with the contexts `core` and `worker-1`; the worker is the current one. */
async function plugin(...args: readonly string[]): Promise<Result> {
  const env = { KUBECONFIG: `${worker.kubeconfig}:${core.kubeconfig}`, HOME: core.directory };
  const words = [join(BUNDLES, "kubectl-podseidon.mjs"), ...args];
  try {
    return { code: 0, ...(await promisify(execFile)(process.execPath, words, { env })) };
  } catch (error) {
    return {
      code: Number(field(error, "code")),
      stdout: String(field(error, "stdout")),
      stderr: String(field(error, "stderr")),
    };
  }
}

const joined = (cell: string, context: string, ...more: readonly string[]): Promise<Result> =>
  plugin("join", cell, "--core-context", "core", "--context", context, ...more);

/** The arguments of the command in docs/install.md. */
function documented(name: string): readonly string[] {
  const words = block(readFileSync(new URL("../../docs/install.md", import.meta.url), "utf8"), name)
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
    Cluster.start({ name: "core", ...bare }),
    Cluster.start({ name: CELL, ...bare }),
    Balancer.listen([]),
  ]);
  const target = (name: string) => ({ kind: "Deployment", name });
  const replace = (path: string, value: unknown): string => JSON.stringify([{ op: "add", path, value }]);
  await Promise.all([
    applyOverlay(core, "core"),
    applyOverlay(worker, "worker", {
      servicePort: balancer.port,
      patches: [
        {
          target: { kind: "Service", name: "podseidon-webhook" },
          patch: replace("/spec", { type: "ExternalName", externalName: "localhost" }),
        },
        { target: target("podseidon-aggregator"), patch: replace("/spec/replicas", 1) },
        { target: target("podseidon-webhook"), patch: replace("/spec/replicas", 2) },
      ],
    }),
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

  test("gives each component an account of its own, whose tokens end with the Secret of the cell", async () => {
    expect((await joined("worker-2", "core")).code).toBe(0);
    for (const component of ["webhook", "aggregator"]) {
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
  pods = kubelet(worker, BUNDLES);
  await pods.start(["podseidon-certificates", "podseidon-webhook", "podseidon-aggregator"]);
  balancer.endpoints = webhookEndpoints(pods.pods);
  await untilTrusted(worker);
  const selector = { matchLabels: { app: "web" } };
  await createProtector(core, "default", "web", { minAvailable: 2, minReadySeconds: 0, selector });
  await createReadyPods(worker, { namespace: "default", prefix: "web", count: 3, labels: { app: "web" } });
  await core.waitFor("the pods to be counted", async () => {
    const [cell] = (await readProtector(core, "default", "web")).status?.cells ?? [];
    return cell?.cellID === CELL && cell.aggregation?.availableReplicas === 3;
  });
  const remove = (name: string) => worker.admin.request("DELETE", `/api/v1/namespaces/default/pods/${name}`);
  expect((await remove("web-0")).status).toBe(200);
  expect((await remove("web-1")).status).toBe(429);
});

describe("leave", () => {
  test("without --yes changes nothing", async () => {
    const before = await objectsOf(CELL);
    const { code, stdout } = await plugin(...documented("leave"));
    expect([code, stdout]).toEqual([0, expect.stringContaining("Nothing was changed")]);
    expect(await objectsOf(CELL)).toEqual(before);
  });

  test("keeps the kubeconfigs of another cell", async () => {
    const { code, stdout } = await plugin("leave", "worker-2", "--core-context", "core", "--context", CELL);
    expect([code, stdout.match(/kept: it is of worker-1/g)?.length]).toEqual([0, 2]);
  });

  test("takes everything back, and says what is left to do", async () => {
    const token = await tokenOf(worker, "webhook");
    const { code, stdout } = await plugin(...documented("leave"), "--yes");
    expect([code, stdout]).toEqual([0, expect.stringContaining("remove-cell worker-1 --all-namespaces")]);
    expect(await objectsOf(CELL)).toEqual([]);
    await core.waitFor("the token to be rejected", async () => (await statusFor(token)) === 401);
    const again = await plugin(...documented("leave"), "--yes");
    expect([again.code, again.stderr]).toEqual([2, expect.stringContaining("no cluster has joined core as worker-1")]);
  });
});
