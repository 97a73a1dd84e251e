/** Another admission webhook beside podseidon's: it refuses, or takes its time, as a test tells it. */
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:https";
import { join } from "node:path";
import { field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { servingFiles } from "../../../scripts/environment/component.ts";

const NAME = "other-webhook";
const PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/** What is reviewed: `namespace/name` of the pod, from `oldObject` or from the request. */
export type OtherOpinion = (pod: string) => boolean | Promise<boolean>;

export class OtherWebhook {
  readonly #server: Server;
  readonly #caPem: string;
  /** May be replaced while it serves. */
  opinion: OtherOpinion = () => true;
  /** Reviews that it was asked. */
  reviews = 0;

  private constructor(server: Server, caPem: string) {
    this.#server = server;
    this.#caPem = caPem;
    server.on("request", (incoming, outgoing) => {
      let body = "";
      incoming.on("data", (chunk: Buffer) => {
        body += chunk.toString();
      });
      incoming.on("end", () => {
        void this.#answer(field(JSON.parse(body), "request")).then((answer) => {
          outgoing.setHeader("content-type", "application/json");
          outgoing.end(answer);
        });
      });
    });
  }

  static async start(authority: Cluster): Promise<OtherWebhook> {
    const files = await servingFiles(authority, join(authority.directory, NAME), ["localhost"], ["127.0.0.1"]);
    const server = createServer({ cert: readFileSync(files.certFile), key: readFileSync(files.keyFile) });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new OtherWebhook(server, files.caPem);
  }

  /** Deletions and evictions of pods in `cell` are reviewed by it, too; changes only where `more` says so. */
  async register(cell: Cluster, name = NAME, more: readonly unknown[] = []): Promise<void> {
    const address = this.#server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const rule = { apiGroups: [""], apiVersions: ["v1"] };
    await cell.apply([
      {
        apiVersion: "admissionregistration.k8s.io/v1",
        kind: "ValidatingWebhookConfiguration",
        metadata: { name },
        webhooks: [
          {
            ...{
              name: "other.example.com",
              admissionReviewVersions: ["v1"],
              sideEffects: "None",
              failurePolicy: "Ignore",
              timeoutSeconds: 30,
            },
            clientConfig: { url: `https://127.0.0.1:${port}/`, caBundle: Buffer.from(this.#caPem).toString("base64") },
            rules: [
              { ...rule, operations: ["DELETE"], resources: ["pods"] },
              { ...rule, operations: ["CREATE"], resources: ["pods/eviction"] },
              ...more,
            ],
          },
        ],
      },
    ]);
  }

  async unregister(cell: Cluster): Promise<void> {
    await cell.admin.call("DELETE", `${PATH}/${NAME}`);
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  async #answer(request: unknown): Promise<string> {
    this.reviews += 1;
    const name = field(request, "oldObject", "metadata", "name") ?? field(request, "name");
    const allowed = await this.opinion(`${String(field(request, "namespace"))}/${String(name)}`);
    const refusal = allowed ? {} : { status: { code: 403, message: "refused by another webhook" } };
    const response = { uid: field(request, "uid"), allowed, ...refusal };
    return JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response });
  }
}
