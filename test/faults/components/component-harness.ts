/**
 * An installation whose every connection to an apiserver goes through a proxy, and the work that needs each connection.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { conditionStatus, field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, type Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { Flags } from "../../../scripts/control-plane/components.ts";
import { Component } from "../../../scripts/environment/component.ts";
import type { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { GROUP, UPDATE_TRIGGER_COUNTER_ANNOTATION, UPDATE_TRIGGER_POD } from "../../../shared/schema/annotations.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { setReady } from "../../support/cluster/pods.ts";
import { createProtector, readProtector } from "../../support/cluster/protectors.ts";
import { HistoryRecorder } from "../../support/history/history-recorder.ts";
import { addFaultRow, EvidenceMark, traffic } from "./component-evidence.ts";
import type { ComponentLink, Link, Links } from "./component-links.ts";
import { CountTruth } from "./component-truth.ts";

const APP = "guarded";
const NAMESPACE = "default";
const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;
const DEPLOYMENTS = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`;
/** Pods that become unready and ready all the time. */
const RESTLESS = 6;
const CHURN_PAUSE_MS = 200;
/** The apiserver gives up a deletion after REQUEST_TIMEOUT; a reservation settles a little later. */
const REQUEST_TIMEOUT = "8s";
const SETTLE = "10s";
const FIRST_REPLICAS = 4;
const RETRY_MS = 200;
/** Characters of one to four bytes, so that some cuts are inside a character. */
const TEXT = "grün 🟢 東 x ".repeat(12);

export interface ComponentFault<L extends Link = ComponentLink> {
  readonly name: string;
  /** The affected links. */
  readonly links: readonly L[];
  /** Nothing passes during the fault, so no request belongs to normal work. */
  readonly isOutage: boolean;
  /** Nothing may fail: no component complains, and each deletion is decided. */
  readonly isSilent?: boolean;
  /** Runs before the fault. */
  prepare?(): Promise<unknown>;
  begin(): Promise<unknown>;
  end(): Promise<unknown>;
}

export class ComponentHarness<L extends Link = ComponentLink> implements AsyncDisposable {
  readonly environment: TestEnvironment;
  readonly recorder: HistoryRecorder;
  readonly links: Links<L>;
  readonly components: ReadonlyMap<string, Component>;
  readonly #truth: CountTruth;
  readonly #directory: string;
  #churning: Promise<void> | undefined;
  #calm = false;
  #pods = 0;
  #replicas = FIRST_REPLICAS;

  private constructor(
    { environment, recorder }: Awaited<ReturnType<typeof HistoryRecorder.start>>,
    links: Links<L>,
    truth: CountTruth,
    directory: string,
    components: readonly Component[],
  ) {
    this.environment = environment;
    this.recorder = recorder;
    this.links = links;
    this.#truth = truth;
    this.#directory = directory;
    this.components = new Map(components.map((component) => [component.name, component]));
  }

  static async start<L extends Link>(
    linksIn: (directory: string) => Links<L>,
    apiserver: Flags = {},
  ): Promise<ComponentHarness<L>> {
    const directory = mkdtempSync(join(tmpdir(), "podseidon-links-"));
    const links = linksIn(directory);
    const kubeconfig = (component: string, cluster: Cluster): Promise<string> => links.kubeconfig(component, cluster);
    const bare = { ...BARE, flags: { "kube-apiserver": { "request-timeout": REQUEST_TIMEOUT, ...apiserver } } };
    const recorded = await HistoryRecorder.start({
      cells: ["cell"],
      replicas: 1,
      settle: SETTLE,
      core: bare,
      cell: bare,
      leaseNamespace: NAMESPACE,
      kubeconfig,
      environment: links.environment,
    });
    const { environment } = recorded;
    const cell = environment.cell("cell");
    const more = async (
      kind: "generator" | "update-trigger",
      cluster: Cluster,
      ...args: string[]
    ): Promise<Component> =>
      Component.start({
        kind,
        name: kind,
        directory,
        environment: links.environment,
        args: ["--kubeconfig", await kubeconfig(kind, cluster), "--leader-elect-namespace", NAMESPACE, ...args],
      });
    const generator = await more("generator", environment.core);
    const trigger = await more("update-trigger", cell, "--namespace", NAMESPACE, "--interval", "2s");
    await createProtector(environment.core, NAMESPACE, APP, {
      minAvailable: 1,
      selector: { matchLabels: { app: APP } },
    });
    await environment.core.admin.call("PATCH", `/apis/${GROUP}/v1alpha1/namespaces/${NAMESPACE}/podprotectors/${APP}`, {
      metadata: { annotations: { text: TEXT } },
    });
    const truth = await CountTruth.start(environment.core, cell, `app=${APP}`, APP, "cell");
    const components = [...environment.webhooks.map((one) => one.component), ...environment.aggregators.values()];
    const harness = new ComponentHarness<L>(recorded, links, truth, directory, [...components, generator, trigger]);
    await harness.deploy("web");
    await recorded.recorder.untilKnown();
    for (let index = 0; index < RESTLESS; index++) await harness.#createPod(`restless-${index}`);
    harness.churn();
    await Promise.all(links.all.map((link) => harness.#works(link)));
    return harness;
  }

  get cell(): Cluster {
    return this.environment.cell("cell");
  }

  get core(): Cluster {
    return this.environment.core;
  }

  /** The cell is about to be restored. */
  cellGoesBack(): void {
    this.#truth.newEpoch();
  }

  /** The cell was restored. */
  cellWentBack(): void {
    this.#truth.lookAgain();
  }

  /** Changes the readiness of pods all the time, straight at the apiserver. */
  churn(): void {
    this.#calm = false;
    this.#churning ??= (async () => {
      for (let turn = 0; !this.#calm; turn++) {
        const ready = Math.floor(turn / RESTLESS) % 2 === 1;
        await setReady(this.cell, NAMESPACE, `restless-${turn % RESTLESS}`, ready).catch(() => undefined);
        await delay(CHURN_PAUSE_MS);
      }
    })();
  }

