import { join } from "node:path";
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
export function describeProcesses(
  setting: Setting,
  overrides: FlagOverrides,
  onUnexpectedEnd: (description: string) => void,
): Processes {
  const files = join(setting.directory, "files");
  const launches = describeComponents(setting, (name) => insertDirectory(overrides[name] ?? {}, files));
  const describe = (name: ComponentName, isReady: (signal: AbortSignal) => Promise<boolean>): ManagedProcess =>
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
    etcd: describe("etcd", probe(setting, etcdUrl(setting), "/readyz")),
    "kube-apiserver": describe("kube-apiserver", probe(setting, serverUrl(setting), "/readyz")),
    "kube-controller-manager": describe(
      "kube-controller-manager",
      probe(setting, at(setting.ports.controllerManager), "/healthz"),
    ),
    "kube-scheduler": describe("kube-scheduler", probe(setting, at(setting.ports.scheduler), "/healthz")),
    kwok: describe("kwok", probe(setting, at(setting.ports.kwok), "/healthz")),
  };
}

/** Asks over a new connection each time, so that one to a process that is gone is never waited for. */
function probe(setting: Setting, url: string, path: string): (signal: AbortSignal) => Promise<boolean> {
  const { certificateAuthorityPem } = setting.identity;
  const clientCertificate = setting.identity.clientCertificate("readiness-probe", ["system:masters"]);
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
