/** Another admission webhook beside podseidon's. A test decides what it denies and how long it takes. */
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:https";
import type { Socket } from "node:net";
import { join } from "node:path";
import { field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { servingFiles } from "../../../scripts/environment/component.ts";

const NAME = "other-webhook";
const PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/** Decides on `namespace/name` of a pod, from `oldObject` or from the request. */
type OtherOpinion = (pod: string) => boolean | Promise<boolean>;

export class OtherWebhook implements AsyncDisposable {
  readonly #server: Server;
  readonly #caPem: string;
  readonly #sockets = new Set<Socket>();
  /** May be replaced at any time. */
  opinion: OtherOpinion = () => true;
  /** Number of admission requests so far. */
  requests = 0;
  /** The raw response to the next request, after which its connection ends. */
  lastWords: string | undefined;

  private constructor(server: Server, caPem: string) {
    this.#server = server;
    this.#caPem = caPem;
    server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    server.on("request", (incoming, outgoing) => {
      let body = "";
      incoming.on("data", (chunk: Buffer) => {
        body += chunk.toString();
      });
      incoming.on("end", () => {
        const { lastWords } = this;
        this.lastWords = undefined;
        if (lastWords !== undefined) {
          this.requests += 1;
          incoming.socket.end(lastWords);
          return;
        }
        void this.#decide(field(JSON.parse(body), "request")).then((response) => {
          outgoing.setHeader("content-type", "application/json");
          outgoing.end(response);
        });
      });
    });
  }

  static async start(authority: Cluster): Promise<OtherWebhook> {
    const files = await servingFiles(authority, join(authority.directory, NAME));
    const server = createServer({ cert: readFileSync(files.certFile), key: readFileSync(files.keyFile) });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new OtherWebhook(server, files.caPem);
  }

  /** Adds a webhook configuration for deletions and evictions of pods in `cell`, and for the rules of `more`. */
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

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async stop(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    // closeAllConnections leaves out those without a TLS handshake yet, and kube-apiserver keeps an idle one for 90 s.
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async #decide(request: unknown): Promise<string> {
    this.requests += 1;
    const name = field(request, "oldObject", "metadata", "name") ?? field(request, "name");
    const allowed = await this.opinion(`${String(field(request, "namespace"))}/${String(name)}`);
    const denial = allowed ? {} : { status: { code: 403, message: "refused by another webhook" } };
    const response = { uid: field(request, "uid"), allowed, ...denial };
    return JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response });
  }
}
