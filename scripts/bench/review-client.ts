/** Admission reviews as kube-apiserver sends them, for benchmarks and tests that call a webhook directly. */
import { ApiserverClient } from "../control-plane/api-client.ts";

export interface ReviewedPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly labels: Readonly<Record<string, string>>;
}

export interface ReviewAnswer {
  readonly allowed: boolean;
  readonly code: number | undefined;
  readonly message: string | undefined;
  /** Time of the whole call. */
  readonly tookMs: number;
}

/** A DELETE review of a Ready pod. */
export function deleteReview(pod: ReviewedPod): unknown {
  const since = "2026-01-01T00:00:00Z";
  const condition = (type: string): unknown => ({ type, status: "True", lastTransitionTime: since });
  const kind = { group: "", version: "v1", kind: "Pod" };
  const resource = { group: "", version: "v1", resource: "pods" };
  const oldObject = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { ...pod, creationTimestamp: since },
    spec: { nodeName: "node-1", containers: [{ name: "c", image: "app:1" }] },
    status: {
      phase: "Running",
      conditions: ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition),
    },
  };
  return {
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: {
      ...{
        uid: `review-${pod.uid}`,
        kind,
        resource,
        requestKind: kind,
        requestResource: resource,
        name: pod.name,
        namespace: pod.namespace,
      },
      ...{ operation: "DELETE", userInfo: { username: "bench" }, object: null, oldObject, dryRun: false },
      options: { kind: "DeleteOptions", apiVersion: "meta.k8s.io/v1", propagationPolicy: "Background" },
    },
  };
}

export class ReviewClient {
  readonly #client: ApiserverClient;

  constructor(url: string, certificateAuthorityPem: string) {
    this.#client = new ApiserverClient({ url, certificateAuthorityPem });
  }

  /** Rejects when the webhook answers with another status than 200. */
  async review(cell: string, body: unknown): Promise<ReviewAnswer> {
    const startedMs = performance.now();
    const answer = await this.#client.request("POST", `/webhook/${cell}?timeout=10s`, body);
    const tookMs = performance.now() - startedMs;
    if (answer.status !== 200) throw new Error(`the webhook answered ${answer.status}: ${answer.text.slice(0, 500)}`);
    const response = property(answer.body, "response");
    const status = property(response, "status");
    const code = property(status, "code");
    const message = property(status, "message");
    return {
      allowed: property(response, "allowed") === true,
      code: typeof code === "number" ? code : undefined,
      message: typeof message === "string" ? message : undefined,
      tookMs,
    };
  }

  close(): void {
    this.#client.close();
  }
}

function property(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}
