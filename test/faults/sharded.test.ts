import { expect, test } from "vitest";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import { loadClusterAccess } from "../../shared/kube/credentials/kubeconfig.ts";
import { ShardedReflector } from "../../shared/kube/informer/sharded-reflector.ts";
import { offersShards } from "../../shared/kube/informer/shards.ts";
import { isRawObject } from "../../shared/kube/stream/raw-object.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { FaultProxy } from "./proxy/proxy.ts";
import { Churn, quorumState } from "./streams/churn.ts";

/** Streams in shards (KEP-5866), against a server that offers shards and one that does not. */

const PATH = "/api/v1/namespaces/default/configmaps";
const CALL = { timeoutMs: 10_000 };

test.each([true, false])("a collection is watched in shards (offered by the server: %s)", async (offered) => {
  await using cluster = await Cluster.start({
    name: "shards",
    ...BARE,
    flags: { "kube-apiserver": { "feature-gates": `ShardedListAndWatch=${offered}` } },
  });
  // Nothing is broken: the proxy tells what it has seen.
  const certificate = await cluster.identity.servingCertificate(["localhost"], ["127.0.0.1"]);
  await using proxy = await FaultProxy.start({
    target: { host: "127.0.0.1", port: Number(new URL(cluster.url).port) },
    tls: { ...certificate, targetCaPem: cluster.identity.certificateAuthorityPem },
  });
  const kubeconfig = await cluster.kubeconfigFor({ token: cluster.identity.adminToken }, { server: proxy.url });
  const transport = createHttpsTransport(await loadClusterAccess(kubeconfig), {
    ports: systemPorts,
    userAgent: "test",
  });
  expect(await offersShards(new ApiClient(transport), PATH, CALL)).toBe(offered);
  const churn = new Churn(cluster.admin, "default");
  churn.start();
  const sent = [0, 0, 0, 0];
  const source = new ShardedReflector<{ name: string; uid: string; version: string }>({
    name: "maps",
    transport,
    ports: systemPorts,
    path: PATH,
    shards: 4,
    serverTimeoutSeconds: [4, 5],
    parse: (raw) => {
      if (!isRawObject(raw)) throw new Error("no object");
      const { name = "", uid = "", resourceVersion = "" } = raw.metadata;
      return { name, uid, version: resourceVersion };
    },
    keyOf: (item) => item.name,
    uidOf: (item) => item.uid,
    versionOf: (item) => item.version,
    onEvent: (event, shard) => {
      if (event.kind === "ended") sent[shard] = (sent[shard] ?? 0) + event.events;
    },
  });
  source.start();
  await source.whenSynced();
  await cluster.waitFor("two streams of each shard to end", async () => !sent.includes(0));
  await churn.stop();
  const truth = await quorumState(cluster.admin, PATH);
  const sinceMs = systemPorts.clock.monotonicMs();
  source.requestEvidence();
  await cluster.waitFor("evidence that all shards are current", async () => (source.confirmedSentMs ?? 0) >= sinceMs);
  const held = [...source.values()].map((item) => `${item.name} ${item.uid}@${item.version}`).sort();
  expect(held).toEqual(truth.objects);
  expect(source.position?.split(",")).toHaveLength(4);
  await source.stop();
  transport.close();
});
