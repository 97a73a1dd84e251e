/** What Flux applies from: revisions that a test publishes instead of a source-controller, and their Kustomization. */
import { createServer, type Server } from "node:http";
import { items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { gzip, sha256, tar } from "../../../scripts/release/archive.ts";
import { valueAt as field } from "../../../shared/schema/check.ts";

const ADDRESS = "127.0.0.1";
const GROUP = "source.toolkit.fluxcd.io";
const NAMESPACE = "default";
const NAME = "flux";
export const KUSTOMIZATION = `/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/${NAMESPACE}/kustomizations/${NAME}`;
const SOURCE = `/apis/${GROUP}/v1/namespaces/${NAMESPACE}/gitrepositories/${NAME}`;
const WAIT_MS = 5 * 60_000;

/** The CRDs of sources are in the module of source-controller, which does not run here. */
export const SOURCE_DEFINITIONS = ["GitRepository", "OCIRepository", "Bucket"].map((kind) => {
  const singular = kind.toLowerCase();
  const plural = singular.replace(/y?$/, (end) => (end === "y" ? "ies" : "s"));
  const schema = { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } };
  return JSON.stringify({
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${plural}.${GROUP}` },
    spec: {
      ...{ group: GROUP, scope: "Namespaced", names: { kind, singular, plural } },
      versions: [{ name: "v1", served: true, storage: true, schema }],
    },
  });
});

/** What the condition Ready of the Kustomization says. */
interface Reconciled {
  readonly status: unknown;
  readonly reason: unknown;
  readonly message: string;
}

export class FluxSource implements AsyncDisposable {
  readonly #cluster: Cluster;
  readonly #server: Server;
  readonly #archives = new Map<string, Buffer>();
  #revision = 0;
  #requests = 0;

  private constructor(cluster: Cluster) {
    this.#cluster = cluster;
    this.#server = createServer(({ url = "" }, response) => {
      const archive = this.#archives.get(url);
      response.writeHead(archive === undefined ? 404 : 200).end(archive);
    });
  }

  /** With a Kustomization that prunes and waits for health, of nothing yet. */
  static async start(cluster: Cluster): Promise<FluxSource> {
    const source = new FluxSource(cluster);
    await new Promise<void>((resolve) => source.#server.listen(0, ADDRESS, resolve));
    const sourceRef = { kind: "GitRepository", name: NAME };
    await cluster.apply([
      { apiVersion: `${GROUP}/v1`, kind: "GitRepository", metadata: { name: NAME, namespace: NAMESPACE } },
      {
        apiVersion: "kustomize.toolkit.fluxcd.io/v1",
        kind: "Kustomization",
        metadata: { name: NAME, namespace: NAMESPACE },
        spec: { interval: "1h", prune: true, wait: true, timeout: "3m", sourceRef },
      },
    ]);
    return source;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** As a commit with these objects and no others. Resolves when Flux has tried to apply it. */
  async publish(objects: readonly unknown[]): Promise<Reconciled> {
    const revision = `main@sha1:${sha256(String(++this.#revision)).slice(0, 40)}`;
    const files = objects.map((one, index) => ({ path: `${index}.yaml`, bytes: Buffer.from(JSON.stringify(one)) }));
    const archive = gzip(tar(files));
    const path = `/${this.#revision}.tar.gz`;
    this.#archives.set(path, archive);
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the source does not listen");
    const artifact = {
      ...{ path, revision, url: `http://${ADDRESS}:${address.port}${path}`, digest: `sha256:${sha256(archive)}` },
      ...{ size: archive.length, lastUpdateTime: new Date().toISOString().replace(/\.\d+/, "") },
    };
    await this.#cluster.admin.call("PATCH", SOURCE, { status: { artifact } });
    return await this.reconcile(revision);
  }

  /** As `flux reconcile kustomization`. Resolves when that has ended, with a revision that Flux has tried. */
  async reconcile(revision?: string): Promise<Reconciled> {
    const requestedAt = `request ${++this.#requests}`;
    const annotations = { "reconcile.fluxcd.io/requestedAt": requestedAt };
    await this.#cluster.admin.call("PATCH", KUSTOMIZATION, { metadata: { annotations } });
    let status: unknown;
    let ready: unknown;
    const handled = async (): Promise<boolean> => {
      status = field(await this.#cluster.admin.get(KUSTOMIZATION), "status");
      ready = items(status, "conditions").find((one) => field(one, "type") === "Ready");
      const tried = revision === undefined || field(status, "lastAttemptedRevision") === revision;
      // The publication and this request may be two reconciliations, of which the second has begun.
      const ended = field(ready, "status") !== "Unknown";
      return tried && ended && field(status, "lastHandledReconcileAt") === requestedAt;
    };
    await this.#cluster.waitFor("Flux to reconcile", handled, WAIT_MS).catch((cause: unknown) => {
      throw new Error(`Flux's status stayed ${JSON.stringify(status)}`, { cause });
    });
    const message = String(field(ready, "message"));
    return { status: field(ready, "status"), reason: field(ready, "reason"), message };
  }
}
