/**
 * Honest reviews while a caller of the port sends large ones: their latency with and without the attack, how long the
 * event loop is blocked, and memory. The senders have their own thread.
 */
import { request } from "node:https";
import { setTimeout as delay } from "node:timers/promises";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { startWebhook, type WebhookReplica } from "../environment/webhook-process.ts";
import { bareCluster } from "./fixture/cell-fixture.ts";
import { processFigures, quantile, ratio, table } from "./fixture/figures.ts";
import { deleteReview, ReviewClient } from "./fixture/review-client.ts";

const CELL = "cell-1";
const SENDERS = 12;
/** The rate of all senders together. */
const BYTES_PER_SECOND = 11_000_000;
const CHUNK_BYTES = 64 * 1024;
const REVIEWS = 600;
const REVIEW_EVERY_MS = 25;
/** Each kind is sent alone, so that only this review blocks the loop. */
const ALONE = 10;
const LAG = "nodejs_eventloop_lag_max_seconds";
/** How often the event loop is sampled, which is part of each figure. */
const SAMPLED_EVERY_MS = 10;

const POD = { namespace: "default", name: "web", uid: "1", resourceVersion: "1", labels: {} };

function large(operation: string, spec: object): string {
  const review = deleteReview(POD);
  const { request: asked } = Object(review);
  return JSON.stringify({ ...Object(review), request: { ...asked, operation, object: { ...asked.oldObject, spec } } });
}

function keys(count: number, length: number): object {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`.padEnd(length, "x"), index]));
}

const KINDS: Readonly<Record<string, () => string>> = {
  "UPDATE, 300,000 values": () => large("UPDATE", keys(300_000, 14)),
  "UPDATE, as many values as may be": () => large("UPDATE", keys(49_000, 130)),
  "UPDATE, one text": () => large("UPDATE", { note: "x".repeat(7_000_000) }),
  "DELETE, one text": () => large("DELETE", { note: "x".repeat(5_000_000) }),
};

type Target = Pick<WebhookReplica, "url" | "caPem">;

/** The status of the answer; 0 where the connection was closed first. */
function send({ url, caPem }: Target, body: Buffer, pauseMs: number): Promise<number> {
  return new Promise((resolve) => {
    const headers = { "content-type": "application/json", "content-length": body.length };
    const sending = request(`${url}/webhook/${CELL}?timeout=10s`, { method: "POST", ca: caPem, headers, agent: false });
    let isOver = false;
    const end = (status: number): void => {
      isOver = true;
      resolve(status);
    };
    sending.on("response", (response) => {
      response.resume();
      end(response.statusCode ?? 0);
    });
    sending.on("error", () => end(0));
    void (async (): Promise<void> => {
      for (let from = 0; from < body.length && !isOver; from += CHUNK_BYTES) {
        sending.write(body.subarray(from, from + CHUNK_BYTES));
        if (pauseMs > 0) await delay(pauseMs);
      }
      sending.end();
    })();
  });
}

async function attack(target: Target): Promise<never> {
  const bodies = Object.values(KINDS).map((make) => Buffer.from(make()));
  const pauseMs = (1000 * CHUNK_BYTES * SENDERS) / BYTES_PER_SECOND;
  parentPort?.postMessage("sending");
  await Promise.all(
    Array.from({ length: SENDERS }, async (_, index) => {
      for (let turn = index; ; turn++) await send(target, bodies[turn % bodies.length] ?? Buffer.alloc(0), pauseMs);
    }),
  );
  throw new Error("the senders ended");
}

async function honest(client: ReviewClient): Promise<readonly number[]> {
  const tookMs: number[] = [];
  const reviews: Promise<void>[] = [];
  for (let index = 0; index < REVIEWS; index++) {
    const asked = client.review(CELL, deleteReview({ ...POD, name: `web-${index}`, uid: `uid-${index}` }));
    reviews.push(asked.then((answer) => void tookMs.push(answer.tookMs)));
    await delay(REVIEW_EVERY_MS);
  }
  await Promise.all(reviews);
  return tookMs;
}

/** One table of single reviews, and one of honest reviews with the attack and without it. */
export async function hostileTables(): Promise<string> {
  await using cluster = await bareCluster();
  const { component, url, caPem } = await startWebhook({
    ...{ name: "webhook", directory: `${cluster.directory}/hostile`, authority: cluster },
    ...{ cores: { core: cluster.kubeconfig }, cells: { [CELL]: "" } },
  });
  await using _ = component;
  const held = async (): Promise<number> =>
    Math.max(0, 1000 * ((await component.metric(LAG)) ?? Number.NaN) - SAMPLED_EVERY_MS);
  const alone: string[][] = [];
  for (const [kind, make] of Object.entries(KINDS)) {
    const body = Buffer.from(make());
    const heldMs: number[] = [];
    let status = 0;
    for (let index = 0; index < ALONE; index++) {
      await held();
      status = await send({ url, caPem }, body, 0);
      heldMs.push(await held());
    }
    alone.push([kind, `${(body.length / 1e6).toFixed(1)} MB`, String(status), ...figures(heldMs)]);
  }
  const client = new ReviewClient(url, caPem);
  await held();
  const quiet = [await honest(client), await held()] as const;
  const worker = new Worker(new URL(import.meta.url), { workerData: { url, caPem } });
  await new Promise((resolve) => worker.once("message", resolve));
  await held();
  const attacked = [await honest(client), await held()] as const;
  const peak = processFigures(component.process.pid ?? 0).peakResidentBytes / 1e6;
  await worker.terminate();
  client.close();
  const row = (name: string, of: (run: typeof quiet) => number): string[] => {
    const [before, now] = [of(quiet), of(attacked)];
    return [name, before.toFixed(1), now.toFixed(1), ratio(now, before)];
  };
  const rows = [
    row("p50 ms", ([tookMs]) => quantile(tookMs, 0.5)),
    row("p99 ms", ([tookMs]) => quantile(tookMs, 0.99)),
    row("slowest ms", ([tookMs]) => quantile(tookMs, 1)),
    row("event loop held, longest ms", ([, longest]) => longest),
  ];
  return [
    table(["one review", "size", "answer", "loop held p50 ms", "longest ms"], alone),
    table([`${REVIEWS} honest reviews`, "alone", `${SENDERS} senders, 11 MB/s`, "ratio"], rows),
    `most memory: ${peak.toFixed(0)} MB resident\n`,
  ].join("\n\n");
}

function figures(valuesMs: readonly number[]): string[] {
  return [quantile(valuesMs, 0.5).toFixed(1), quantile(valuesMs, 1).toFixed(1)];
}

if (!isMainThread && parentPort !== null) await attack(workerData);
