/** The webhook as it ships, beside a small apiserver with one protector that selects nothing that the attacks name. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { Agent, request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { reservePort } from "../../scripts/control-plane/ports.ts";
import { Component } from "../../scripts/environment/component.ts";
import { createCertificateAuthority, issueCertificate } from "../../shared/certificates/x509.ts";

const ADDRESS = "127.0.0.1";
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";

interface Answer {
  readonly status: number;
  readonly text: string;
}

export interface ShippedWebhook extends AsyncDisposable {
  readonly webhook: Component;
  /** The paths and the bytes of what the webhook has written or asked by POST. */
  readonly posts: { readonly path: string; readonly bytes: number }[];
  readonly send: (body: string | Buffer, path?: string) => Promise<Answer>;
}

export async function startShippedWebhook(args: readonly string[] = []): Promise<ShippedWebhook> {
  const folder = mkdtempSync(join(tmpdir(), "podseidon-security-"));
  const posts: ShippedWebhook["posts"] = [];
  const server = createServer((incoming, outgoing) => {
    let bytes = 0;
    incoming.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
    });
    incoming.on("end", () => {
      const { pathname, searchParams } = new URL(incoming.url ?? "/", "http://x");
      const isKnown = pathname === PROTECTORS || incoming.method === "POST";
      outgoing.writeHead(isKnown ? 200 : 404, { "content-type": "application/json" });
      if (incoming.method === "POST") posts.push({ path: pathname, bytes });
      // A watch without events.
      if (pathname === PROTECTORS && searchParams.get("watch") !== null) outgoing.flushHeaders();
      else outgoing.end(JSON.stringify({ kind: "List", metadata: { resourceVersion: "1" }, items: [], status: {} }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, ADDRESS, resolve));
  const address = server.address();
  const url = `http://${ADDRESS}:${typeof address === "object" && address !== null ? address.port : 0}`;
  const path = (name: string): string => join(folder, name);
  const kubeconfig = {
    "current-context": "x",
    contexts: [{ name: "x", context: { cluster: "x", user: "x" } }],
    clusters: [{ name: "x", cluster: { server: url } }],
    users: [{ name: "x", user: { token: "t" } }],
  };
  writeFileSync(path("kubeconfig"), JSON.stringify(kubeconfig));
  const validity = { notBeforeMs: Date.now() - 3_600_000, notAfterMs: Date.now() + 24 * 3_600_000 };
  const authority = await createCertificateAuthority({ commonName: "security", ...validity });

  const serving = await issueCertificate(authority, {
    commonName: "w",
    ipAddresses: [ADDRESS],
    usages: ["server"],
    ...validity,
  });
  writeFileSync(path("tls.crt"), serving.certificatePem);
  writeFileSync(path("tls.key"), serving.privateKeyPem);
  const port = await reservePort(ADDRESS);
  const webhook = await Component.start({
    kind: "webhook",
    name: "webhook",
    directory: folder,
    environment: { MALLOC_ARENA_MAX: "1" },
    args: [
      ...["--core", `core=${path("kubeconfig")}`, "--cell", `cell=${path("kubeconfig")}`, "--outlive=false"],
      ...["--tls-cert-file", path("tls.crt"), "--tls-private-key-file", path("tls.key")],
      ...["--bind-address", ADDRESS, "--secure-port", String(port), ...args],
    ],
  });
  const agent = new Agent({ keepAlive: true, ca: authority.certificatePem });
  return {
    webhook,
    posts,
    send: (body, to = "/webhook/cell?timeout=10s") =>
      new Promise((resolve, reject) => {
        const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
        const options = { host: ADDRESS, port, path: to, method: "POST", headers, agent };
        const call = request(options, (response) => {
          let text = "";
          response.setEncoding("utf8").on("data", (part: string) => {
            text += part;
          });
          response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
        });
        // A body that is refused before it has ended meets a closed connection, perhaps before its response.
        call.on("error", (error) =>
          "code" in error ? resolve({ status: 0, text: String(error.code) }) : reject(error),
        );
        call.end(body);
      }),
    [Symbol.asyncDispose]: async () => {
      agent.destroy();
      await webhook.stop();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A DELETE review of an unprotected pod. */
export function deletion(pod: object = {}, request: object = {}): string {
  const { metadata, ...rest } = { metadata: {}, ...pod };
  return JSON.stringify({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: {
      uid: "1",
      operation: "DELETE",
      kind: { group: "", version: "v1", kind: "Pod" },
      resource: { group: "", version: "v1", resource: "pods" },
      namespace: "default",
      name: "web",
      userInfo: { username: "someone" },
      oldObject: {
        metadata: { name: "web", namespace: "default", uid: "1", resourceVersion: "1", ...metadata },
        ...rest,
      },
      ...request,
    },
  });
}
