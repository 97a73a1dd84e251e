/**
 * `kubectl podseidon join` and `leave`, interrupted at each of their writes: the apiservers are gone from then on. The
 * second call ends well, and leaves nothing behind. Beside it: who asks, by the flags of kubectl.
 */
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { delimiter, join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiserverClient, field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay, SYSTEM } from "../../../scripts/demo/install.ts";
import { runCommandLine } from "../../../scripts/kubectl-podseidon/cli.ts";
import { systemPorts } from "../../../shared/runtime/system-ports.ts";

const CELL = "worker-1";
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";

let core: Cluster;
let worker: Cluster;
/** Both clusters' kubeconfigs, of the addresses that can be interrupted. */
let kubeconfigs: string;
const fronts: Server[] = [];

/** The writes that are still served; at the next one all apiservers are gone, before it or after it. */
let left = Number.POSITIVE_INFINITY;
let isServedFirst = false;

/** Serves a cluster to whoever asks, as its administrator. */
async function front(cluster: Cluster): Promise<string> {
  const server = createServer(async (request, response) => {
    const { method = "", url = "" } = request;
    const body = await text(request);
    if (method !== "GET" && !url.includes("dryRun") && !url.includes("tokenreviews")) left--;
    if (left < -1 || (left === -1 && !isServedFirst)) return request.socket.destroy();
    const contentType = request.headers["content-type"];
    const options = contentType === undefined ? {} : { contentType };
    const answer = await cluster.admin.request(method, url, body === "" ? undefined : body, options);
    if (left === -1) return request.socket.destroy();
    response.writeHead(answer.status, { "content-type": "application/json" }).end(answer.text);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  fronts.push(server);
  const { port } = server.address() as AddressInfo;
  const path = join(cluster.directory, "front");
  const name = cluster === core ? "core" : CELL;
  const contexts = [{ name, context: { cluster: name } }];
  const clusters = [{ name, cluster: { server: `http://127.0.0.1:${port}` } }];
  writeFileSync(path, JSON.stringify({ "current-context": name, contexts, clusters }));
  return path;
}

interface Result {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function plugin(environment: { KUBECONFIG: string }, ...args: readonly string[]): Promise<Result> {
  let [out, err] = ["", ""];
  const terminal = {
    out: (part: string) => {
      out += part;
    },
    err: (part: string) => {
      err += part;
    },
    interactive: false,
  };
  const code = await runCommandLine([...args, "--core-context", "core"], { terminal, ports: systemPorts, environment });
  // What takes longer than a second is told of.
  return { code, out, err: err.replaceAll(/^.* \.\.\.\n/gm, "") };
}

/** A call that is interrupted at its write of this number, counted from 0. */
async function interrupted(at: number, servedFirst: boolean, ...args: readonly string[]): Promise<Result> {
  [left, isServedFirst] = [at, servedFirst];
  try {
    return await plugin({ KUBECONFIG: kubeconfigs }, ...args);
  } finally {
    left = Number.POSITIVE_INFINITY;
  }
}

const whole = (...args: readonly string[]): Promise<Result> => plugin({ KUBECONFIG: kubeconfigs }, ...args);
const joining = (): readonly string[] => ["join", CELL, "--context", CELL, "--server", core.url];
const LEAVING = ["leave", CELL, "--context", CELL, "--yes"];

const NAMESPACED = `namespaces/${SYSTEM}`;
const RBAC = "/apis/rbac.authorization.k8s.io/v1";

/** Names of everything that belongs to the cell, in both clusters. */
async function objects(): Promise<readonly string[]> {
  const lists: [Cluster, string, string][] = [
    [core, `/api/v1/${NAMESPACED}/secrets`, `.${CELL}`],
    [core, `/api/v1/${NAMESPACED}/serviceaccounts`, `.${CELL}`],
    [core, `${RBAC}/${NAMESPACED}/roles`, `.${CELL}`],
    [core, `${RBAC}/${NAMESPACED}/rolebindings`, `.${CELL}`],
    [core, `${RBAC}/clusterrolebindings`, `.${CELL}`],
    [worker, `/api/v1/${NAMESPACED}/secrets`, "podseidon-core-"],
  ];
  const found = lists.map(async ([cluster, path, part]) => {
    const items = field(await cluster.admin.get(path), "items");
    const names = Array.isArray(items) ? items.map((item) => String(field(item, "metadata", "name"))) : [];
    return names.filter((name) => name.includes(part)).map((name) => `${path}/${name}`);
  });
  return (await Promise.all(found)).flat();
}

/** Status codes of what the kubeconfigs of the cell may read in the core, which knows of a change a moment later. */
async function statuses(): Promise<readonly number[]> {
  return await Promise.all(
    ["webhook", "aggregator"].map(async (component) => {
      const secret = await worker.admin.get(`/api/v1/namespaces/${SYSTEM}/secrets/podseidon-core-${component}`);
      const config = JSON.parse(Buffer.from(String(field(secret, "data", "kubeconfig")), "base64").toString());
      const { token } = config.users[0].user;
      const certificateAuthorityPem = core.identity.certificateAuthorityPem;
      const client = new ApiserverClient({ url: core.url, certificateAuthorityPem, token });
      const { status } = await client.request("GET", PROTECTORS);
      client.close();
      return status;
    }),
  );
}

let made: readonly string[];

beforeAll(async () => {
  [core, worker] = await Promise.all([
    Cluster.start({ name: "core", ...BARE }),
    Cluster.start({ name: CELL, ...BARE }),
  ]);
  await applyOverlay(core, "core");
  await core.waitFor("the CRD", async () => (await core.admin.request("GET", PROTECTORS)).status === 200);
  kubeconfigs = [await front(worker), await front(core)].join(delimiter);
  expect(await whole(...joining())).toMatchObject({ code: 0 });
  made = await objects();
  expect(await whole(...LEAVING)).toMatchObject({ code: 0 });
  expect(await objects()).toEqual([]);
});

afterAll(async () => {
  for (const server of fronts) server.close();
  await Promise.all([core?.stop(), worker?.stop()]);
});

/** A bound Secret; an account, four permissions, a token and a kubeconfig for each component. */
const JOIN_WRITES = 15;
/** What a join makes in the core; then, in the worker cluster, a kubeconfig for each component. */
const LEAVE_WRITES_CORE = 11;

const atEach = (count: number): [number, boolean][] =>
  Array.from({ length: count }, (_, at) => [at, at % 2 === 0] as [number, boolean]);

describe("interrupted at write", () => {
  test.each(atEach(JOIN_WRITES))(
    "%d (done: %s), join is made whole by another join, and leave takes all back",
    async (at, done) => {
      expect(await interrupted(at, done, ...joining())).toMatchObject({ code: 2, out: "" });
      expect(await whole(...joining())).toMatchObject({ code: 0, err: "" });
      expect(await objects()).toEqual(made);
      await expect.poll(statuses).toEqual([200, 200]);
      expect(await whole(...LEAVING)).toMatchObject({ code: 0, err: "" });
      expect(await objects()).toEqual([]);
    },
  );

  test.each(atEach(JOIN_WRITES))("%d (done: %s), join is taken back by leave alone", async (at, done) => {
    await interrupted(at, done, ...joining());
    const isNothing = (await objects()).length === 0;
    expect(await whole(...LEAVING)).toMatchObject({ code: isNothing ? 2 : 0 });
    expect(await objects()).toEqual([]);
  });

  test.each(atEach(LEAVE_WRITES_CORE))("%d (done: %s), leave is ended by another leave", async (at, done) => {
    expect(await whole(...joining())).toMatchObject({ code: 0 });
    expect(await interrupted(at, done, ...LEAVING)).toMatchObject({ code: 2, out: "" });
    await expect.poll(statuses).toEqual(at === 0 && !done ? [200, 200] : [401, 401]);
    expect(await whole(...LEAVING)).toMatchObject({ code: 0, err: "" });
    expect(await objects()).toEqual([]);
  });

  test("of the worker cluster, leave says what stays there, and another one takes it", async () => {
    expect(await whole(...joining())).toMatchObject({ code: 0 });
    const { code, out } = await interrupted(LEAVE_WRITES_CORE, false, ...LEAVING);
    expect([code, out]).toEqual([0, expect.stringContaining(`Warning: ${CELL} may still have its kubeconfigs`)]);
    expect(await whole(...LEAVING)).toMatchObject({ code: 0 });
    expect(await objects()).toEqual([]);
  });
});

describe("the flags of kubectl", () => {
  const own = (): { KUBECONFIG: string } => ({ KUBECONFIG: [worker.kubeconfig, core.kubeconfig].join(delimiter) });

  test("--as with too few rights is told in the apiserver's words, and with enough of them it answers", async () => {
    const { code, err } = await plugin(own(), "status", "-A", "--as", "alice");
    expect([code, err]).toEqual([2, expect.stringContaining('User "alice" cannot list resource "podprotectors"')]);
    const asAdmin = await plugin(own(), "status", "-A", "--as", "admin", "--as-group", "system:masters");
    expect(asAdmin).toMatchObject({ code: 0, err: "" });
  });

  test("printed commands find the same clusters as the same user", async () => {
    const flags = ["--as", "admin", "--as-group", "system:masters"];
    const { code, err } = await plugin(own(), "leave", "nobody", "--context", CELL, ...flags);
    expect([code, err]).toEqual([
      2,
      "error: no cluster has joined core as nobody; see kubectl podseidon doctor --core-context core " +
        "--as admin --as-group system:masters\n",
    ]);
  });
});
