import type { RequestOptions } from "node:https";
import { dirname } from "node:path";
import { KubeConfig } from "@kubernetes/client-node";
import { isRecord } from "../../schema/check.ts";
import { AccessError, type CredentialSource, type Credentials, type TlsMaterial } from "./cluster-access.ts";
import type { SelectedContext } from "./kubeconfig-file.ts";

/** After this time, the provider is called again, because the first call may never end. */
const PATIENCE_MS = 30_000;

/**
 * Auth providers (OIDC), with the official client library, which only this module loads. This module is loaded on
 * demand. The library caches the credentials until they expire.
 */
export class PluginCredentials implements CredentialSource {
  readonly #path: string;
  readonly #selected: SelectedContext;
  readonly #proxy: string | undefined;
  #config: KubeConfig | undefined;
  #tls: TlsMaterial | undefined;
  #asking: { readonly sinceMs: number; readonly answer: Promise<Credentials> } | undefined;

  constructor(path: string, selected: SelectedContext, proxy: string | undefined) {
    this.#proxy = proxy;
    this.#path = path;
    this.#selected = selected;
  }

  /** Calls share one request to the provider. */
  async current(nowMs: number): Promise<Credentials> {
    if (this.#asking === undefined || nowMs - this.#asking.sinceMs >= PATIENCE_MS) {
      const asking = { sinceMs: nowMs, answer: this.#ask() };
      const end = (): void => {
        if (this.#asking === asking) this.#asking = undefined;
      };
      this.#asking = asking;
      asking.answer.then(end, end);
    }
    return await this.#asking.answer;
  }

  /** Drops the cached credentials. */
  rejected(): void {
    this.#config = undefined;
  }

  async #ask(): Promise<Credentials> {
    const options: RequestOptions = {};
    try {
      this.#config ??= this.#load();
      await this.#config.applyToHTTPSOptions(options);
    } catch (error) {
      this.#config = undefined;
      // Without the cause: it may contain credentials, and loggers print causes.
      const code = error instanceof Error && "code" in error ? ` (${String(error.code)})` : "";
      const what = `the auth-provider of context "${this.#selected.name}" failed${code}`;
      throw new AccessError("plugin", `${this.#path}: ${what}; run kubectl with this kubeconfig to see why`);
    }
    return { authorization: authorizationOf(options), tls: this.#material(options) };
  }

  #load(): KubeConfig {
    const config = new KubeConfig();
    config.loadFromString(this.#selected.text);
    config.makePathsAbsolute(dirname(this.#path));
    config.setCurrentContext(this.#selected.name);
    return config;
  }

  #material(options: RequestOptions): TlsMaterial {
    const { cluster } = this.#selected;
    const old = this.#tls;
    const ca = textOf(options.ca);
    const cert = textOf(options.cert);
    const key = textOf(options.key);
    if (old !== undefined && old.ca === ca && old.cert === cert && old.key === key) return old;
    this.#tls = {
      ca,
      cert,
      key,
      serverName: cluster["tls-server-name"] || undefined,
      skipVerification: cluster["insecure-skip-tls-verify"] ?? false,
      proxy: this.#proxy,
    };
    return this.#tls;
  }
}

function authorizationOf(options: RequestOptions): string | undefined {
  if (typeof options.auth === "string") return `Basic ${Buffer.from(options.auth).toString("base64")}`;
  const authorization = isRecord(options.headers) ? options.headers.Authorization : undefined;
  return typeof authorization === "string" ? authorization : undefined;
}

function textOf(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  return Buffer.isBuffer(value) ? value.toString("utf8") : undefined;
}
