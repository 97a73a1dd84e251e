import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { type Transport, TransportError } from "../../../shared/kube/client/transport.ts";
import { systemPorts } from "../../../shared/runtime/system-ports.ts";
import { ClusterClient, connect } from "./cluster.ts";

const MACHINE_MS = Date.parse("2026-01-01T00:00:00Z");

/** The client of a cluster that answers like this. */
function clientOf(request: Transport["request"]): ClusterClient {
  const stream: Transport["stream"] = () => Promise.reject(new Error("unused"));
  const access = { server: "https://api", namespace: undefined, credentials: undefined };
  const transport = { request, stream, close: () => undefined };
  return new ClusterClient("core", access as never, transport, { nowMs: () => MACHINE_MS });
}

test("a page is trimmed before the next one is read, so that 50,000 pods are never held as they came", async () => {
  const steps: string[] = [];
  const client = clientOf(async ({ path }) => {
    const from = Number(new URLSearchParams(path.split("?")[1]).get("continue") ?? 0);
    steps.push(`page ${from}`);
    const metadata = { resourceVersion: "1", ...(from < 2 ? { continue: String(from + 1) } : {}) };
    return { status: 200, headers: {}, body: JSON.stringify({ metadata, items: [{ large: "x", name: from }] }) };
  });
  const nameOf = (raw: unknown): unknown => {
    const { name } = raw as { name: number };
    steps.push(`pod ${name}`);
    return name;
  };
  expect(await client.list("/api/v1/pods", {}, nameOf)).toEqual([0, 1, 2]);
  expect(steps).toEqual(["page 0", "pod 0", "page 1", "pod 1", "page 2", "pod 2"]);
});

test("a list with more objects than a command reads fails: its beginning is no answer", async () => {
  const items = Array.from({ length: 100_000 }, () => 0);
  const body = JSON.stringify({ metadata: { resourceVersion: "1", continue: "again" }, items });
  const client = clientOf(async () => ({ status: 200, headers: {}, body }));
  await expect(client.list("/api/v1/pods")).rejects.toThrow("core: GET /api/v1/pods: there are more than 200000");
});

test("a list of objects too large for one response is read in small pages, from where it stood", async () => {
  const asked: string[] = [];
  const client = clientOf(async ({ path }) => {
    const query = new URLSearchParams(path.split("?")[1]);
    const [from, limit] = [Number(query.get("continue") ?? 0), Number(query.get("limit"))];
    asked.push(`${from}+${limit}`);
    if (from === 500 && limit > 6) throw new TransportError("oversized", true, "too large");
    const end = Math.min(from + limit, 509);
    const metadata = { resourceVersion: "1", ...(end < 509 ? { continue: String(end) } : {}) };
    const items = Array.from({ length: end - from }, (_, index) => from + index);
    return { status: 200, headers: {}, body: JSON.stringify({ metadata, items }) };
  });
  expect(await client.list("/api/v1/pods")).toHaveLength(509);
  expect(asked).toEqual(["0+500", "500+500", "500+6", "506+6"]);
});

test("at a terminal a login by a credential plugin is over before the first call, which has a deadline", async () => {
  const directory = mkdtempSync(join(tmpdir(), "login-"));
  const { isTTY } = process.stdin;
  process.stdin.isTTY = true;
  onTestFinished(() => {
    process.stdin.isTTY = isTTY;
    rmSync(directory, { recursive: true });
  });
  const credential = { status: { token: "t" } };
  const script = `fs.writeFileSync("${directory}/done", ""); console.log('${JSON.stringify(credential)}')`;
  const exec = { apiVersion: "client.authentication.k8s.io/v1", command: process.execPath, args: ["-e", script] };
  const text = JSON.stringify({
    contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
    clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:1" } }],
    users: [{ name: "u", user: { exec } }],
  });
  const config = { path: join(directory, "config"), text, contexts: ["c"], currentContext: "c" };
  const place = { cluster: undefined, user: undefined };
  const client = await connect(config, "c", systemPorts, {}, { as: undefined, place, timeoutMs: undefined });
  client.close();
  expect(existsSync(join(directory, "done"))).toBe(true);
});

test("times are by the clock of the apiserver that answered last, where it is far from the machine's", async () => {
  const dates = ["Thu, 01 Jan 2026 02:00:00 GMT", "Thu, 01 Jan 2026 00:00:04 GMT", undefined];
  const client = clientOf(async () => {
    const date = dates.shift();
    return { status: 200, headers: date === undefined ? {} : { date }, body: "{}" };
  });
  const seen = [client.nowMs()];
  for (const _ of [...dates]) {
    await client.raw("GET", "/version");
    seen.push(client.nowMs());
  }
  expect(seen.map((ms) => ms - MACHINE_MS)).toEqual([0, 7_200_000, 0, 0]);
});
