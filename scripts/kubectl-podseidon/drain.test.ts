/** `drain-check`, also of a cluster that has no webhook configuration. */
import { describe, expect, test } from "vitest";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { makeCell, makePod, makeProtector, NOW_MS } from "../../test/support/decide/fixtures.ts";
import { listeningApiserver } from "../../test/support/kube/listening-apiserver.ts";
import { runCommandLine } from "./cli.ts";
import { drainText, isUnprotected, planDrain } from "./drain.ts";
import type { DryRunResult } from "./question.ts";

const admitted: DryRunResult = {
  ...{ verdict: "admitted", message: "", retryAfterSeconds: undefined, causes: [], warnings: [] },
};
const pods = ["web-0", "web-1", "web-2"].map((name) => ({ pod: makePod(name), answer: admitted }));
const covered = planDrain(pods, [makeProtector([makeCell("a", 3)])], "a", NOW_MS);
const uncovered = planDrain(pods, [], "a", NOW_MS);

const answering = (message: string) => ({
  raw: async () => ({ status: 404, headers: {}, body: JSON.stringify({ message }) }),
});
const nobody = answering('pods "x" not found');
const webhook = answering('admission webhook "bind.podseidon.kubewharf.io" denied the request: pods "x" not found');

test.each<[string, typeof nobody, unknown, typeof covered, boolean]>([
  ["no webhook configuration", nobody, "none", covered, true],
  ["none, and no protector that covers a pod", nobody, "none", uncovered, false],
  ["none, and a webhook of the admission configuration", webhook, "none", covered, false],
  ["one that may not be read", nobody, undefined, covered, false],
  ["one", nobody, { webhooks: [] }, covered, false],
])(
  "a drain is not held up by a promise that nobody asks about: %s",
  async (_, cluster, configuration, lines, expected) => {
    expect(await isUnprotected(cluster, configuration, lines)).toBe(expected);
    const text = drainText("node-1", lines, 0, false, expected);
    expect(text.startsWith("UNPROTECTED: ")).toBe(expected);
  },
);

describe("the command", () => {
  const list = (...items: unknown[]): unknown => ({ metadata: { resourceVersion: "1" }, items });
  const pod = (name: string, phase: string, kind: string): unknown => ({
    metadata: {
      name,
      namespace: "shop",
      uid: name,
      resourceVersion: "1",
      ownerReferences: [{ kind, controller: true }],
    },
    spec: { nodeName: "n", containers: [{ name: "a" }] },
    status: { phase },
  });

  /** Evictions of the pods in `forbidden` are. */
  async function drainCheck(pods: readonly unknown[], forbidden: readonly string[] = []) {
    const objects: Readonly<Record<string, unknown>> = {
      "/api/v1/nodes/n": { metadata: { name: "n" } },
      "/api/v1/nodes": list({ metadata: { name: "n" } }, { metadata: { name: "m" } }),
      "/api/v1/pods": list(...pods),
      "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": list(),
    };
    const { kubeconfig, close } = await listeningApiserver(({ url = "", method }, response) => {
      const [path = ""] = url.split("?");
      const name = /\/pods\/([^/]+)\/eviction$/.exec(path)?.[1];
      const found = method === "GET" ? objects[path] : {};
      const status = forbidden.includes(name ?? "") ? 403 : found === undefined ? 404 : 200;
      const body = status === 200 ? found : { kind: "Status", message: `HTTP ${status}`, details: { name: "x" } };
      response.writeHead(status).end(JSON.stringify(body));
    });
    let out = "";
    const say = (text: string): void => {
      out += text;
    };
    const code = await runCommandLine(["drain-check", "n", "--kubeconfig", kubeconfig], {
      ...{ terminal: { out: say, err: say, interactive: false }, ports: systemPorts, environment: {} },
    });
    close();
    return { code, out };
  }

  const running = pod("web-0", "Running", "ReplicaSet");

  test("a finished pod goes, as kubectl drain evicts it; one of a DaemonSet stays", async () => {
    const { code, out } = await drainCheck([
      running,
      pod("job-0", "Succeeded", "Job"),
      pod("ds", "Running", "DaemonSet"),
    ]);
    expect(out).toMatch(/^shop +job-0 +- +admitted +goes/m);
    expect(out).toContain("2 pods can go at once");
    expect(out).toContain("1 stay (DaemonSets or static pods)");
    expect(code).toBe(0);
  });

  test("ends with exit code 2 where nothing is in the way, and something could not be told", async () => {
    const { code, out } = await drainCheck([running, pod("web-1", "Running", "ReplicaSet")], ["web-1"]);
    expect(out).toContain("1 could not be told");
    expect(code).toBe(2);
  });
});
