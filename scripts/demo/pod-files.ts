/**
 * The files of one pod: each volume at its path in the pod, below the directory in PODSEIDON_MOUNT_ROOT. Like with a
 * kubelet, all files of a volume change at once, by the rename of a link, and a pod waits for a volume that lacks a
 * key.
 */
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import * as v from "valibot";
import { field } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import type { Deployment, Volume } from "./deployment.ts";

const ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount";
/** A real token lives for an hour, and its file is renewed. */
const TOKEN_SECONDS = 3600;
const RENEW_TOKEN_AFTER_MS = (TOKEN_SECONDS * 1000) / 2;
const WAIT_MS = 60_000;
const POLL_MS = 200;

type Files = Readonly<Record<string, Buffer>>;

export class PodFiles {
  readonly root: string;
  readonly #cluster: Cluster;
  readonly #deployment: Deployment;
  readonly #written = new Map<string, string>();
  #tokenMs = Number.NEGATIVE_INFINITY;

  constructor(cluster: Cluster, deployment: Deployment, root: string) {
    this.root = root;
    this.#cluster = cluster;
    this.#deployment = deployment;
    // Readable for the container's user, unlike its parent directories.
    mkdirSync(dirname(root), { recursive: true, mode: 0o700 });
    mkdirSync(root, { recursive: true });
  }

  /** Resolves when every file exists; rejects after a minute, naming the missing ones. */
  async mount(): Promise<void> {
    const deadlineMs = performance.now() + WAIT_MS;
    for (;;) {
      const missing = await this.sync();
      if (missing === undefined) return;
      if (performance.now() > deadlineMs) throw new Error(`${this.#deployment.metadata.name} can't start: ${missing}`);
      await delay(POLL_MS);
    }
  }

  /** Updates the files; resolves with the missing parts. A volume with a missing part stays unchanged. */
  async sync(): Promise<string | undefined> {
    const { containers, volumes, automountServiceAccountToken } = this.#deployment.spec.template.spec;
    if (automountServiceAccountToken) await this.#syncAccount();
    for (const { name, mountPath } of containers[0].volumeMounts) {
      const volume = volumes.find((candidate) => candidate.name === name);
      if (volume === undefined) return `it mounts ${name}, which is no volume`;
      const files = await this.#filesOf(volume);
      if (typeof files === "string") return files;
      this.#replace(mountPath, files);
    }
    return undefined;
  }

  async #syncAccount(): Promise<void> {
    if (performance.now() - this.#tokenMs < RENEW_TOKEN_AFTER_MS) return;
    const { namespace } = this.#deployment.metadata;
    const { serviceAccountName } = this.#deployment.spec.template.spec;
    const token = await this.#cluster.serviceAccountToken(namespace, serviceAccountName, TOKEN_SECONDS);
    this.#tokenMs = performance.now();
    this.#replace(ACCOUNT_PATH, {
      token: Buffer.from(token),
      "ca.crt": Buffer.from(this.#cluster.identity.certificateAuthorityPem),
      namespace: Buffer.from(namespace),
    });
  }

  /** The content of the volume, or why it is unknown. */
  async #filesOf({ name, secret, configMap }: Volume): Promise<Files | string> {
    const reference = secret?.secretName ?? configMap?.name;
    if (reference === undefined) return `volume ${name} is neither a Secret nor a ConfigMap`;
    const resource = secret === undefined ? "configmaps" : "secrets";
    const path = `/api/v1/namespaces/${this.#deployment.metadata.namespace}/${resource}/${reference}`;
    const answer = await this.#cluster.admin.request("GET", path);
    if (answer.status !== 200) return `${resource} "${reference}" not found`;
    const encoding = secret === undefined ? "utf8" : "base64";
    const data = v.parse(v.optional(v.record(v.string(), v.string()), {}), field(answer.body, "data"));
    const items = (secret ?? configMap)?.items ?? Object.keys(data).map((key) => ({ key, path: key }));
    const absent = items.find(({ key }) => data[key] === undefined);
    if (absent !== undefined) return `${resource} "${reference}" has no key ${absent.key}`;
    return Object.fromEntries(items.map((item) => [item.path, Buffer.from(data[item.key] ?? "", encoding)]));
  }

  /** Replaces all files of the directory at once, like the kubelet's AtomicWriter. Does nothing for equal files. */
  #replace(mountPath: string, files: Files): void {
    const content = JSON.stringify(Object.entries(files).map(([name, data]) => [name, data.toString("base64")]));
    if (this.#written.get(mountPath) === content) return;
    const directory = join(this.root, mountPath);
    mkdirSync(directory, { recursive: true });
    const fresh = mkdtempSync(join(directory, "..data_"));
    chmodSync(fresh, 0o755);
    for (const [name, data] of Object.entries(files)) {
      mkdirSync(dirname(join(fresh, name)), { recursive: true });
      writeFileSync(join(fresh, name), data, { mode: 0o644 });
    }
    const link = join(directory, "..data");
    const before = linked(link);
    symlinkSync(fresh, join(directory, "..data_tmp"));
    renameSync(join(directory, "..data_tmp"), link);
    for (const name of Object.keys(files)) {
      const visible = join(directory, name);
      if (linked(visible) === undefined) symlinkSync(join("..data", name), visible);
    }
    if (before !== undefined) rmSync(before, { recursive: true });
    this.#written.set(mountPath, content);
  }
}

function linked(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
