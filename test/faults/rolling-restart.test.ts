/**
 * Three webhook replicas are replaced one after another while pods are deleted all the time. No admission request
 * fails.
 */

import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiserverClient } from "../../scripts/control-plane/api-client.ts";
import { BARE } from "../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import type { WebhookReplica } from "../../scripts/environment/webhook-process.ts";
import { DISMISSAL } from "../../webhook/http/server.ts";
import { OtherWebhook } from "../support/cluster/other-webhook.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../support/cluster/protectors.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const ROUNDS = FULL ? 5 : 1;
const PODS = "/api/v1/namespaces/default/pods";
/** Each client has one deletion in progress at any time. */
const WORKERS = 12;
const GUARDED = 6;
/** How long the endpoints of a Service take to reach every node's rules. */
const ENDPOINTS_LAG_MS = 1000;

let environment: TestEnvironment;

beforeAll(async () => {
  environment = await TestEnvironment.start({ cells: ["cell"], single: true, cell: BARE });
});

afterAll(() => environment?.stop());

interface Load {
  /** Responses by status; 0: no response. */
  readonly answers: Map<number, number>;
  /** Unexpected responses. */
  readonly oddities: string[];
  stop(): Promise<void>;
}

/** Deletes pods without pause: unprotected ones, which are allowed, and protected ones of which none can be spared. */
function deleteAllTheTime(guarded: readonly string[]): Load {
  const answers = new Map<number, number>();
  const oddities: string[] = [];
  let running = true;
  const count = (status: number, wanted: number, text: string): void => {
    answers.set(status, (answers.get(status) ?? 0) + 1);
    if (status !== wanted) oddities.push(`${status} instead of ${wanted}: ${text}`);
  };
  const work = async (worker: number): Promise<void> => {
    const { certificateAuthorityPem, adminToken } = environment.core.identity;
    const client = new ApiserverClient({ url: environment.core.url, certificateAuthorityPem, token: adminToken });
    for (let round = 0; running; round++) {
      const kept = guarded[worker % guarded.length] ?? "";
      const name = worker % 2 === 0 ? kept : `free-${worker}-${round}`;
      if (name !== kept) {
        const spec = { schedulerName: "none", containers: [{ name: "app", image: "app:1" }] };
        await client.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata: { name }, spec });
      }
      const answer = await client.request("DELETE", `${PODS}/${name}`).catch((error: unknown) => String(error));
      if (typeof answer === "string") count(0, 200, answer);
      else count(answer.status, name === kept ? 429 : 200, answer.text);
    }
    client.close();
  };
  const workers = Array.from({ length: WORKERS }, (_, index) => work(index));
  return {
    answers,
    oddities,
    stop: async () => {
      running = false;
      await Promise.all(workers);
    },
  };
}

/**
 * Replaces a replica as a Deployment with `maxSurge: 0` does: the old one ends, its endpoint goes a moment later, and
 * then a new one starts.
 */
async function replace(replica: WebhookReplica, name: string): Promise<void> {
  const ended = replica.component.process.kill("SIGTERM");
  await delay(ENDPOINTS_LAG_MS);
  environment.forgetWebhook(replica);
  await ended;
  await environment.addWebhook(name);
}

test("a rolling restart under load fails no admission request", async () => {
  await createProtector(environment.core, "default", "kept", {
    minAvailable: GUARDED,
    selector: { matchLabels: { app: "kept" } },
  });
  const guarded = await createReadyPods(environment.core, {
    namespace: "default",
    prefix: "kept",
    count: GUARDED,
    labels: { app: "kept" },
  });
  await waitUntilSettled(environment.core, "default", "kept", GUARDED);
  const load = deleteAllTheTime(guarded);
  let replaced = 0;
  for (let round = 0; round < ROUNDS; round++) {
    for (const replica of [...environment.webhooks]) await replace(replica, `replacement-${++replaced}`);
  }
  await load.stop();
  process.stdout.write(`rolling restart of ${replaced} replicas: answers ${JSON.stringify([...load.answers])}\n`);
  expect(load.oddities).toEqual([]);
  expect(environment.balancer.refused).toBe(0);
  // Each new replica took over connections of replicas that ended after its start.
  for (const { component } of environment.webhooks.slice(0, -1)) {
    expect(await component.metric("podseidon_webhook_reviews_total")).toBeGreaterThan(0);
  }
});

test("kube-apiserver repeats a request that crosses the end of its connection", async () => {
  await using other = await OtherWebhook.start(environment.core);
  await other.register(environment.core);
  const [first = "", second = ""] = await createReadyPods(environment.core, {
    namespace: "default",
    prefix: "crossing",
    count: 2,
    labels: { app: "crossing" },
  });
  const dryRun = (name: string) => environment.core.admin.request("DELETE", `${PODS}/${name}?dryRun=All`);
  await environment.core.waitFor("the other webhook to be asked", async () => {
    await dryRun(first);
    return other.requests > 0;
  });
  const before = other.requests;
  other.lastWords = DISMISSAL;
  other.opinion = () => false;
  const answer = await dryRun(second);
  // Its failurePolicy is Ignore: without the repetition the deletion would be allowed.
  expect([answer.status, other.requests - before]).toEqual([403, 2]);
});
