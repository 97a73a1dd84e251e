/** A second member of a cluster's etcd: while it is frozen there is no quorum, and the first one commits nothing. */
import { join } from "node:path";
import { ApiserverClient, items } from "../../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import { reservePort } from "../../../scripts/control-plane/ports.ts";

const NAME = "second";
const ADDRESS = "127.0.0.1";
const START_TIMEOUT_MS = 300_000;

async function reserveUrl(): Promise<string> {
  return `https://${ADDRESS}:${await reservePort(ADDRESS)}`;
}

/** Resolves when the cluster's etcd has two members; the caller has to kill the second one. */
export async function startEtcdPeer({ identity, directory, etcd }: Cluster): Promise<ManagedProcess> {
  const { etcd: binary } = await ensureBinaries();
  const { certificateAuthorityPem, certificateAuthorityFile: ca } = identity;
  const clientCertificate = await identity.clientCertificate("etcd-peer");
  const [client, peer] = [await reserveUrl(), await reserveUrl()];
  const { cert, key } = await identity.serverFiles("etcd-peer", ["localhost"], [ADDRESS]);
  const as = (url: string): ApiserverClient => new ApiserverClient({ url, certificateAuthorityPem, clientCertificate });
  const first = as(etcd.url);
  const members = items(await first.call("POST", "/v3/cluster/member/add", { peerURLs: [peer] }), "members");
  first.close();
  const flags = {
    ...{ name: NAME, "data-dir": join(directory, "etcd", NAME), "log-level": "warn", "unsafe-no-fsync": "true" },
    ...{ "listen-client-urls": client, "advertise-client-urls": client },
    ...{ "listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster-state": "existing" },
    "initial-cluster": members.map((member) => addressOf(member)).join(),
    ...{ "cert-file": cert, "key-file": key, "trusted-ca-file": ca, "client-cert-auth": "true" },
    ...{ "peer-cert-file": cert, "peer-key-file": key, "peer-trusted-ca-file": ca, "peer-client-cert-auth": "true" },
  };
  const second = as(client);
  const process = new ManagedProcess({
    ...{ name: `etcd-${NAME}`, logFile: join(directory, "logs", `etcd-${NAME}.log`), workingDirectory: directory },
    launch: () => ({ binary, args: Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`) }),
    isReady: async (signal) => (await second.request("GET", "/readyz", undefined, { signal })).status === 200,
    startTimeoutMs: START_TIMEOUT_MS,
    onUnexpectedEnd: () => undefined,
  });
  await process.start().finally(() => second.close());
  return process;
}

/** NAME=URL; a member that has not started yet has no name. */
function addressOf(member: unknown): string {
  const { name = NAME, peerURLs = [] }: { name?: string; peerURLs?: readonly string[] } = Object(member);
  return `${name}=${peerURLs.join()}`;
}
