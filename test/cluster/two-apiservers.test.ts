import { setTimeout as delay } from "node:timers/promises";
import { test } from "vitest";
import { type AnotherApiserver, BARE } from "../../scripts/control-plane/cluster.ts";
import { Balancer } from "../../scripts/environment/balancer.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { field } from "../../scripts/control-plane/api-client.ts";
import { LaggingEtcd } from "../support/cluster/lagging-etcd.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import { createProtector, readProtector, waitUntilSettled } from "../support/cluster/protectors.ts";

test("lab", async () => {
  let second!: AnotherApiserver;
  let etcd!: LaggingEtcd;
  let balancer!: Balancer;
  let setup: Promise<void> | undefined;
  const env = await TestEnvironment.start({
    cells: ["cell"], single: true, cell: BARE, replicas: 2, settle: "10s", leaseNamespace: "podseidon-system",
    environment: {},
    kubeconfig: async (component, cluster) => {
      setup ??= (async () => {
        etcd = await LaggingEtcd.start(cluster);
        second = await cluster.addApiserver({ "etcd-servers": etcd.url });
        balancer = await Balancer.listen([cluster.url, second.url].map((u) => ({ host: "127.0.0.1", port: Number(new URL(u).port) })));
      })();
      await setup;
      const target = process.env.PIN === undefined ? `https://127.0.0.1:${balancer.port}` : /1|aggr/.test(component) && process.env.PIN==="1" ? cluster.url : second.url;
      return await cluster.kubeconfigFor({ token: cluster.identity.adminToken }, { server: target });
    },
  });
  try {
    const { core } = env;
    await createProtector(core, "default", "app", { minAvailable: 10, selector: { matchLabels: { app: "app" } } });
    await createReadyPods(core, { namespace: "default", prefix: "app", count: 60, labels: { app: "app" } });
    await waitUntilSettled(core, "default", "app", 60, 60_000);
    const start = performance.now();
    etcd.hold(true);
    console.log("HOLD");
    let i = 0;
    while (performance.now() - start < Number(process.env.LAG ?? 45) * 1000) {
      const t = performance.now();
      const a = await core.admin.request("DELETE", `/api/v1/namespaces/default/pods/app-${i}`).catch((e: unknown) => ({ status: 0, text: String(e), body: undefined }));
      if (a.status === 200) i++;
      const ready = await Promise.all(env.webhooks.map(async (w) => (await fetch(`${w.component.healthUrl}/readyz`)).status));
      const p = await readProtector(core, "default", "app");
      const c = p.status?.cells?.[0];
      console.log(((t - start) / 1000).toFixed(1), "del", a.status, Math.round(performance.now() - t), "ms", String(field(a.body, "message") ?? "").slice(0, 200), "ready", ready.join(), "avail", c?.aggregation?.availableReplicas, "buckets", c?.admissionHistory?.buckets?.length, "hold", JSON.stringify(c?.admissionHistory)?.includes("hold"));
      await delay(1500);
    }
    etcd.hold(false);
    console.log("RELEASED");
    const t = performance.now();
    await waitUntilSettled(core, "default", "app", 60 - i, 60_000);
    console.log("settled after", performance.now() - t);
    const p = await readProtector(core, "default", "app");
    console.log(JSON.stringify(p.status).slice(0, 1500));
    console.log(env.keepLogs());
  } finally {
    await env.stop();
    await etcd[Symbol.asyncDispose]();
    await balancer.close();
  }
});
