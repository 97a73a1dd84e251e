/** The tools of every scene: the clusters, the availability judge, the narrator, and waits that show the counts. */
import { setTimeout as delay } from "node:timers/promises";
import { field } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import type { KubectlResult } from "../control-plane/kubectl.ts";
import { type Recorder, type ReviewSums, SUMMED } from "../report/record.ts";
import type { AvailabilityJudge } from "./availability.ts";
import { NAMESPACE, WORKLOAD } from "./federation.ts";
import type { Installation } from "./install.ts";
import type { PlayedPod } from "./kubelet.ts";
import type { Narrator } from "./narrator.ts";

/** One promise to the viewer, and whether it held. */
export interface Promised {
  readonly text: string;
  readonly held: boolean;
}

export interface DemoScene {
  readonly title: string;
  /** Reports promises to `DemoStage.promise`; rejects when the scene can't continue. */
  readonly play: (stage: DemoStage) => Promise<void>;
}

const POLL_MS = 100;
const COUNTS_EVERY_MS = 500;
const UNTIL_TIMEOUT_MS = 180_000;
const HTTP_OK = 200;
/** Both numbers are equal when no disruption was admitted since the count. */
const COUNTED = ["aggregatedAvailableReplicas", "estimatedAvailableReplicas"];

export class DemoStage {
  readonly core: Cluster;
  readonly workers: readonly Cluster[];
  readonly availability: AvailabilityJudge;
  readonly narrator: Narrator;
  readonly promised: Promised[] = [];
  readonly #installation: Installation;
  /** The fewest available pods while 8 were promised. */
  lowest = Number.POSITIVE_INFINITY;
  /** All responses of the webhook, after the last scene. */
  total: ReviewSums = { admitted: 0, refused: 0, busy: 0 };
  /** Undefined without a report. */
  #recorder: Recorder | undefined;

  constructor(
    core: Cluster,
    workers: readonly Cluster[],
    availability: AvailabilityJudge,
    narrator: Narrator,
    installation: Installation,
  ) {
    this.core = core;
    this.workers = workers;
    this.availability = availability;
    this.narrator = narrator;
    this.#installation = installation;
  }

  promise(held: boolean, text: string): void {
    this.promised.push({ held, text });
    this.narrator.verdict(held, text);
  }

  /** From now on, `recorder` records the counts. */
  record(recorder: Recorder): void {
    this.#recorder = recorder;
    this.availability.listen(({ available }) => recorder.available(available));
  }

  /** The sum of the responses of all webhook replicas. */
  reviews(): Promise<ReviewSums> {
    const urls = this.#installation.pods
      .filter(({ webhookPort }) => webhookPort !== undefined)
      .map((pod) => pod.metricsUrl);
    return scrapeReviews(urls);
  }

  /** The process of a Deployment of the project in a cluster. */
  processOf({ name }: Cluster, deployment: string): PlayedPod | undefined {
    const pods = this.#installation.pods.filter((pod) => pod.deployment === deployment);
    return pods.find(({ process }) => process.name.startsWith(`${name}/`));
  }

  /** The minAvailable of the workload's protector; undefined without a protector. */
  async required(): Promise<number | undefined> {
    const value = field(await this.#protector(), "spec", "minAvailable");
    return typeof value === "number" ? value : undefined;
  }

  /** Undefined without a protector. */
  async #protector(): Promise<unknown> {
    const path = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors/deployment-${WORKLOAD}`;
    const { status, body } = await this.core.admin.request("GET", path);
    return status === HTTP_OK ? body : undefined;
  }

  /**
   * Runs a command, whose words have no blanks, in all of the clusters at the same time, shows the counts meanwhile,
   * and prints the command like a user would type it.
   */
  async kubectl(clusters: readonly Cluster[], command: string): Promise<KubectlResult[]> {
    for (const { name } of clusters) this.narrator.command(`kubectl --context ${name} ${command}`);
    return await this.during(Promise.all(clusters.map((cluster) => cluster.kubectl(command.split(" ")))));
  }

  /** Shows the counts until `work` is done. */
  async during<T>(work: Promise<T>): Promise<T> {
    const before = await this.reviews();
    let done = false;
    const finished = work.finally(() => {
      done = true;
    });
    // The caller handles the rejection.
    finished.catch(() => {});
    while (!done) {
      await this.#showCounts(before);
      await Promise.race([delay(COUNTS_EVERY_MS), finished.catch(() => {})]);
    }
    return await finished;
  }

  /**
   * Resolves when `condition` resolves with true, and shows the counts meanwhile; rejects after three minutes, naming
   * `what`.
   */
  async until(what: string, condition: () => boolean | Promise<boolean>, timeoutMs = UNTIL_TIMEOUT_MS): Promise<void> {
    await this.during(this.#poll(what, condition, timeoutMs));
  }

  /** Resolves when `count` pods are available and no others exist, and the protector counts them all. */
  async untilWhole(count: number): Promise<void> {
    await this.until(`${count} available pods and no others`, () => {
      const { total, pods, terminating } = this.availability.counts();
      return total === count && pods === count && terminating === 0;
    });
    // The quota of the next scene comes from the protector's count, which follows the pods.
    await this.until(`a count of ${count} available pods, with no disruption under way`, async () => {
      const summary = field(await this.#protector(), "status", "summary");
      return COUNTED.every((name) => field(summary, name) === count);
    });
  }

  async #poll(what: string, condition: () => boolean | Promise<boolean>, timeoutMs: number): Promise<void> {
    const deadlineMs = performance.now() + timeoutMs;
    while (!(await condition())) {
      if (performance.now() > deadlineMs) throw new Error(`waited ${timeoutMs / 1000} s for ${what}`);
      await delay(POLL_MS);
    }
  }

  async #showCounts(before: ReviewSums): Promise<void> {
    const [required, reviews] = await Promise.all([this.required(), this.reviews()]);
    this.#recorder?.promised(required);
    this.#recorder?.reviewed(reviews);
    const { available, total, terminating } = this.availability.counts();
    const { admitted, refused, busy } = reviewsSince(reviews, before);
    const shares = available.map((count, index) => `${this.workers[index]?.name} ${count}`).join(", ");
    this.narrator.counts(
      `available ${total} (${shares})  promised ${required ?? "-"}  terminating ` +
        `${terminating}  |  allowed ${admitted}, denied ${refused + busy}`,
    );
  }
}

const LINE = /^podseidon_webhook_reviews_total\{([^}]*)\} (\S+)$/gm;

/** The sum over the replicas whose metrics are at `urls`. */
async function scrapeReviews(urls: readonly string[]): Promise<ReviewSums> {
  const sum: Record<keyof ReviewSums, number> = { admitted: 0, refused: 0, busy: 0 };
  const pages = await Promise.all(urls.map(async (url) => await (await fetch(url)).text()));
  for (const [, labels = "", value] of pages.flatMap((page) => [...page.matchAll(LINE)])) {
    const outcome = SUMMED[/outcome="([^"]*)"/.exec(labels)?.[1] ?? ""];
    if (outcome !== undefined) sum[outcome] += Number(value);
  }
  return sum;
}

export function reviewsSince(now: ReviewSums, before: ReviewSums): ReviewSums {
  const since = (kind: keyof ReviewSums): number => now[kind] - before[kind];
  return { admitted: since("admitted"), refused: since("refused"), busy: since("busy") };
}
