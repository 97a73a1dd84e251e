/**
 * One real cluster that is core and cell, with one webhook replica and no aggregator: a test says itself what is
 * counted, so that what an admission leaves in the protector's status stays there to be looked at.
 */

import type { ApiAnswer } from "../../../scripts/control-plane/api-client.ts";
import { BARE, type Cluster } from "../../../scripts/control-plane/cluster.ts";
import { httpsCall } from "../../../scripts/control-plane/https-call.ts";
import { type EnvironmentOptions, TestEnvironment } from "../../../scripts/environment/environment.ts";
import type { WebhookReplica } from "../../../scripts/environment/webhook-process.ts";
import type { Bucket, PodProtector } from "../../../shared/schema/podprotector.ts";
import { untilDecided } from "./ask.ts";
import { readProtector } from "./protectors.ts";

export const CELL = "cell-1";
export const NAMESPACE = "default";
const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;

export function protectorsIn(namespace: string): string {
  return `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${namespace}/podprotectors`;
}

/** Far ahead of every version in the cluster: the snapshot behind the counts contains all pods. */
const FAR_AHEAD = "900000000";

export interface PodSetting {
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly namespace?: string;
  readonly phase?: string;
  /** Default true. */
  readonly ready?: boolean;
  /** Other statuses than `ready` says, and other conditions. */
  readonly conditions?: Readonly<Record<string, string>>;
  readonly readySinceMs?: number;
  /** On a node, so that its deletion is graceful and waits for a kubelet that is not there. */
  readonly scheduled?: boolean;
}

interface CountSetting {
  readonly available: number;
  readonly aggregation?: Readonly<Record<string, unknown>>;
  readonly buckets?: readonly Bucket[];
  /** Default {@link CELL}. */
  readonly cell?: string;
}

export class AdmissionHarness implements AsyncDisposable {
  readonly environment: TestEnvironment;
  /** The replica that {@link protector} waits for; without one, the first of the environment. */
  replica: WebhookReplica | undefined;
  /**
   * Asks again, as any client does, where the core was out of reach: a machine that stands still for a second looks
   * like that. Tests of outages turn it off.
   */
  isPatient = true;
  #serial = 0;
  #protectors = 0;

  private constructor(environment: TestEnvironment) {
    this.environment = environment;
  }

  static async start(options: Partial<EnvironmentOptions> = {}): Promise<AdmissionHarness> {
    const environment = await TestEnvironment.start({
      cells: [CELL],
      single: true,
      replicas: 1,
      aggregators: false,
      cell: BARE,
      ...options,
    });
    return new AdmissionHarness(environment);
  }

  get cluster(): Cluster {
    return this.environment.core;
  }

  /** A label value and object name that no other test uses. */
  unique(prefix: string): string {
    this.#serial++;
    return `${prefix}-${this.#serial}`;
  }

