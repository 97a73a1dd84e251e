/** Another admission webhook, which refuses a share of the pod deletions that podseidon has allowed. */
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:https";
import { join } from "node:path";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";
import { servingFiles } from "../../scripts/product/component.ts";

const NAME = "rejecting-webhook";
const PATH = `/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations`;

export class RejectingWebhook {
  readonly #server: Server;
  readonly #caPem: string;
  #rejected = 0;

  private constructor(server: Server, caPem: string) {
    this.#server = server;
    this.#caPem = caPem;
  }

  /** Rejects every n-th review, n being 1 / `share`. */
  static async start(authority: Cluster, share: number): Promise<RejectingWebhook> {
    const files = servingFiles(authority, join(authority.directory, NAME), ["localhost"], ["127.0.0.1"]);
    const server = createServer({ cert: readFileSync(files.certFile), key: readFileSync(files.keyFile) });
    const webhook = new RejectingWebhook(server, files.caPem);
    const every = Math.round(1 / share);
    let reviews = 0;
    server.on("request", (incoming, outgoing) => {
      let body = "";
      incoming.on("data", (chunk: Buffer) => {
        body += chunk.toString();
      });
      incoming.on("end", () => {
        const uid: unknown = Reflect.get(Object(Reflect.get(Object(JSON.parse(body)), "request")), "uid");
        reviews += 1;
        const allowed = reviews % every !== 0;
        if (!allowed) webhook.#rejected += 1;
        const response = {
          uid,
          allowed,
          ...(allowed ? {} : { status: { code: 403, message: "refused by another webhook" } }),
        };
        outgoing.setHeader("content-type", "application/json");
        outgoing.end(JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response }));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return webhook;
  }

  get rejected(): number {
    return this.#rejected;
  }

  async register(cell: Cluster): Promise<void> {
    const address = this.#server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    await cell.admin.call("POST", PATH, {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: NAME },
      webhooks: [
        {
          ...{
            name: "rejecting.example.com",
            admissionReviewVersions: ["v1"],
            sideEffects: "None",
            failurePolicy: "Ignore",
            timeoutSeconds: 5,
          },
          clientConfig: { url: `https://127.0.0.1:${port}/`, caBundle: Buffer.from(this.#caPem).toString("base64") },
          rules: [{ apiGroups: [""], apiVersions: ["v1"], operations: ["DELETE"], resources: ["pods"] }],
        },
      ],
    });
  }

  async unregister(cell: Cluster): Promise<void> {
    await cell.admin.call("DELETE", `${PATH}/${NAME}`);
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}
