import type { Cluster } from "../control-plane/cluster.ts";
import { reservePort } from "../control-plane/ports.ts";
import { Component, type ComponentOptions, servingFiles } from "./component.ts";

const ADDRESS = "127.0.0.1";

export interface WebhookProcessOptions
  extends Pick<ComponentOptions, "name" | "directory" | "environment" | "bundles"> {
  /** The cluster whose CA issues the serving certificate. */
  readonly authority: Cluster;
  /** Core clusters by name: kubeconfig files. */
  readonly cores: Readonly<Record<string, string>>;
  /** Cells by id: kubeconfig files, or "" for a cell without live reads. */
  readonly cells: Readonly<Record<string, string>>;
  readonly args?: readonly string[];
}

export interface WebhookReplica {
  readonly component: Component;
  /** `https://ADDRESS:PORT`; the path is `/webhook/CELL`. */
  readonly url: string;
  readonly caPem: string;
}

export async function startWebhook(options: WebhookProcessOptions): Promise<WebhookReplica> {
  const port = await reservePort(ADDRESS);
  const folder = `${options.directory}/${options.name}-tls`;
  const files = await servingFiles(options.authority, folder);
  const args = [
    ...Object.entries(options.cores).flatMap(([name, kubeconfig]) => ["--core", `${name}=${kubeconfig}`]),
    ...Object.entries(options.cells).flatMap(([id, file]) => ["--cell", file === "" ? id : `${id}=${file}`]),
    ...["--bind-address", ADDRESS, "--secure-port", String(port)],
    ...["--tls-cert-file", files.certFile, "--tls-private-key-file", files.keyFile],
    ...(options.args ?? []),
  ];
  const { name, directory, environment = {}, bundles } = options;
  const component = await Component.start({
    kind: "webhook",
    name,
    directory,
    args,
    // As in the manifests.
    environment: { MALLOC_ARENA_MAX: "1", ...environment },
    ...(bundles === undefined ? {} : { bundles }),
  });
  return { component, url: `https://${ADDRESS}:${port}`, caPem: files.caPem };
}
