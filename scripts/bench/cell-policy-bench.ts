/**
 * `npm run bench -- cell-policy`: the cost for kube-apiserver of the policies that restrict each cell to its own entry
 * (docs/decisions/0011-what-a-cell-may-write.md).
 */
import type { ApiserverClient } from "../control-plane/api-client.ts";
import { BARE, Cluster } from "../control-plane/cluster.ts";
import { applyOverlay } from "../demo/install.ts";
import { asAccount, createCellAccounts } from "../environment/cell-accounts.ts";
import { readOptions } from "../options.ts";
import { createProtectors, PROTECTORS, protectorName } from "./fixture/cell-fixture.ts";
import { measureWrites, type WriteCost, withAndWithout } from "./fixture/write-cost.ts";

const HELP = `usage: npm run bench -- cell-policy [options]

  --rounds N   how often it is measured with the policies and without them, in turn (default 4; medians are printed)
  --writes N   status writes in each (default 2000), as many a second as the apiserver takes
`;
const CELLS = 5;
const RESERVATIONS_PER_CELL = 10;
/** Each protector has one write at a time. */
const PROTECTOR_COUNT = 16;
const BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/podseidon-cell-status";
const OWN_CELL = "cell-0";
const SOME_TIME = "2026-01-01T00:00:00.000000Z";

export async function run(args: readonly string[]): Promise<number> {
  const options = readOptions(args, HELP, {
    rounds: { type: "string", default: "4" },
    writes: { type: "string", default: "2000" },
  });
  if (typeof options === "number") return options;
  await using core = await Cluster.start({ name: "bench", ...BARE });
  await applyOverlay(core, "core");
  await createCellAccounts(core, OWN_CELL);
  await createProtectors(core.admin, 0, PROTECTOR_COUNT);
  const webhook = await asAccount(core, `webhook.${OWN_CELL}`);
  const binding = withoutVersion(await core.admin.get(BINDING));
  await measure(core, webhook, Number(options.writes));
  await withAndWithout(
    `a webhook's write of a status with ${CELLS} cells, ${RESERVATIONS_PER_CELL} reservations each`,
    Number(options.rounds),
    (isOn) => setPolicy(core, webhook, binding, isOn),
    () => measure(core, webhook, Number(options.writes)),
  );
  webhook.close();
  return 0;
}

function withoutVersion(object: unknown): object {
  const { metadata, ...rest } = Object(object);
  return { ...rest, metadata: { name: metadata.name } };
}

/** The entries of all cells. The writer's own entry differs in each write by the admitted pod. */
function statusOf(write: number | string): object {
  const cells = Array.from({ length: CELLS }, (_, cell) => ({
    cellID: `cell-${cell}`,
    aggregation: { totalReplicas: 20, availableReplicas: 20, resourceVersion: "5", epoch: 1 },
    admissionHistory: {
      buckets: Array.from({ length: RESERVATIONS_PER_CELL }, (_, index) => ({
        startTime: SOME_TIME,
        podUID: `${cell}-${index}${cell === 0 ? `-${write}` : ""}`,
        podName: `web-${index}`,
        counter: 1,
        operation: "EVICT",
      })),
    },
  }));
  return { summary: { totalReplicas: 100, aggregatedAvailableReplicas: 100, estimatedAvailableReplicas: 50 }, cells };
}

/** Resolves when the policy is in force or not: only then, a forbidden write by a cell's webhook is rejected. */
async function setPolicy(core: Cluster, webhook: ApiserverClient, binding: object, isOn: boolean): Promise<void> {
  if (isOn) await core.apply([binding]);
  else await core.admin.request("DELETE", BINDING);
  const path = `${PROTECTORS}/${protectorName(0)}`;
  await core.waitFor(`the policy to be ${isOn ? "in force" : "gone"}`, async () => {
    const protector = Object(await core.admin.get(path));
    const status = { ...statusOf("probe"), conditions: [], cells: [] };
    const answer = await webhook.request("PUT", `${path}/status`, { ...protector, status });
    await core.admin.call("PUT", `${path}/status`, {
      ...Object(await core.admin.get(path)),
      status: statusOf("reset"),
    });
    return (answer.status !== 200) === isOn;
  });
}

async function measure(core: Cluster, webhook: ApiserverClient, writes: number): Promise<WriteCost> {
  const startedMs = performance.now();
  const protectors: object[] = [];
  for (let index = 0; index < PROTECTOR_COUNT; index++) {
    const path = `${PROTECTORS}/${protectorName(index)}`;
    const body = { ...Object(await core.admin.get(path)), status: statusOf("first") };
    protectors.push(Object(await core.admin.call("PUT", `${path}/status`, body)));
  }
  const free = protectors.map((_, index) => index);
  const writeOne = async (index: number): Promise<void> => {
    const own = free.pop() ?? 0;
    const body = { ...protectors[own], status: statusOf(`${index}-${startedMs}`) };
    protectors[own] = Object(await webhook.call("PUT", `${PROTECTORS}/${protectorName(own)}/status`, body));
    free.push(own);
  };
  return await measureWrites(core, writes, writeOne, PROTECTOR_COUNT);
}
