import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import * as v from "valibot";
import type { Ports, Timers } from "../../runtime/clock.ts";
import { messageOf } from "../../runtime/errors.ts";
import { AccessError, type CredentialSource, type Credentials } from "./cluster-access.ts";
import type { KubeconfigCluster, KubeconfigUser, SelectedContext } from "./kubeconfig-file.ts";

/** A plugin that runs for longer is killed. client-go would wait for it without end. */
const DEADLINE_MS = 30_000;
const MAX_OUTPUT_CHARACTERS = 1024 * 1024;
const GROUP = "client.authentication.k8s.io";

const text = v.nullish(v.string());
const ExecConfig = v.looseObject({
  apiVersion: v.picklist([`${GROUP}/v1`, `${GROUP}/v1beta1`]),
  command: v.pipe(v.string(), v.minLength(1)),
  args: v.nullish(v.array(v.string())),
  env: v.nullish(v.array(v.looseObject({ name: v.string(), value: v.string() }))),
  interactiveMode: v.nullish(v.picklist(["Never", "IfAvailable", "Always"])),
  provideClusterInfo: v.nullish(v.boolean()),
});
type ExecConfig = v.InferOutput<typeof ExecConfig>;

const ExecCredential = v.looseObject({
  status: v.looseObject({
    token: text,
    clientCertificateData: text,
    clientKeyData: text,
    expirationTimestamp: v.nullish(
      v.pipe(
        v.string(),
        v.check((time) => !Number.isNaN(Date.parse(time))),
      ),
    ),
  }),
});
const Extensions = v.array(v.looseObject({ name: v.string(), extension: v.unknown() }));

interface ExecOptions {
  readonly path: string;
  readonly selected: SelectedContext;
  readonly ports: Pick<Ports, "clock" | "timers">;
  /** Makes the credentials of a user from the plugin's token or certificate. */
  readonly make: (user: KubeconfigUser) => CredentialSource;
}

/**
 * Runs exec plugins like client-go: one process at a time, whose credential is used until it expires, or until the
 * server rejects it.
 */
export class ExecCredentials implements CredentialSource {
  readonly #options: ExecOptions;
  readonly #config: ExecConfig;
  #source: CredentialSource | undefined;
  /** The first credentials of `#source`. */
  #newest: Credentials | undefined;
  #expiresMs = Number.POSITIVE_INFINITY;
  #running: Promise<CredentialSource> | undefined;

  /** Throws an {@link AccessError} for an unusable configuration. */
  constructor(options: ExecOptions) {
    this.#options = options;
    const parsed = v.safeParse(ExecConfig, options.selected.user.exec);
    if (!parsed.success) {
      const fields = Object.keys(v.flatten(parsed.issues).nested ?? {}).join(", ");
      throw this.#failure(`is not configured as ${GROUP}/v1 asks for (${fields})`);
    }
    this.#config = parsed.output;
  }

  async current(nowMs: number): Promise<Credentials> {
    const isExpired = this.#options.ports.clock.nowMs() >= this.#expiresMs;
    const source = isExpired ? undefined : this.#source;
    return await (source ?? (await this.#renew(nowMs))).current(nowMs);
  }

  /** A call with older credentials does not invalidate the newest ones. */
  rejected(used: Credentials): void {
    this.#source?.rejected(used);
    const newest = this.#newest;
    if (used.authorization === newest?.authorization && used.tls.cert === newest?.tls.cert) this.#source = undefined;
  }

  /** Calls share one run, so that an expired token does not start a process for each call. */
  #renew(nowMs: number): Promise<CredentialSource> {
    this.#running ??= this.#ask(nowMs).finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #ask(nowMs: number): Promise<CredentialSource> {
    const parsed = v.safeParse(ExecCredential, await this.#output());
    const {
      token,
      clientCertificateData: cert,
      clientKeyData: key,
      expirationTimestamp,
    } = parsed.success ? parsed.output.status : {};
    if (!(token || cert) || !cert !== !key)
      throw this.#failure("printed no ExecCredential with a token, or with a certificate and its key");
    const source = this.#options.make({
      token,
      "client-certificate-data": base64(cert),
      "client-key-data": base64(key),
    });
    this.#newest = await source.current(nowMs);
    this.#source = source;
    this.#expiresMs = expirationTimestamp ? Date.parse(expirationTimestamp) : Number.POSITIVE_INFINITY;
    return source;
  }

