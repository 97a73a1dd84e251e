/** `drain-check`, also of a cluster that has no webhook configuration. */
import { describe, expect, test } from "vitest";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { makeCell, makeProtector } from "../../test/support/decide/fixtures.ts";
import { listeningApiserver } from "../../test/support/kube/listening-apiserver.ts";
import { runCommandLine } from "./cli.ts";

describe("the command", () => {
  const list = (...items: unknown[]): unknown => ({ metadata: { resourceVersion: "1" }, items });
  const pod = (name: string, phase: string, kind: string, controller = true): unknown => ({
    metadata: {
      name,
      namespace: "shop",
      labels: { app: "web" },
      uid: name,
      resourceVersion: "1",
      ownerReferences: [{ kind, controller }],
    },
    spec: { nodeName: "n", containers: [{ name: "a" }] },
    status: { phase },
  });

  /** Evictions of the pods in `forbidden` are. The cluster has no webhook configuration, and asks nobody. */
  async function run(
    command: readonly string[],
    pods: readonly unknown[],
    forbidden: readonly string[] = [],
    protectors: readonly unknown[] = [],
    warnings: readonly string[] = [],
    { refused = "", cordoned = false } = {},
  ) {
    const objects: Readonly<Record<string, unknown>> = {
      "/api/v1/nodes/n": { metadata: { name: "n" } },
      "/api/v1/nodes": list(
        { metadata: { name: "n" } },
        { metadata: { name: "m" }, spec: { unschedulable: cordoned } },
      ),
      "/api/v1/pods": list(...pods),
      "/api/v1/namespaces/shop/pods": list(...pods),
      "/api/v1/namespaces/shop/pods/web-0": pods[0],
      "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": list(...protectors),
      "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors": list(...protectors),
    };
    const { kubeconfig, close } = await listeningApiserver(({ url = "", method }, response) => {
      const [path = ""] = url.split("?");
      const name = /\/pods\/([^/]+)\/eviction$/.exec(path)?.[1];
      const found = method === "GET" ? objects[path] : {};
      const denied = name === refused ? 429 : forbidden.includes(name ?? "") ? 403 : undefined;
      const status = denied ?? (found === undefined ? 404 : 200);
      const body = status === 200 ? found : { kind: "Status", message: `HTTP ${status}`, details: { name: "x" } };
      for (const warning of name === undefined ? [] : warnings) response.appendHeader("warning", `299 - "${warning}"`);
      response.writeHead(status).end(JSON.stringify(body));
    });
    let out = "";
    const say = (text: string): void => {
      out += text;
    };
    const code = await runCommandLine([...command, "--kubeconfig", kubeconfig], {
      ...{ terminal: { out: say, err: say, interactive: false }, ports: systemPorts, environment: {} },
    });
    close();
    return { code, out };
  }

  const drainCheck = (pods: readonly unknown[], forbidden?: readonly string[], protectors?: readonly unknown[]) =>
    run(["drain-check", "n"], pods, forbidden, protectors);

  /** Of two cells, so that the cell of a cluster without a webhook configuration is not known. */
  function protector(minAvailable: number): unknown {
    const made = makeProtector([makeCell("a", 2), makeCell("b", 2)], { minAvailable });
    return { ...made, metadata: { ...made.metadata, name: "deployment-web", namespace: "shop" } };
  }

  const running = pod("web-0", "Running", "ReplicaSet");

  test("a finished pod goes, as kubectl drain evicts it; one that a DaemonSet controls stays", async () => {
    const { code, out } = await drainCheck([
      running,
      pod("job-0", "Succeeded", "Job"),
      pod("ds", "Running", "DaemonSet"),
      pod("ds-0", "Succeeded", "DaemonSet"),
      pod("own", "Running", "DaemonSet", false),
    ]);
    for (const name of ["job-0", "ds-0", "own"])
      expect(out).toMatch(new RegExp(`^shop +${name} +- +admitted +goes`, "m"));
    expect(out).toContain("4 pods can go at once");
    expect(out).toContain("1 stay (DaemonSets or static pods)");
    expect(code).toBe(0);
  });

  test("ends with exit code 2 where nothing is in the way, and something could not be told", async () => {
    const { code, out } = await drainCheck([running, pod("web-1", "Running", "ReplicaSet")], ["web-1"]);
    expect(out).toContain("1 could not be checked");
    expect(code).toBe(2);
  });

  test.each([
    [false, 0],
    [true, 1],
  ])("a pod that waits can go, unless every other node is cordoned (%s): exit code %i", async (cordoned, expected) => {
    const { code, out } = await run(["drain-check", "n"], [running], [], [], [], { refused: "web-0", cordoned });
    expect(out).toMatch(/^shop +web-0 +- +refused +waits/m);
    expect(code).toBe(expected);
  });

  test.each([
    ["quota", 2],
    ["no quota", 4],
  ])("where nobody is asked, all pods of the node go, with %s to spare", async (_, minAvailable) => {
    const pods = [running, pod("web-1", "Running", "ReplicaSet"), pod("web-2", "Running", "ReplicaSet")];
    const { code, out } = await drainCheck(pods, ["web-2"], [protector(minAvailable)]);
    expect(out).toMatch(/^UNPROTECTED: the webhook is not called before pods of namespace shop go/);
    expect(out).toMatch(/^shop +web-0 +deployment-web +admitted +goes +the webhook is not called$/m);
    expect(out).toContain("2 pods can go at once, 0 wait");
    expect(out).toContain("1 could not be checked");
    expect(code).toBe(1);
  });

  test("where the webhook only warns, all pods of the node go", async () => {
    const pods = [running, pod("web-1", "Running", "ReplicaSet")];
    const { code, out } = await run(["drain-check", "n"], pods, [], [protector(4)], ["dry run: web-0 may not go"]);
    expect(out).toMatch(/^UNPROTECTED: the webhook only warns before pods of namespace shop go/);
    expect(out).toMatch(/^shop +web-1 +deployment-web +admitted +goes +the webhook only warns$/m);
    expect(code).toBe(1);
  });

  test.each([
    ["quota", 2, []],
    ["no quota", 4, []],
    ["quota", 2, ["--cell", "a"]],
    ["no quota", 4, ["--cell", "a"]],
  ])("why says that nobody is asked, with %s to spare: %s %j", async (_, minAvailable, flags) => {
    const command = ["why", "web-0", "-n", "shop", ...flags];
    const { code, out } = await run(command, [running], [], [protector(minAvailable)]);
    expect(out).toMatch(/^UNPROTECTED: c does not call the webhook before pods of namespace shop are deleted/);
    expect(code).toBe(1);
  });

  test("why of a pod that no protector covers says nothing of it", async () => {
    const { code, out } = await run(["why", "web-0", "-n", "shop"], [running]);
    expect(out).toContain("No protector covers this pod.");
    expect(out).not.toContain("UNPROTECTED");
    expect(code).toBe(0);
  });
});
