/** What a caller of the webhook's port can do to its memory, its event loop and its records: the shipped process. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { AttackedWebhook, deletion } from "./attacked-webhook.ts";

const isFull = process.env.PODSEIDON_TEST_SIZE === "full";
const REVIEWS = isFull ? 1_000 : 24;
const HUGE = 4_000_000;
const MAX_GROWTH_BYTES = 50_000_000;
const SENDERS = 12;
const HONEST = 100;

let shipped: AttackedWebhook;
beforeAll(async () => {
  shipped = await AttackedWebhook.start({ flags: ["--bypass-needs-permission"] });
});
afterAll(() => shipped?.[Symbol.asyncDispose]());

const metric = async (name: string): Promise<number> => (await shipped.metric(name)) ?? 0;

/** What keeps memory: each text is new, and as long as the body allows. */
const HOARDS: Readonly<Record<string, (text: string) => object>> = {
  "a label's value": (text) => ({ metadata: { labels: { app: text } } }),
  "a label's key": (text) => ({ metadata: { labels: { [text]: "" } } }),
  "a namespace": (text) => ({ metadata: { namespace: text } }),
  "a pod's name": (text) => ({ metadata: { name: text } }),
  "a condition's type": (text) => ({ status: { conditions: [{ type: text, status: "True" }] } }),
  "a gate's type": (text) => ({ spec: { readinessGates: [{ conditionType: text }] } }),
};

/** Garbage that was not collected is no leak: the heap is measured under the pressure of the reviews themselves. */
async function heapAfter(send: (index: number) => Promise<unknown>): Promise<number> {
  for (let index = 0; index < REVIEWS; index++) await send(index);
  let least = Number.POSITIVE_INFINITY;
  for (let index = 0; index < REVIEWS; index++) {
    await shipped.send(deletion({ spec: { note: "x".repeat(2_000_000) } }));
    least = Math.min(least, await metric("nodejs_heap_size_used_bytes"));
  }
  return least;
}

describe("memory", () => {
  it(`is within 50 MB of before after ${REVIEWS} reviews with huge texts`, async () => {
    const before = await heapAfter(async () => undefined);
    const hoards = Object.values(HOARDS);
    const statuses: Record<number, number> = {};
    const after = await heapAfter(async (index) => {
      const pod = hoards[index % hoards.length]?.(`${index}${"x".repeat(HUGE)}`) ?? {};
      const { status } = await shipped.send(deletion(pod));
      statuses[status] = (statuses[status] ?? 0) + 1;
    });
    process.stdout.write(`memory: ${JSON.stringify(statuses)}, grown by ${((after - before) / 1e6).toFixed(1)} MB\n`);
    expect(after - before).toBeLessThan(MAX_GROWTH_BYTES);
  });

  it("does not hold the attributes of forged users, and the cell is not asked about huge ones", async () => {
    const annotations = { "podseidon.kubewharf.io/force-delete": "x" };
    const send = async (index: number): Promise<void> => {
      const userInfo = { username: `forged-${index}`, extra: { key: ["x".repeat(2_500_000)] } };
      await shipped.send(deletion({ metadata: { annotations }, ...running() }, { userInfo }));
    };
    await send(-1);
    const before = await heapAfter(async () => undefined);
    const after = await heapAfter(send);
    const bytes = shipped.bodies("POST", /\/subjectaccessreviews$/).reduce((sum, body) => sum + body.length, 0);
    process.stdout.write(`forged users: grown by ${((after - before) / 1e6).toFixed(1)} MB, ${bytes} bytes asked\n`);
    expect(after - before).toBeLessThan(MAX_GROWTH_BYTES);
    expect(bytes).toBeLessThan(1_000_000);
  });
});

/** Not exempt from protection. */
function running(): object {
  const conditions = [{ type: "Ready", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" }];
  return { spec: { nodeName: "node-1" }, status: { phase: "Running", conditions } };
}

describe("a review that no apiserver sends is refused", () => {
  const long = "x".repeat(318);
  it.each([
    ...Object.entries(HOARDS).filter(([what]) => !what.includes("type")),
    ["a version that is no number", () => ({ metadata: { resourceVersion: "x" } })],
    ["version zero", () => ({ metadata: { resourceVersion: "0" } })],
    ["a negative version", () => ({ metadata: { resourceVersion: "-1" } })],
  ])("%s", async (_, podOf) => {
    expect(await shipped.send(deletion(podOf(long)))).toMatchObject({ status: 400 });
  });

  it("an eviction of a pod whose name has 2 MiB, once", async () => {
    const name = "x".repeat(2 * 1024 * 1024);
    const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name } };
    const review = deletion({}, { operation: "CREATE", subResource: "eviction", name, object: eviction });
    const asked = (): number => shipped.calls.filter(({ path }) => /\/(pods|events)\b/.test(path)).length;
    const before = asked();
    expect(await shipped.send(review)).toMatchObject({ status: 400, text: expect.stringContaining("request.name") });
    expect(asked()).toBe(before);
  });

  it("a deletion that carries more than one object", async () => {
    const { status } = await shipped.send(deletion({ spec: { note: "x".repeat(6_000_000) } }));
    expect([413, 0]).toContain(status);
  });
});

it(`${HONEST} reviews are answered while ${SENDERS} senders of large reviews are not waited for`, async () => {
  const keys = Object.fromEntries(Array.from({ length: 300_000 }, (_, index) => [`k${index}`, { a: [index] }]));
  const attack = Buffer.from(deletion({ spec: keys }, { operation: "UPDATE" }));
  let isOver = false;
  let sent = 0;
  const parsed = async (): Promise<number> => await metric("podseidon_webhook_review_seconds_count");
  const before = await parsed();
  const senders = Array.from({ length: SENDERS }, async () => {
    while (!isOver) {
      await shipped.send(attack);
      sent++;
    }
  });
  const tookMs: number[] = [];
  for (let index = 0; index < HONEST; index++) {
    const startedMs = performance.now();
    const { status, text } = await shipped.send(deletion());
    // The apiserver is in the thread of the senders: on a busy machine it may be too slow for the webhook.
    if (status !== 500) expect({ status, text }).toMatchObject({ status: 200 });
    expect(text).not.toContain("because of a defect");
    expect(text).not.toContain("too many admission requests");
    tookMs.push(performance.now() - startedMs);
  }
  isOver = true;
  await Promise.all(senders);
  tookMs.sort((a, b) => a - b);
  const p99 = tookMs[Math.floor(HONEST * 0.99)] ?? 0;
  process.stdout.write(
    `large reviews: ${attack.length} bytes each, ${sent} sent meanwhile, honest reviews: p99 ${p99.toFixed(0)} ms\n`,
  );
  // Not one of the large reviews was parsed.
  expect((await parsed()) - before).toBeLessThanOrEqual(HONEST);
});