  async #output(): Promise<unknown> {
    const { path, selected, ports } = this.#options;
    const { apiVersion, command, args, env, interactiveMode, provideClusterInfo } = this.#config;
    const isInteractive = process.stdin.isTTY === true && interactiveMode !== "Never";
    if (interactiveMode === "Always" && !isInteractive) throw this.#failure("needs a terminal");
    const variables = Object.fromEntries((env ?? []).map(({ name, value }) => [name, value]));
    try {
      const cluster = provideClusterInfo ? { cluster: await clusterInfo(path, selected.cluster) } : {};
      const info = { kind: "ExecCredential", apiVersion, spec: { ...cluster, interactive: isInteractive } };
      const output = await run({
        command: command.includes("/") ? resolve(dirname(path), command) : command,
        args: args ?? [],
        env: { ...process.env, ...variables, KUBERNETES_EXEC_INFO: JSON.stringify(info) },
        isInteractive,
        timers: ports.timers,
      });
      return JSON.parse(output);
    } catch (error) {
      // Without the cause: a parser's message quotes the output, which contains credentials.
      throw this.#failure(error instanceof SyntaxError ? "printed no JSON" : `failed: ${messageOf(error)}`);
    }
  }

  #failure(what: string): AccessError {
    const { path, selected } = this.#options;
    const message = `${path}: the credential plugin of context "${selected.name}" ${what}`;
    return new AccessError("plugin", `${message}; run kubectl with this kubeconfig to see why`);
  }
}

function base64(pem: string | null | undefined): string | undefined {
  return pem ? Buffer.from(pem).toString("base64") : undefined;
}

/** `spec.cluster`, as client-go fills it. */
async function clusterInfo(path: string, cluster: KubeconfigCluster): Promise<object> {
  const file = cluster["certificate-authority"];
  const ca =
    cluster["certificate-authority-data"] || (file && (await readFile(resolve(dirname(path), file), "base64")));
  const extensions = v.safeParse(Extensions, cluster.extensions);
  const config = extensions.success
    ? extensions.output.find(({ name }) => name === `${GROUP}/exec`)?.extension
    : undefined;
  return {
    server: cluster.server,
    "tls-server-name": cluster["tls-server-name"] || undefined,
    "insecure-skip-tls-verify": cluster["insecure-skip-tls-verify"] || undefined,
    "certificate-authority-data": ca || undefined,
    "proxy-url": cluster["proxy-url"] || undefined,
    config,
  };
}

interface PluginRun {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** The plugin interacts with the user at the terminal, who can end it. */
  readonly isInteractive: boolean;
  readonly timers: Timers;
}

/**
 * Resolves with the output once the plugin has ended. At the deadline, and when this process exits, the plugin and the
 * processes that it started are killed.
 */
function run({ command, args, env, isInteractive, timers }: PluginRun): Promise<string> {
  return new Promise((fulfil, reject) => {
    const terminal = isInteractive ? "inherit" : "ignore";
    // In its own process group.
    const child = spawn(command, args, { env, detached: !isInteractive, stdio: [terminal, "pipe", terminal] });
    let output = "";
    let failure: string | undefined;
    const kill = (why: string): void => {
      failure = why;
      if (child.pid !== undefined) killGroup(isInteractive ? child.pid : -child.pid);
      // A process outside of the group may keep the other end open.
      child.stdout?.destroy();
    };
    const end = (): void => kill("this process exits");
    process.once("exit", end);
    const timer = isInteractive
      ? undefined
      : timers.after(DEADLINE_MS, () => kill(`it did not end within ${DEADLINE_MS / 1000} s`));
    child.stdout?.setEncoding("utf8").on("data", (part: string) => {
      output += part;
      if (output.length > MAX_OUTPUT_CHARACTERS) kill(`it printed more than ${MAX_OUTPUT_CHARACTERS} characters`);
    });
    child.on("error", (error) => {
      failure = "code" in error ? String(error.code) : error.message;
    });
    child.on("close", (code, signal) => {
      timer?.cancel();
      process.off("exit", end);
      if (failure === undefined && code !== 0) failure = `exit code ${code ?? signal}`;
      if (failure === undefined) fulfil(output);
      else reject(new Error(failure));
    });
  });
}

function killGroup(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // Every process of the group has ended.
  }
}
