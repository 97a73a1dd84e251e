import { join } from "node:path";
import type { KeyAndCertificate } from "../../shared/certificates/x509.ts";
import { ClusterClient } from "./api-client.ts";
import { type ComponentName, describeComponents, etcdUrl, type Flags, type Setting, serverUrl } from "./components.ts";
import { ManagedProcess } from "./managed-process.ts";

export type FlagOverrides = Readonly<Partial<Record<ComponentName, Flags>>>;

export type Processes = Readonly<Record<ComponentName, ManagedProcess>>;

const START_TIMEOUT_MS = 60_000;

/**
 * The processes of a cluster, none of them started. `overrides` are flags beside or instead of the usual ones, in whose values
 * `$FILES` stands for the cluster's directory of files.
 */
export async function describeProcesses(
  setting: Setting,
  overrides: FlagOverrides,
  onUnexpectedEnd: (description: string) => void,
): Promise<Processes> {
  const files = join(setting.directory, "files");
  const certificate = await setting.identity.clientCertificate("readiness-probe", ["system:masters"]);
  const probe = (url: string, path: string): Probe => probeOf(setting, certificate, url, path);
  const launches = await describeComponents(setting, (name) => insertDirectory(overrides[name] ?? {}, files));
  const describe = (name: ComponentName, isReady: Probe): ManagedProcess =>
    new ManagedProcess({
      name,
      logFile: join(setting.directory, "logs", `${name}.log`),
      workingDirectory: setting.directory,
      launch: launches[name],
      isReady,
      startTimeoutMs: START_TIMEOUT_MS,
      onUnexpectedEnd,
    });
  const at = (port: number): string => `https://${setting.address}:${port}`;
  return {
    etcd: describe("etcd", probe(etcdUrl(setting), "/readyz")),
    "kube-apiserver": describe("kube-apiserver", probe(serverUrl(setting), "/readyz")),
    "kube-controller-manager": describe(
      "kube-controller-manager",
      probe(at(setting.ports.controllerManager), "/healthz"),
    ),
    "kube-scheduler": describe("kube-scheduler", probe(at(setting.ports.scheduler), "/healthz")),
    kwok: describe("kwok", probe(at(setting.ports.kwok), "/healthz")),
  };
}

type Probe = (signal: AbortSignal) => Promise<boolean>;

/** Asks over a new connection each time, so that one to a process that is gone is never waited for. */
function probeOf(setting: Setting, clientCertificate: KeyAndCertificate, url: string, path: string): Probe {
  const { certificateAuthorityPem } = setting.identity;
  return async (signal) => {
    const client = new ClusterClient({ url, certificateAuthorityPem, clientCertificate });
    try {
      return (await client.request("GET", path, undefined, { signal })).status === 200;
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