  async pod(name: string, app: string, setting: PodSetting = {}): Promise<unknown> {
    const { annotations = {}, labels = {}, namespace = NAMESPACE, phase = "Running", ready = true } = setting;
    const path = `/api/v1/namespaces/${namespace}/pods`;
    await this.cluster.admin.call("POST", path, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, labels: { app, ...labels }, annotations },
      spec: {
        ...(setting.scheduled === true ? { nodeName: "nowhere" } : { schedulerName: "none" }),
        containers: [{ name: "app", image: "app:1" }],
      },
    });
    const since = new Date(setting.readySinceMs ?? Date.now() - 3_600_000).toISOString().replace(/\.\d+Z$/, "Z");
    const statuses = Object.fromEntries(
      ["Initialized", "PodScheduled", "ContainersReady", "Ready"].map((type) => [type, ready ? "True" : "False"]),
    );
    const conditions = Object.entries({ ...statuses, ...setting.conditions }).map(([type, status]) => ({
      type,
      status,
      lastTransitionTime: since,
    }));
    return await this.cluster.admin.call("PATCH", `${path}/${name}/status`, { status: { phase, conditions } });
  }

  /** Creates a protector of the pods with label `app`, counted as `counts` say. */
  async protector(
    name: string,
    spec: Readonly<Record<string, unknown>>,
    counts?: CountSetting,
    namespace = NAMESPACE,
  ): Promise<void> {
    await this.cluster.admin.call("POST", protectorsIn(namespace), {
      apiVersion: "podseidon.kubewharf.io/v1alpha1",
      kind: "PodProtector",
      metadata: { name },
      spec: { minReadySeconds: 0, ...spec },
    });
    this.#protectors++;
    if (counts !== undefined) await this.count(name, counts, namespace);
    // A protector that was created a moment ago may not have reached the webhook's cache yet.
    const component = (this.replica ?? this.environment.webhooks[0])?.component;
    if (component === undefined) return;
    await this.cluster.waitFor(`the webhook to know ${name}`, async () => {
      return (await component.metric("podseidon_webhook_protectors")) === this.#protectors;
    });
  }

  /** Writes the counts of one cell as an aggregator would. */
  async count(name: string, setting: CountSetting, namespace = NAMESPACE): Promise<void> {
    const { available, aggregation = {}, buckets = [], cell = CELL } = setting;
    const replicas = ["total", "available", "ready", "running", "scheduled"].map((one) => [
      `${one}Replicas`,
      available,
    ]);
    await this.cluster.admin.call("PATCH", `${protectorsIn(namespace)}/${name}/status`, {
      status: {
        cells: [
          {
            cellID: cell,
            aggregation: { ...Object.fromEntries(replicas), resourceVersion: FAR_AHEAD, ...aggregation },
            admissionHistory: { buckets },
          },
        ],
        summary: { totalReplicas: available, aggregatedAvailableReplicas: available, estimatedAvailableReplicas: 0 },
      },
    });
  }

  /** Lets a protector go, finalizers or not. */
  async removeProtector(name: string): Promise<void> {
    const path = `${protectorsIn(NAMESPACE)}/${name}`;
    await this.cluster.admin.call("PATCH", path, { metadata: { finalizers: null } });
    await this.cluster.admin.request("DELETE", path);
    this.#protectors--;
  }

  read(name: string): Promise<PodProtector> {
    return readProtector(this.cluster, NAMESPACE, name);
  }

  async buckets(name: string): Promise<readonly Bucket[]> {
    const { status } = await this.read(name);
    return (status?.cells ?? []).flatMap((cell) => cell.admissionHistory?.buckets ?? []);
  }

  delete(name: string, body: unknown = undefined, query = "", namespace = NAMESPACE): Promise<ApiAnswer> {
    const path = `/api/v1/namespaces/${namespace}/pods/${name}${query}`;
    return this.#asked(() => this.cluster.admin.request("DELETE", path, body));
  }

  evict(name: string, change: Readonly<Record<string, unknown>> = {}, version = "v1", query = ""): Promise<ApiAnswer> {
    const { metadata = {}, ...rest } = change;
    const fields = typeof metadata === "object" ? metadata : {};
    const eviction = {
      apiVersion: `policy/${version}`,
      kind: "Eviction",
      metadata: { name, namespace: NAMESPACE, ...fields },
      ...rest,
    };
    return this.#asked(() => this.cluster.admin.request("POST", `${PODS}/${name}/eviction${query}`, eviction));
  }

  async #asked(call: () => Promise<ApiAnswer>): Promise<ApiAnswer> {
    return this.isPatient ? await untilDecided(this.cluster, call) : await call();
  }

  /** Sends a review to the webhook itself, for what no apiserver would send. */
  async review(
    review: Readonly<Record<string, unknown>>,
    path = `/webhook/${CELL}`,
    replica?: WebhookReplica,
  ): Promise<ApiAnswer> {
    const body = JSON.stringify({
      apiVersion: "admission.k8s.io/v1",
      kind: "AdmissionReview",
      request: {
        uid: this.unique("review"),
        kind: { group: "", version: "v1", kind: "Pod" },
        resource: { group: "", version: "v1", resource: "pods" },
        namespace: NAMESPACE,
        operation: "DELETE",
        userInfo: { username: "test" },
        ...review,
      },
    });
    return this.post(path, body, "POST", "application/json", replica);
  }

  /** Any call to the webhook. */
  async post(
    path: string,
    body: string,
    method = "POST",
    type = "application/json",
    replica: WebhookReplica | undefined = this.environment.webhooks[0],
  ): Promise<ApiAnswer> {
    if (replica === undefined) throw new Error("there is no webhook");
    const options = { method, ca: replica.caPem, agent: false, headers: { "content-type": type } } as const;
    const answer = await httpsCall(`${replica.url}${path}`, options, body);
    const isJson = answer.headers["content-type"]?.startsWith("application/json") === true;
    return { ...answer, body: isJson ? JSON.parse(answer.text) : undefined };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.environment.stop();
  }
}
