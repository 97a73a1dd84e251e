import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { KeyAndCertificate } from "../../shared/certificates/x509.ts";
import { ApiserverClient } from "./api-client.ts";
import type { Binaries } from "./binaries/binaries.ts";
import type { Identity, StaticToken } from "./identity.ts";
import { kwokConfiguration } from "./kwok/stages.ts";
import { ManagedProcess } from "./managed-process.ts";

/** The command line of each process of a cluster. */

/** Flags by name without dashes. A list repeats the flag; null removes a default flag. */
export type Flags = Readonly<Record<string, string | readonly string[] | null>>;

export const COMPONENT_NAMES = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"] as const;

export type ComponentName = (typeof COMPONENT_NAMES)[number];

export type ComponentPorts = Readonly<
  Record<"etcd" | "etcdPeer" | "apiserver" | "controllerManager" | "scheduler" | "kwok", number>
>;

export interface Setting {
  readonly binaries: Binaries;
  readonly identity: Identity;
  readonly address: string;
  readonly ports: ComponentPorts;
  readonly directory: string;
  readonly etcdDataDirectory: string;
  readonly tokens: readonly StaticToken[];
  readonly hasControllerManager: boolean;
}

export const serverUrl = (setting: Setting): string => `https://${setting.address}:${setting.ports.apiserver}`;
export const etcdUrl = (setting: Setting): string => `https://${setting.address}:${setting.ports.etcd}`;

interface SharedFiles {
  readonly serving: { readonly cert: string; readonly key: string };
  readonly serviceAccount: { readonly privateKey: string; readonly publicKey: string };
}

function etcdFlags(setting: Setting, { serving }: SharedFiles): Flags {
  const peer = `https://${setting.address}:${setting.ports.etcdPeer}`;
  const ca = setting.identity.certificateAuthorityFile;
  return {
    name: "default",
    "data-dir": setting.etcdDataDirectory,
    "listen-client-urls": etcdUrl(setting),
    "advertise-client-urls": etcdUrl(setting),
    "listen-peer-urls": peer,
    "initial-advertise-peer-urls": peer,
    "initial-cluster": `default=${peer}`,
    "cert-file": serving.cert,
    "key-file": serving.key,
    "trusted-ca-file": ca,
    "client-cert-auth": "true",
    "peer-cert-file": serving.cert,
    "peer-key-file": serving.key,
    "peer-trusted-ca-file": ca,
    "peer-client-cert-auth": "true",
    // The data need not survive a crash of the machine.
    "unsafe-no-fsync": "true",
    "log-level": "warn",
  };
}

async function apiserverFlags(setting: Setting, { serving, serviceAccount }: SharedFiles): Promise<Flags> {
  const { identity, address, ports } = setting;
  const etcdClient = await identity.clientFiles("apiserver-etcd-client", "kube-apiserver");
  return {
    "etcd-servers": etcdUrl(setting),
    "etcd-cafile": identity.certificateAuthorityFile,
    "etcd-certfile": etcdClient.cert,
    "etcd-keyfile": etcdClient.key,
    "bind-address": address,
    "advertise-address": address,
    "secure-port": String(ports.apiserver),
    "tls-cert-file": serving.cert,
    "tls-private-key-file": serving.key,
    "client-ca-file": identity.certificateAuthorityFile,
    "token-auth-file": identity.tokenFile(setting.tokens),
    "service-account-key-file": serviceAccount.publicKey,
    "service-account-signing-key-file": serviceAccount.privateKey,
    "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
    "authorization-mode": "RBAC",
    "service-cluster-ip-range": "10.0.0.0/24",
    "allow-privileged": "true",
    // No client uses this server's Service, and a loopback address is not a valid endpoint.
    "endpoint-reconciler-type": "none",
    // Without a controller-manager, no namespace has the service account that the plugin requires for each pod.
    ...(setting.hasControllerManager ? {} : { "disable-admission-plugins": "ServiceAccount" }),
  };
}

async function controllerManagerFlags(setting: Setting, { serving, serviceAccount }: SharedFiles): Promise<Flags> {
  return {
    kubeconfig: await componentKubeconfig(setting, "kube-controller-manager", "system:kube-controller-manager"),
    "bind-address": setting.address,
    "secure-port": String(setting.ports.controllerManager),
    "tls-cert-file": serving.cert,
    "tls-private-key-file": serving.key,
    "service-account-private-key-file": serviceAccount.privateKey,
    "root-ca-file": setting.identity.certificateAuthorityFile,
    // Each controller uses its own service account, like in installed clusters.
    "use-service-account-credentials": "true",
    // The default of 20 a second makes the start 5 s longer and slows bursts of deletions.
    "kube-api-qps": "200",
    "kube-api-burst": "400",
    "leader-elect": "false",
  };
}

async function schedulerFlags(setting: Setting, { serving }: SharedFiles): Promise<Flags> {
  return {
    kubeconfig: await componentKubeconfig(setting, "kube-scheduler", "system:kube-scheduler"),
    "bind-address": setting.address,
    "secure-port": String(setting.ports.scheduler),
    "tls-cert-file": serving.cert,
    "tls-private-key-file": serving.key,
    "leader-elect": "false",
  };
}

