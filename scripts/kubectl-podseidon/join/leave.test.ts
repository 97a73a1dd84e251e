/** `leave`: what it deletes, and that a dry run deletes nothing. */
import { expect, test } from "vitest";
import { systemPorts } from "../../../shared/runtime/system-ports.ts";
import { listeningApiserver } from "../../../test/support/kube/listening-apiserver.ts";
import { runCommandLine } from "../cli.ts";
import { kubeconfigText } from "./cell-objects.ts";

const SECRETS = "/api/v1/namespaces/podseidon-system/secrets";

/** The aggregator's kubeconfig is of the cell `held`, the webhook's is not there; `has`: whether deletions find it. */
async function leave(held: string, has: boolean, ...flags: readonly string[]) {
  const secret = "podseidon-core-aggregator";
  const address = { server: "https://core", ca: undefined, serverName: undefined };
  const text = kubeconfigText(address, "u", "t", { cell: held, namespace: "podseidon-system", secret });
  const metadata = { name: secret, uid: "s", resourceVersion: "1" };
  const object = { metadata, data: { kubeconfig: Buffer.from(text).toString("base64") } };
  const deleted: string[] = [];
  const { kubeconfig, close } = await listeningApiserver((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (part: string) => {
      body += part;
    });
    request.on("end", () => {
      const path = request.url ?? "";
      const name = path.split("/").at(-1) ?? "";
      if (request.method === "DELETE") deleted.push(`${JSON.parse(body).dryRun === undefined ? "" : "dry "}${name}`);
      const found = request.method === "DELETE" ? has : path.startsWith(`${SECRETS}/${secret}`);
      response
        .writeHead(found ? 200 : 404)
        .end(JSON.stringify(found ? object : { kind: "Status", reason: "NotFound", details: { name } }));
    });
  });
  let out = "";
  const say = (part: string): void => {
    out += part;
  };
  const code = await runCommandLine(
    ["leave", "worker-1", "--core-context", "c", "--kubeconfig", kubeconfig, ...flags],
    { terminal: { out: say, err: say, interactive: false }, ports: systemPorts, environment: {} },
  );
  close();
  return { code, out, deleted };
}

test("without --yes, nothing is deleted", async () => {
  const { code, out, deleted } = await leave("worker-1", true);
  expect(deleted.length).toBeGreaterThan(5);
  expect(deleted.every((one) => one.startsWith("dry "))).toBe(true);
  expect(out).toContain("Nothing was changed");
  expect(code).toBe(1);
});

test("the core comes first, and the cluster's kubeconfigs go", async () => {
  const { code, deleted } = await leave("worker-1", true, "--yes");
  expect(deleted[0]).toBe("podseidon-cell.worker-1");
  expect(deleted.slice(-2)).toEqual(["podseidon-core-webhook", "podseidon-core-aggregator"]);
  expect(deleted.filter((one) => one.startsWith("dry "))).toEqual([]);
  expect(code).toBe(0);
});

test("a kubeconfig of another cell stays", async () => {
  const { out, deleted } = await leave("worker-2", true, "--yes");
  expect(deleted).not.toContain("podseidon-core-aggregator");
  expect(out).toMatch(/podseidon-core-aggregator +kept: it is of worker-2/);
});

test("where nothing was there but another cell's kubeconfig, no cluster has joined", async () => {
  const { code, out } = await leave("worker-2", false, "--yes");
  expect(out).toContain("no cluster has joined c as worker-1");
  expect(code).not.toBe(0);
});
