/**
 * `npm run bench -- status`: the cost for kube-apiserver of the webhook for status writes, whose match conditions
 * exclude nearly all of them (docs/design.md#status-writes).
 */
import type { Cluster } from "../control-plane/cluster.ts";
import { registrations } from "../environment/webhook-configuration.ts";
import { readOptions } from "../options.ts";
import { bareCluster, each, PODS, podName } from "./fixture/cell-fixture.ts";
import { measureWrites, type WriteCost, withAndWithout } from "./fixture/write-cost.ts";

const HELP = `usage: npm run bench -- status [options]

  --rounds N   how often it is measured with the rule and without it, in turn (default 4; medians are printed)
  --writes N   status writes in each (default 4000), as many a second as the apiserver takes
`;
const PODS_COUNT = 100;
const GATE = "InPlaceUpdateReady";
const CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podseidon";
const STRATEGIC = { contentType: "application/strategic-merge-patch+json" };

export async function run(args: readonly string[]): Promise<number> {
  const options = readOptions(args, HELP, {
    rounds: { type: "string", default: "4" },
    writes: { type: "string", default: "4000" },
  });
  if (typeof options === "number") return options;
  await using cluster = await bareCluster();
  await createGatedPods(cluster);
  await measure(cluster, Number(options.writes));
  await withAndWithout(
    "writes of a pod's status that ask nobody",
    Number(options.rounds),
    (isOn) => setRule(cluster, isOn),
    () => measure(cluster, Number(options.writes)),
  );
  return 0;
}

/** Three containers with 30 variables each, and the gate that makes the conditions look at every part of the pod. */
async function createGatedPods(cluster: Cluster): Promise<void> {
  const env = Array.from({ length: 30 }, (_, index) => ({ name: `VARIABLE_${index}`, value: "x".repeat(60) }));
  const containers = ["a", "b", "c"].map((name) => ({ name, image: "app:1", env }));
  const spec = { nodeName: "node-x", readinessGates: [{ conditionType: GATE }], containers };
  await each(PODS_COUNT, async (index) => {
    const metadata = { name: podName(index) };
    await cluster.admin.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata, spec });
    await patchStatus(cluster, index, GATE, "True");
    await patchStatus(cluster, index, "Ready", "True");
  });
}

async function patchStatus(cluster: Cluster, pod: number, type: string, status: string, message = ""): Promise<number> {
  const body = { status: { phase: "Running", conditions: [{ type, status, message }] } };
  return (await cluster.admin.request("PATCH", `${PODS}/${podName(pod)}/status`, body, STRATEGIC)).status;
}

/**
 * No process listens at the webhook's address, so that a write that needs the webhook fails: the measured writes must
 * not need it.
 */
async function setRule(cluster: Cluster, isOn: boolean): Promise<void> {
  await cluster.admin.request("DELETE", CONFIGURATION);
  if (isOn) {
    const caPem = cluster.identity.certificateAuthorityPem;
    const [configuration] = registrations({ cell: "bench", url: "https://127.0.0.1:1", caPem });
    await cluster.apply([configuration]);
  }
  await cluster.waitFor(`the rule to be ${isOn ? "in force" : "gone"}`, async () => {
    const isDenied = (await patchStatus(cluster, 0, GATE, "False")) !== 200;
    await patchStatus(cluster, 0, GATE, "True");
    return isDenied === isOn;
  });
}

function measure(cluster: Cluster, writes: number): Promise<WriteCost> {
  const startedMs = performance.now();
  return measureWrites(cluster, writes, async (index) => {
    const status = await patchStatus(cluster, index % PODS_COUNT, "Ready", "True", `${index} ${startedMs}`);
    if (status !== 200) throw new Error(`a status write was answered with ${status}`);
  });
}
