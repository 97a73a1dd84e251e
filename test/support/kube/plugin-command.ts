/** Runs a command of the kubectl plugin against an apiserver that has some objects. */
import type { RequestListener } from "node:http";
import { runCommandLine } from "../../../scripts/kubectl-podseidon/cli.ts";
import { systemPorts } from "../../../shared/runtime/system-ports.ts";
import { listeningApiserver } from "./listening-apiserver.ts";

const KUBECONFIG = { namespace: "shop", context: "c", aheadMs: 0 };
/** Of the kubeconfig; and by how much the apiserver's clock is ahead of this machine's. A test may change it. */
export const given = { ...KUBECONFIG };
const cleanups: (() => void)[] = [];

/** For `afterEach` of a file that calls {@link against}: files of one process share this module. */
export function cleanUp(): void {
  Object.assign(given, KUBECONFIG);
  for (const clean of cleanups.splice(0).reverse()) clean();
}

/** In place of an object that the user may not read or change. */
export const FORBIDDEN = { kind: "Status", reason: "Forbidden", message: "it is forbidden" };
/** In place of an object that has changed since it was read. */
export const CONFLICT = { kind: "Status", reason: "Conflict", message: "it has changed" };

/** Runs a command against an apiserver that has these objects; returns what it said, and which writes it made. */
export async function against(objects: Readonly<Record<string, unknown>>, ...args: string[]) {
  const writes: string[] = [];
  const bodies: string[] = [];
  const patches: unknown[] = [];
  const answer: RequestListener = (request, response) => {
    const path = (request.url ?? "").replace(/\?.*$/, "");
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => {
      body += text;
    });
    request.on("end", () => {
      if (request.method !== "GET")
        writes.push(`${request.method} ${request.url?.includes("dryRun=All") ? "dry " : ""}${path}`);
      if (path.endsWith("/podseidon-cells")) bodies.push(body);
      if (request.method === "PATCH") patches.push(JSON.parse(body));
    });
    const found = objects[path];
    response.writeHead(found === undefined ? 404 : found === FORBIDDEN ? 403 : found === CONFLICT ? 409 : 200, {
      "content-type": "application/json",
      date: new Date(Date.now() + given.aheadMs).toUTCString(),
    });
    response.end(JSON.stringify(found ?? { kind: "Status", reason: "NotFound", details: { name: "x" } }));
  };
  const { kubeconfig, close } = await listeningApiserver(answer, given.namespace, given.context);
  cleanups.push(close);
  let said = "";
  const terminal = {
    out: (text: string) => {
      said += text;
    },
    err: (text: string) => {
      said += text;
    },
    interactive: false,
  };
  const surroundings = { terminal, ports: systemPorts, environment: {} };
  const code = await runCommandLine([...args, "--kubeconfig", kubeconfig], surroundings);
  return { code, said, writes, patches, bodies: bodies.filter((body) => body !== "") };
}
