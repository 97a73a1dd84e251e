/**
 * An apiserver, as far as the webhook and an aggregator use it, that serves hostile pods and protectors and responds to
 * writes at random.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Randomness } from "../../../shared/runtime/clock.ts";
import { type HostileJson, hostile, PRIVATE_TEXT } from "./hostile-objects.ts";

const OBJECTS = 30;
/** Time between two hostile events of one watch. */
const EVENT_EVERY_MS = 5;
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";

export function goodPod(name: string): HostileJson {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      namespace: "default",
      name,
      uid: `uid-of-${name}`,
      resourceVersion: "50",
      generation: 1,
      labels: { app: "web", tier: "front" },
      annotations: { "podseidon.kubewharf.io/health-criterion": "Ready" },
      creationTimestamp: "2026-01-01T00:00:00Z",
      finalizers: [],
    },
    spec: {
      nodeName: "node-1",
      readinessGates: [{ conditionType: "example.com/ready" }],
      containers: [{ name: "app", image: "app:1", env: [{ name: "PASSWORD", value: PRIVATE_TEXT }] }],
    },
    status: {
      phase: "Running",
      conditions: [
        { type: "Ready", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" },
        { type: "ContainersReady", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" },
        { type: "example.com/ready", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" },
      ],
    },
  };
}

function goodProtector(name: string): HostileJson {
  const bucket = {
    startTime: "2026-01-01T00:00:00.000000Z",
    podUID: "u",
    podName: "web-1",
    podResourceVersion: "9",
    nonce: "abcdefgh",
    operation: "DELETE",
    counter: 1,
  };
  return {
    apiVersion: "podseidon.kubewharf.io/v1alpha1",
    kind: "PodProtector",
    metadata: {
      namespace: "default",
      name,
      uid: `uid-of-${name}`,
      resourceVersion: "50",
      generation: 1,
      finalizers: ["podseidon.kubewharf.io/generator"],
    },
    spec: {
      minAvailable: 1,
      minReadySeconds: 0,
      selector: { matchLabels: { app: "web" }, matchExpressions: [{ key: "tier", operator: "In", values: ["front"] }] },
      aggregationSelector: { matchLabels: { app: "web" } },
      admissionHistoryConfig: { maxConcurrentLag: 1, compactThreshold: 100, aggregationRateMillis: 1 },
      unhealthyPodPolicy: "IfHealthyBudget",
    },
    status: {
      cells: [
        {
          cellID: "cell-1",
          aggregation: {
            totalReplicas: 9,
            availableReplicas: 9,
            readyReplicas: 9,
            scheduledReplicas: 9,
            runningReplicas: 9,
            resourceVersion: "100",
            specHash: "x",
            lastEventTime: "2026-01-01T00:00:00.000000Z",
          },
          admissionHistory: { buckets: [bucket, { ...bucket, podUID: "v", nonce: "hgfedcba" }] },
        },
      ],
      summary: { totalReplicas: 9, aggregatedAvailableReplicas: 9, estimatedAvailableReplicas: 9 },
      conditions: [],
    },
  };
}

export class HostileServer implements AsyncDisposable {
  readonly #random: Randomness;
  readonly #server: Server;
  readonly #timers = new Set<NodeJS.Timeout>();
  #version = 1000;
  /** Number of hostile objects sent in lists and events. */
  sent = 0;
  /** Number of Events and other writes that contain the private text. */
  leaks = 0;

  private constructor(random: Randomness) {
    this.#random = random;
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  static async listen(random: Randomness): Promise<HostileServer> {
    const server = new HostileServer(random);
    await new Promise<void>((resolve) => server.#server.listen(0, "127.0.0.1", resolve));
    return server;
  }

  get url(): string {
    const address = this.#server.address();
    return `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? "/", "http://x");
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => {
      body += text;
    });
    request.on("end", () => {
      if (body.includes(PRIVATE_TEXT)) this.leaks++;
    });
    const { pathname, searchParams } = url;
    const make = pathname === PROTECTORS ? goodProtector : pathname === "/api/v1/pods" ? goodPod : undefined;
    if (request.method !== "GET") this.#write(request, response);
    else if (make !== undefined && searchParams.get("watch") !== null) this.#watch(make, response);
    else if (make !== undefined) this.#list(make, searchParams.get("limit") === "1" ? 0 : OBJECTS, response);
    else if (/\/pods\/[^/]+$/.test(pathname)) this.#json(response, 200, this.#object(goodPod, 0));
    else this.#json(response, 404, { kind: "Status", code: 404, reason: "NotFound", message: "not here" });
  }

  #list(make: (name: string) => HostileJson, length: number, response: ServerResponse): void {
    const items = Array.from({ length }, (_, index) => this.#object(make, index));
    const kind = make === goodPod ? "PodList" : "PodProtectorList";
    this.#json(response, 200, { kind, metadata: { resourceVersion: String(this.#version) }, items });
  }

  /**
   * One object of three is valid, so that there is something to decide on. Every object has its identity, as from any
   * apiserver. Without the identity, which `isCorrupt` removes, a whole list or stream counts as corrupt.
   */
  #object(make: (name: string) => HostileJson, index: number, isCorrupt = false): HostileJson {
    this.sent++;
    const good = make(`web-${index}`);
    const object = index % 3 === 0 ? good : hostile(good, this.#random);
    return isCorrupt ? object : withMetadata(object, Object(good).metadata);
  }

  #watch(make: (name: string) => HostileJson, response: ServerResponse): void {
    response.writeHead(200, { "content-type": "application/json" });
    const timer = setInterval(() => {
      const isCorrupt = this.#random.fraction() < 0.003;
      const object = this.#object(make, Math.floor(this.#random.fraction() * OBJECTS), isCorrupt);
      const type = this.#random.fraction() < 0.8 ? "MODIFIED" : this.#random.fraction() < 0.5 ? "ADDED" : "DELETED";
      this.#version++;
      const versioned = isCorrupt ? object : withMetadata(object, { resourceVersion: String(this.#version) });
      const line = JSON.stringify({ type: isCorrupt ? this.#random.token() : type, object: versioned });
      response.write(isCorrupt && this.#random.fraction() < 0.5 ? `${line.slice(0, 50)}\n` : `${line}\n`);
    }, EVENT_EVERY_MS);
    this.#timers.add(timer);
    response.on("close", () => {
      clearInterval(timer);
      this.#timers.delete(timer);
    });
  }

  #write(request: IncomingMessage, response: ServerResponse): void {
    const kind = this.#random.fraction();
    const name = /podprotectors\/([^/?]+)/.exec(request.url ?? "")?.[1] ?? "web-0";
    if (kind < 0.6)
      this.#json(response, 200, withMetadata(goodProtector(name), { resourceVersion: String(++this.#version) }));
    else if (kind < 0.8)
      this.#json(response, 409, { kind: "Status", code: 409, reason: "Conflict", message: "changed" });
    else if (kind < 0.9) this.#json(response, 200, this.#object(goodProtector, 1));
    else response.writeHead(500, { "content-type": "text/html" }).end("<html>".repeat(100));
  }

  #json(response: ServerResponse, status: number, body: HostileJson): void {
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  }
}

/** The object with these metadata fields. */
function withMetadata(object: HostileJson, given: { readonly [field: string]: HostileJson }): HostileJson {
  const { namespace, name, uid, resourceVersion } = given;
  const identity = Object.fromEntries(
    Object.entries({ namespace, name, uid, resourceVersion }).filter(([, value]) => value !== undefined),
  );
  const whole = typeof object === "object" && object !== null && !Array.isArray(object) ? object : {};
  const metadata = Reflect.get(whole, "metadata");
  return { ...whole, metadata: { ...(typeof metadata === "object" ? metadata : {}), ...identity } };
}
