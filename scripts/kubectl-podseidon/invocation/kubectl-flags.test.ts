import { readFileSync, writeFileSync } from "node:fs";
import type { IncomingHttpHeaders, RequestListener } from "node:http";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { systemPorts } from "../../../shared/runtime/system-ports.ts";
import { type ListeningApiserver, listeningApiserver } from "../../../test/support/kube/listening-apiserver.ts";
import { runCommandLine } from "../cli.ts";
import { withPlace } from "./kubectl-flags.ts";

describe("the flags of kubectl", () => {
  let apiserver: ListeningApiserver;
  let asked: IncomingHttpHeaders[] = [];
  let isSilent = false;
  const empty: RequestListener = ({ headers }, response) => {
    asked.push(headers);
    if (!isSilent) response.end(JSON.stringify({ metadata: { resourceVersion: "1" }, items: [] }));
  };

  beforeAll(async () => {
    apiserver = await listeningApiserver(empty);
  });
  beforeEach(() => {
    [asked, isSilent] = [[], false];
  });
  afterAll(() => apiserver.close());

  async function status(...args: readonly string[]): Promise<{ code: number; err: string }> {
    let err = "";
    const terminal = {
      out: () => {},
      err: (text: string) => {
        err += text;
      },
      interactive: false,
    };
    const all = ["status", "-A", "--kubeconfig", apiserver.kubeconfig, ...args];
    const code = await runCommandLine(all, { terminal, ports: systemPorts, environment: {} });
    return { code, err };
  }

  test("--as, --as-uid and --as-group are headers of each request", async () => {
    const flags = ["--as", "alice", "--as-uid=u1", "--as-group", "a", "--as-group=b"];
    expect(await status(...flags)).toEqual({ code: 0, err: "" });
    expect(asked).toHaveLength(2);
    for (const headers of asked)
      expect(headers).toMatchObject({
        "impersonate-user": "alice",
        "impersonate-uid": "u1",
        "impersonate-group": "a, b",
      });
  });

  test("the flags are sent to a named core, too, and without them nothing is", async () => {
    await status("--core-context", "c", "--as", "alice");
    expect(asked.map((headers) => headers["impersonate-user"])).toEqual(["alice", "alice"]);
    await status();
    expect(asked.at(-1)).not.toHaveProperty("impersonate-user");
  });

  test.each<[string[], string]>([
    [["--as-group", "g"], "need --as"],
    [["--as-uid", "u"], "need --as"],
    [["--user", "nobody"], 'the user "nobody"'],
    [["--cluster", "nowhere"], 'the cluster "nowhere"'],
    [["--request-timeout", "soon"], "--request-timeout soon: write it as 90s or 2m"],
  ])("%j is refused before anything is asked", async (flags, text) => {
    const { code, err } = await status(...flags);
    expect([code, asked.length]).toEqual([2, 0]);
    expect(err).toContain(text);
  });

  test.each(["1", "1s"])("--request-timeout %s ends a request that gets no answer", async (time) => {
    isSilent = true;
    const { code, err } = await status("--request-timeout", time);
    expect(code).toBe(2);
    expect(err).toMatch(/^error: c \(http:\S+\) gives no answer: [^\n]+\n$/m);
  });

  test("--user and --cluster replace those of the context of the pods, and no other's", () => {
    const config = {
      contexts: [
        { name: "core", context: { cluster: "c", user: "u", namespace: "n" } },
        { name: "cell", context: { cluster: "c", user: "u", namespace: "n" } },
      ],
    };
    const placed = JSON.parse(withPlace(JSON.stringify(config), "cell", { cluster: undefined, user: "admin" }));
    expect(placed.contexts).toEqual([
      config.contexts[0],
      { name: "cell", context: { cluster: "c", user: "admin", namespace: "n" } },
    ]);
  });

  test("a file that impersonates is overruled as a whole", async () => {
    const own = readFileSync(apiserver.kubeconfig, "utf8");
    const user = { as: "bob", "as-groups": ["system:masters"] };
    writeFileSync(apiserver.kubeconfig, JSON.stringify({ ...JSON.parse(own), users: [{ name: "u", user }] }));
    await status("--as", "alice");
    expect(asked[0]).toMatchObject({ "impersonate-user": "alice" });
    expect(asked[0]).not.toHaveProperty("impersonate-group");
    writeFileSync(apiserver.kubeconfig, own);
  });
});
