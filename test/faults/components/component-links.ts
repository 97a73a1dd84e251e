/** The link of each component to each apiserver: its own proxy, host name and revocable token. */
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ApiserverClient, field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { FaultProxy } from "../proxy/proxy.ts";

export interface Link {
  /** For example `aggregator-cell`. */
  readonly component: string;
  readonly cluster: Cluster;
  /** `COMPONENT > CLUSTER`. */
  readonly name: string;
  readonly proxy: Pick<FaultProxy, "requests" | "connections">;
}

/** The links of an installation, made as its components ask for their kubeconfig files. */
export interface Links<L extends Link> extends AsyncDisposable {
  readonly all: readonly L[];
  /** Environment variables of the components. */
  readonly environment: Readonly<Record<string, string>>;
  /** The kubeconfig file with which `component` reaches `cluster`. */
  kubeconfig(component: string, cluster: Cluster): Promise<string>;
}

export interface ComponentLink extends Link {
  readonly host: string;
  readonly proxy: FaultProxy;
  readonly token: Token;
}

const NAMESPACE = "default";
const SECRETS = `/api/v1/namespaces/${NAMESPACE}/secrets`;

/**
 * A token file whose token becomes invalid when its Secret is deleted and the apiserver's cache of ten seconds has
 * expired.
 */
export class Token {
  readonly file: string;
  readonly #cluster: Cluster;
  readonly #account: string;
  #secret = "";
  #token = "";
  #issued = 0;

  constructor(cluster: Cluster, account: string) {
    this.#cluster = cluster;
    this.#account = account;
    this.file = join(cluster.directory, `${account}.token`);
  }

  get text(): string {
    return this.#token;
  }

  async issue(): Promise<void> {
    const { admin } = this.#cluster;
    const name = `${this.#account}-${++this.#issued}`;
    const uid = field(await admin.call("POST", SECRETS, { metadata: { name } }), "metadata", "uid");
    const path = `/api/v1/namespaces/${NAMESPACE}/serviceaccounts/${this.#account}/token`;
    const boundObjectRef = { apiVersion: "v1", kind: "Secret", name, uid };
    const answer = await admin.call("POST", path, { spec: { boundObjectRef } });
    this.#secret = name;
    this.#token = String(field(answer, "status", "token"));
    // At once, as the mount of a token is replaced: half of one would be reported.
    writeFileSync(`${this.file}.new`, this.#token);
    renameSync(`${this.file}.new`, this.file);
  }

  /** Resolves when the apiserver rejects the token, which the file still contains. */
  revoke(): Promise<void> {
    return this.revoker()();
  }

  /** Revokes the present token, whatever was issued since, and if it was not revoked before. */
  revoker(): () => Promise<void> {
    const [secret, token] = [this.#secret, this.#token];
    return async () => {
      const { status, text } = await this.#cluster.admin.request("DELETE", `${SECRETS}/${secret}`);
      if (status >= 300 && status !== 404) throw new Error(text);
      await this.whenAnswered(401, token);
    };
  }

  /** Resolves when a request with the token gets this status. */
  async whenAnswered(status: number, token = this.#token): Promise<void> {
    const { url, identity } = this.#cluster;
    const certificateAuthorityPem = identity.certificateAuthorityPem;
    const client = new ApiserverClient({ url, certificateAuthorityPem, token });
    const answered = async (): Promise<boolean> => (await client.request("GET", SECRETS)).status === status;
    await this.#cluster.waitFor(`the token of ${this.#account} to get ${status}`, answered);
    client.close();
  }
}

export class ComponentLinks implements Links<ComponentLink> {
  readonly #links = new Map<string, ComponentLink>();
  readonly #unknownHosts: string;

  constructor(directory: string) {
    this.#unknownHosts = join(directory, "unknown-hosts");
  }

  get all(): readonly ComponentLink[] {
    return [...this.#links.values()];
  }

  /** Environment variables of the processes that resolve names as {@link unknown} says. */
  get environment(): Readonly<Record<string, string>> {
    return {
      NODE_OPTIONS: `--import ${join(import.meta.dirname, "component-dns.ts")}`,
      PODSEIDON_TEST_UNKNOWN_HOSTS: this.#unknownHosts,
    };
  }

  /** The kubeconfig file with which `component` reaches `cluster`. */
  async kubeconfig(component: string, cluster: Cluster): Promise<string> {
    const link = await this.#link(component, cluster);
    return await cluster.kubeconfigFor(
      { tokenFile: link.token.file },
      { server: `https://${link.host}:${link.proxy.port}` },
    );
  }

  /** From now on exactly these hosts have no address. Open connections stay. */
  unknown(links: readonly ComponentLink[]): void {
    writeFileSync(this.#unknownHosts, links.map(({ host }) => host).join("\n"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.all.map(({ proxy }) => proxy[Symbol.asyncDispose]()));
  }

  async #link(component: string, cluster: Cluster): Promise<ComponentLink> {
    const name = `${component} > ${cluster.name}`;
    const known = this.#links.get(name);
    if (known !== undefined) return known;
    const host = `${component}-${cluster.name}.fault.test`;
    const certificate = await cluster.identity.servingCertificate([host], []);
    const proxy = await FaultProxy.start({
      target: { host: "127.0.0.1", port: Number(new URL(cluster.url).port) },
      tls: { ...certificate, targetCaPem: cluster.identity.certificateAuthorityPem },
      isRestored: () => cluster.etcdHistory > 0,
    });
    await cluster.apply(account(component));
    const token = new Token(cluster, component);
    await token.issue();
    const link = { component, cluster, name, host, proxy, token };
    this.#links.set(name, link);
    return link;
  }
}

/** Full permissions: other tests cover those of the manifests. */
export function account(name: string): readonly unknown[] {
  const apiVersion = "rbac.authorization.k8s.io/v1";
  const subjects = [{ kind: "ServiceAccount", name, namespace: NAMESPACE }];
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "cluster-admin" };
  return [
    { apiVersion: "v1", kind: "ServiceAccount", metadata: { name, namespace: NAMESPACE } },
    { apiVersion, kind: "ClusterRoleBinding", metadata: { name }, roleRef, subjects },
  ];
}
