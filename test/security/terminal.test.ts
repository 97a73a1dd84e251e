/** What a tenant's text can do to an operator's terminal: the plugin as it ships, beside a small apiserver. */

import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { BUNDLES } from "../../scripts/environment/component.ts";

const HOSTILE = "\u001b]0;owned\u0007\u001b[2J\u009b31m\r\u202e\nNAMESPACE   forged";
const VERSION = "podseidon.kubewharf.io/v1alpha1";

const protector = {
  apiVersion: VERSION,
  kind: "PodProtector",
  metadata: { namespace: "default", name: "web", uid: "1", resourceVersion: "1" },
  spec: {
    minAvailable: 1,
    minReadySeconds: 0,
    selector: { matchLabels: { app: "web" } },
    suspend: { enabled: true, reason: HOSTILE },
  },
  status: {
    cells: [],
    summary: { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0, maxLatencyMillis: 0 },
    conditions: [
      { type: "Healthy", status: "False", reason: "X", message: HOSTILE, lastTransitionTime: "2026-01-01T00:00:00Z" },
    ],
  },
};

it("control characters are shown escaped, on every line", async () => {
  const server = createServer(({ url = "" }, response) => {
    const { pathname } = new URL(url, "http://x");
    response.setHeader("content-type", "application/json");
    if (pathname.endsWith("/podprotectors/web")) response.end(JSON.stringify(protector));
    else if (pathname.endsWith("/podprotectors"))
      response.end(JSON.stringify({ kind: "List", metadata: { resourceVersion: "1" }, items: [protector] }));
    else response.writeHead(403).end(JSON.stringify({ kind: "Status", code: 403, message: HOSTILE }));
  });
  const folder = mkdtempSync(join(tmpdir(), "podseidon-terminal-"));
  try {
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const kubeconfig = join(folder, "kubeconfig");
    const contexts = [{ name: "x", context: { cluster: "x", user: "x" } }];
    const clusters = [{ name: "x", cluster: { server: `http://127.0.0.1:${port}` } }];
    const users = [{ name: "x", user: {} }];
    writeFileSync(kubeconfig, JSON.stringify({ "current-context": "x", contexts, clusters, users }));
    const plugin = join(BUNDLES, "kubectl-podseidon.mjs");
    const printed = async (...args: string[]): Promise<string> => {
      const command = [plugin, ...args, "--kubeconfig", kubeconfig];
      const run = promisify(execFile)(process.execPath, command).catch(
        (error: { stdout: string; stderr: string }) => error,
      );
      const { stdout, stderr } = await run;
      return stdout + stderr;
    };
    const texts = [await printed("status"), await printed("status", "web"), await printed("why", "some-pod")];
    for (const text of texts) expect(text).not.toMatch(/[^\P{Cc}\n]|[\u202e]|^NAMESPACE {3}forged/mu);
    expect(texts[1]).toContain("\\u001b[2J");
  } finally {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
    rmSync(folder, { recursive: true, force: true });
  }
});