async function kwokFlags(setting: Setting, { serving }: SharedFiles): Promise<Flags> {
  const config = join(setting.directory, "kwok.yaml");
  writeFileSync(config, kwokConfiguration());
  return {
    config,
    kubeconfig: await componentKubeconfig(setting, "kwok", "system:kwok", ["system:masters", "system:nodes"]),
    "node-ip": setting.address,
    "server-address": `${setting.address}:${setting.ports.kwok}`,
    "tls-cert-file": serving.cert,
    "tls-private-key-file": serving.key,
  };
}

async function componentKubeconfig(
  setting: Setting,
  name: string,
  user: string,
  groups: readonly string[] = [],
): Promise<string> {
  const clientCertificate = await setting.identity.clientCertificate(user, groups);
  return setting.identity.kubeconfig(name, serverUrl(setting), { clientCertificate });
}

function toArguments(flags: Flags): string[] {
  return Object.entries(flags).flatMap(([name, value]) => {
    if (value === null) return [];
    const values = typeof value === "string" ? [value] : value;
    return values.map((one) => `--${name}=${one}`);
  });
}

export type FlagOverrides = Readonly<Partial<Record<ComponentName, Flags>>>;

export type Processes = Readonly<Record<ComponentName, ManagedProcess>>;

interface DescribedProcesses {
  readonly processes: Processes;
  /** One more kube-apiserver over the same etcd, with the flags of the first one and `flags`. */
  readonly anotherApiserver: (name: string, port: number, flags: Flags) => ManagedProcess;
}

const START_TIMEOUT_MS = 300_000;

/**
 * The processes of a cluster, not started yet. `overrides` are flags in addition to the usual ones, or instead of them;
 * `$FILES` in their values is the cluster's directory of files.
 */
export async function describeProcesses(
  setting: Setting,
  overrides: FlagOverrides,
  onUnexpectedEnd: (description: string) => void,
): Promise<DescribedProcesses> {
  const { identity, address, ports, binaries, directory } = setting;
  const serving = await identity.serverFiles(
    "serving",
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"],
    [...new Set([address, "127.0.0.1", "::1", "10.0.0.1"])],
  );
  const shared = { serving, serviceAccount: identity.serviceAccountKeyFiles() };
  const certificate = await identity.clientCertificate("readiness-probe", ["system:masters"]);
  const describe = (
    component: ComponentName,
    usual: Flags,
    url: string,
    own: { readonly name: string; readonly flags: Flags } = { name: component, flags: {} },
  ): ManagedProcess =>
    new ManagedProcess({
      name: own.name,
      logFile: join(directory, "logs", `${own.name}.log`),
      workingDirectory: directory,
      launch: () => {
        const flags = insertDirectory({ ...overrides[component], ...own.flags }, join(directory, "files"));
        return { binary: binaries[component], args: toArguments({ ...usual, ...flags }) };
      },
      isReady: probeOf(setting, certificate, url),
      startTimeoutMs: START_TIMEOUT_MS,
      onUnexpectedEnd,
    });
  const health = (port: number): string => `https://${address}:${port}/healthz`;
  const controllerManager = await controllerManagerFlags(setting, shared);
  const apiserver = await apiserverFlags(setting, shared);
  const processes = {
    etcd: describe("etcd", etcdFlags(setting, shared), `${etcdUrl(setting)}/readyz`),
    "kube-apiserver": describe("kube-apiserver", apiserver, `${serverUrl(setting)}/readyz`),
    "kube-controller-manager": describe("kube-controller-manager", controllerManager, health(ports.controllerManager)),
    "kube-scheduler": describe("kube-scheduler", await schedulerFlags(setting, shared), health(ports.scheduler)),
    kwok: describe("kwok", await kwokFlags(setting, shared), health(ports.kwok)),
  };
  const anotherApiserver: DescribedProcesses["anotherApiserver"] = (name, port, flags) => {
    const own = { name, flags: { ...flags, "secure-port": String(port) } };
    return describe("kube-apiserver", apiserver, `https://${address}:${port}/readyz`, own);
  };
  return { processes, anotherApiserver };
}

type Probe = (signal: AbortSignal) => Promise<boolean>;

/** Each probe opens a connection, because an old one can belong to a process that has ended. */
function probeOf({ identity }: Setting, clientCertificate: KeyAndCertificate, url: string): Probe {
  const { certificateAuthorityPem } = identity;
  return async (signal) => {
    const client = new ApiserverClient({ url, certificateAuthorityPem, clientCertificate });
    try {
      return (await client.request("GET", "", undefined, { signal })).status === 200;
    } finally {
      client.close();
    }
  };
}

function insertDirectory(flags: Flags, directory: string): Flags {
  const insert = (text: string): string => text.replaceAll("$FILES", directory);
  return Object.fromEntries(
    Object.entries(flags).map(([name, value]) => [
      name,
      value === null ? null : typeof value === "string" ? insert(value) : value.map(insert),
    ]),
  );
}
