/**
 * Links by kubeconfig files that are renewed while the components run. Every connection leads through a proxy that
 * carries TLS unseen, so that the apiserver itself checks certificates and shows its own.
 */
import { once } from "node:events";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "node:tls";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { Flags } from "../../../scripts/control-plane/components.ts";
import {
  createCertificateAuthority,
  issueCertificate,
  type KeyAndCertificate,
} from "../../../shared/certificates/x509.ts";
import { TunnelProxy } from "../proxy/tunnel.ts";
import { account, type Link, type Links, Token } from "./component-links.ts";

/** Only the proxies know this host, so nothing can reach the apiserver directly. */
const HOST = "apiserver.fault.test";
const GROUPS = ["system:masters"];
const HOUR_MS = 3_600_000;

/** How a kubeconfig holds what it names: in itself, or in a file beside it. */
export type Form = "inline" | "file";
type Field = readonly [inline: string, file: string];

const AUTHORITY: Field = ["certificate-authority-data", "certificate-authority"];
const CERTIFICATE: Field = ["client-certificate-data", "client-certificate"];
const KEY: Field = ["client-key-data", "client-key"];

/** The certificate that the apiservers show for {@link HOST}; they read it again when it changes. */
export class ServerCertificate {
  readonly #directory: string;
  authority: KeyAndCertificate | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  get flags(): Flags {
    return { "tls-sni-cert-key": `${this.#path("crt")},${this.#path("key")}:${HOST}` };
  }

  /** Makes a new authority; the old one has signed nothing that is shown from now on. */
  async rotate(): Promise<void> {
    const validity = { notBeforeMs: Date.now() - HOUR_MS, notAfterMs: Date.now() + 24 * HOUR_MS };
    this.authority = await createCertificateAuthority({ commonName: "rotated", ...validity });
    const made = { commonName: HOST, dnsNames: [HOST], usages: ["server"] as const, ...validity };
    const { certificatePem, privateKeyPem } = await issueCertificate(this.authority, made);
    writeFileSync(this.#path("key"), privateKeyPem);
    writeFileSync(this.#path("crt"), certificatePem);
  }

  /** Resolves when the apiserver shows the newest certificate. */
  async whenShown(cluster: Cluster): Promise<void> {
    const { hostname: host, port } = new URL(cluster.url);
    const ca = this.authority?.certificatePem;
    const isShown = async (): Promise<boolean> => {
      const socket = connect({ host, port: Number(port), servername: HOST, ...(ca === undefined ? {} : { ca }) });
      await once(socket, "secureConnect");
      socket.destroy();
      return true;
    };
    await cluster.waitFor(`${cluster.name} to show its new certificate`, isShown);
  }

  #path(extension: string): string {
    return join(this.#directory, `server.${extension}`);
  }
}

export class RenewedLink implements Link {
  readonly component: string;
  readonly cluster: Cluster;
  readonly name: string;
  readonly proxy: TunnelProxy;
  readonly token: Token;
  readonly path: string;
  readonly #server: ServerCertificate;
  #user: object = {};

  constructor(component: string, cluster: Cluster, proxy: TunnelProxy, server: ServerCertificate, directory: string) {
    this.component = component;
    this.cluster = cluster;
    this.name = `${component} > ${cluster.name}`;
    this.proxy = proxy;
    this.#server = server;
    this.token = new Token(cluster, component);
    this.path = join(directory, `${component}-${cluster.name}.config`);
  }

  /** A new token, in the kubeconfig or in the file that it names. */
  async issueToken(form: Form): Promise<void> {
    await this.token.issue();
    this.#user = form === "inline" ? { token: this.token.text } : { tokenFile: this.token.file };
    this.write();
  }

  /** A new client certificate; the apiserver rejects it when its lifetime is over. */
  async issueCertificate(form: Form, lifetimeMs = HOUR_MS): Promise<void> {
    const user = `system:serviceaccount:default:${this.component}`;
    const { certificatePem, privateKeyPem } = await this.cluster.identity.clientCertificate(user, GROUPS, lifetimeMs);
    this.#user = { ...this.#held(CERTIFICATE, form, certificatePem), ...this.#held(KEY, form, privateKeyPem) };
    this.write();
  }

  /** Writes the kubeconfig with the newest authority and user. */
  write(form: Form = "inline", proxyUrl = this.proxy.url): void {
    const authority = this.#held(AUTHORITY, form, this.#server.authority?.certificatePem ?? "");
    const server = `https://${HOST}:${new URL(this.cluster.url).port}`;
    this.replace(
      JSON.stringify({
        "current-context": "here",
        contexts: [{ name: "here", context: { cluster: "c", user: "u" } }],
        clusters: [{ name: "c", cluster: { server, "proxy-url": proxyUrl, ...authority } }],
        users: [{ name: "u", user: this.#user }],
      }),
    );
  }

  /** Replaces the kubeconfig at once, as the mount of a Secret is replaced. */
  replace(text: string): void {
    writeFileSync(`${this.path}.new`, text);
    renameSync(`${this.path}.new`, this.path);
  }

  #held([inline, file]: Field, form: Form, pem: string): object {
    if (form === "inline") return { [inline]: Buffer.from(pem).toString("base64") };
    const path = `${this.path}.${file}`;
    writeFileSync(`${path}.new`, pem);
    renameSync(`${path}.new`, path);
    return { [file]: path };
  }
}

export class RenewedLinks implements Links<RenewedLink> {
  readonly environment = {};
  readonly server: ServerCertificate;
  readonly #links = new Map<string, RenewedLink>();
  readonly #directory: string;

  constructor(directory: string, server: ServerCertificate) {
    this.#directory = directory;
    this.server = server;
  }

  get all(): readonly RenewedLink[] {
    return [...this.#links.values()];
  }

  async kubeconfig(component: string, cluster: Cluster): Promise<string> {
    const name = `${component} > ${cluster.name}`;
    const known = this.#links.get(name);
    if (known !== undefined) return known.path;
    const { hostname, port } = new URL(cluster.url);
    const proxy = await TunnelProxy.start({ host: hostname, port: Number(port) });
    const link = new RenewedLink(component, cluster, proxy, this.server, this.#directory);
    this.#links.set(name, link);
    await cluster.apply(account(component));
    await link.issueToken("inline");
    return link.path;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.all.map(({ proxy }) => proxy[Symbol.asyncDispose]()));
    for (const { path } of this.all) rmSync(path, { force: true });
  }
}