  async stopChurn(): Promise<void> {
    this.#calm = true;
    await this.#churning;
    this.#churning = undefined;
  }

  /**
   * Runs the fault while pods change and are deleted, and waits after its end until the work of every connection
   * succeeds. Checks that the processes are the same, that the counts were true, and that there were not too many
   * requests.
   */
  async during(fault: ComponentFault<L>): Promise<void> {
    await this.recorder.during(fault.name, () => this.#during(fault));
  }

  async #during(fault: ComponentFault<L>): Promise<void> {
    await fault.prepare?.();
    const marks = new Map([...this.components].map(([name, component]) => [name, new EvidenceMark(component)]));
    const victims = [await this.#createPod(), await this.#createPod()];
    const startMs = performance.now();
    const beginning = fault.begin();
    // Work for the webhook, whatever its result. A failure of the apiserver does not matter here.
    const attempts = Promise.all(
      [this.#delete(victims[0] ?? ""), this.#evict(victims[1] ?? "")].map((status) => status.catch(String)),
    );
    await beginning;
    const endMs = performance.now();
    await fault.end();
    const endedMs = performance.now();
    const recovered = await Promise.all(
      this.links.all.map(async (link) => {
        await this.#works(link);
        return { link, recoveredMs: performance.now() - endedMs };
      }),
    );
    const statuses = await attempts;
    const storms: string[] = [];
    for (const { link, recoveredMs } of recovered) {
      if (!fault.links.includes(link)) continue;
      const mark = marks.get(link.component);
      const seen = traffic(link, startMs, endMs, fault.isOutage);
      storms.push(...seen.storms.map((storm) => `${link.name}: ${storm}`));
      addFaultRow({ fault: fault.name, link: link.name, noticed: mark?.complaints()[0], recoveredMs, traffic: seen });
    }
    for (const component of new Set(fault.links.map((link) => link.component)))
      storms.push(...(marks.get(component)?.storms() ?? []).map((storm) => `${component}: ${storm}`));
    const restarted = [...marks].filter(([, mark]) => !mark.sameProcess).map(([name]) => name);
    expect({ restarted, storms, wrong: await this.#wrongCounts() }).toEqual({ restarted: [], storms: [], wrong: [] });
    if (fault.isSilent) {
      expect([...marks.values()].flatMap((mark) => mark.complaints())).toEqual([]);
      expect(
        statuses.every((status) => status === 200 || status === 201 || status === 429),
        `${statuses}`,
      ).toBe(true);
    }
    await this.#settled();
  }

  /** Published counts that were not true. Waits until at least one count could be checked. */
  async #wrongCounts(): Promise<readonly string[]> {
    const wrong: string[] = [];
    await this.cell.waitFor("a count whose truth is known", async () => {
      const position = this.#truth.latest?.position;
      // After a restore the first count of the new history may not be published yet.
      if (position === undefined || (this.#truth.position ?? 0n) < position) return false;
      const judged = this.#truth.judge();
      wrong.push(...judged.wrong);
      return judged.checked > 0;
    });
    return wrong;
  }

  /** Waits until, without changes, the protector's count is true and nothing is reserved. */
  async #settled(): Promise<void> {
    await this.stopChurn();
    let last = "";
    const rests = async (): Promise<boolean> => {
      const list = await this.cell.admin.get(`${PODS}?labelSelector=app%3D${APP}`);
      const pods = field(list, "items");
      const available = (Array.isArray(pods) ? pods : []).filter(isAvailable).length;
      const [entry] = (await readProtector(this.core, NAMESPACE, APP)).status?.cells ?? [];
      last = `${available} are available, published is ${JSON.stringify(entry)}`;
      return (
        entry?.aggregation?.availableReplicas === available && (entry.admissionHistory?.buckets ?? []).length === 0
      );
    };
    await this.cell.waitFor("the count to be true at rest", rests).catch((cause: unknown) => {
      throw new Error(`${String(cause)}: ${last}; ${this.#seenAtRest()}`, { cause });
    });
    this.churn();
  }

  /** What an undisturbed watch saw last, and what the aggregators said last: a count that is wrong at rest is odd. */
  #seenAtRest(): string {
    const logs = [...this.environment.aggregators.values()].map((aggregator) => aggregator.process.logTail());
    return `an undisturbed watch saw ${this.#truth.lastState}\n${logs.join("\n")}`;
  }

  /** Resolves when the work of this link succeeds: the component acts on a new change. */
  async #works({ component, cluster, name }: Link): Promise<void> {
    if (component === "update-trigger") return await this.triggerMoves();
    if (component === "generator") return await this.#deploymentIsFollowed();
    if (component.startsWith("aggregator")) return await this.#changeIsCounted(name);
    const pod = await this.#createPod();
    await this.cell.waitFor(`${name}: a deletion to be allowed`, async () => {
      const status = cluster === this.core ? await this.#delete(pod) : await this.#evict(pod);
      if (status < 300) return true;
      await delay(RETRY_MS);
      return false;
    });
  }

  async #changeIsCounted(who: string): Promise<void> {
    await this.#createPod();
    const version = await this.versionOf(this.cell);
    const counted = async (): Promise<boolean> => (this.#truth.latest?.position ?? 0n) >= version;
    await this.cell.waitFor(`${who}: a change to be counted`, counted);
  }

  /** The present version of the cluster's collection of pods. */
  async versionOf(cluster: Cluster): Promise<bigint> {
    return BigInt(String(field(await cluster.admin.get(`${PODS}?limit=1`), "metadata", "resourceVersion")));
  }

  async triggerCounter(): Promise<number> {
    const pod = await this.cell.admin.get(`${PODS}/${UPDATE_TRIGGER_POD}`);
    return Number(field(pod, "metadata", "annotations", UPDATE_TRIGGER_COUNTER_ANNOTATION));
  }

  async triggerMoves(): Promise<void> {
    const version = async (): Promise<unknown> =>
      field(await this.cell.admin.get(`${PODS}/${UPDATE_TRIGGER_POD}`), "metadata", "resourceVersion");
    const before = await version().catch(() => undefined);
    const moved = async (): Promise<boolean> => (await version()) !== before;
    await this.cell.waitFor("the dummy pod to be patched", moved);
  }

  async #deploymentIsFollowed(): Promise<void> {
    const replicas = ++this.#replicas;
    await this.scale("web", replicas);
    await this.isFollowed("web", replicas);
  }

  /** Creates a Deployment; resolves when the generator protects it. */
  async deploy(name: string): Promise<void> {
    await this.core.admin.call("POST", DEPLOYMENTS, workload(name));
    await this.isFollowed(name, FIRST_REPLICAS);
  }

  async scale(deployment: string, replicas: number): Promise<void> {
    await this.core.admin.call("PATCH", `${DEPLOYMENTS}/${deployment}`, { spec: { replicas } });
  }

  /** Resolves when the Deployment's protector requires so many pods. */
  async isFollowed(deployment: string, replicas: number): Promise<void> {
    const followed = async (): Promise<boolean> =>
      (await readProtector(this.core, NAMESPACE, `deployment-${deployment}`)).spec.minAvailable === replicas;
    await this.core.waitFor(`the generator to follow ${deployment}`, followed);
  }

  async #createPod(name = `pod-${++this.#pods}`): Promise<string> {
    const spec = { schedulerName: "none", containers: [{ name: "app", image: "app:1" }] };
    const metadata = { name, labels: { app: APP }, annotations: { text: TEXT } };
    await this.cell.admin.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata, spec });
    await setReady(this.cell, NAMESPACE, name, true);
    return name;
  }

  async #delete(name: string): Promise<number> {
    return (await this.cell.admin.request("DELETE", `${PODS}/${name}`)).status;
  }

  async #evict(name: string): Promise<number> {
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: NAMESPACE } };
    return (await this.cell.admin.request("POST", `${PODS}/${name}/eviction`, body)).status;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopChurn();
    await this.#truth[Symbol.asyncDispose]();
    await Promise.all([...this.components.values()].map((component) => component.stop()));
    try {
      await this.recorder.judged();
    } finally {
      await this.environment.stop();
      await this.links[Symbol.asyncDispose]();
      rmSync(this.#directory, { recursive: true, force: true });
    }
  }
}

/**
 * kube-apiserver marks also a pod without a node as deleted first, and deletes it by a second write. A deletion that is
 * timed out between the two leaves a pod that is Ready, and that nobody ends here.
 */
function isAvailable(pod: unknown): boolean {
  return conditionStatus(pod, "Ready") === "True" && field(pod, "metadata", "deletionTimestamp") === undefined;
}

/** `maxUnavailable: 0`, so that the protector's `minAvailable` is the number of replicas. */
function workload(name: string): unknown {
  const spec = { strategy: { rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } } };
  return deployment(name, FIRST_REPLICAS, { namespace: NAMESPACE, annotations: { text: TEXT }, spec });
}
