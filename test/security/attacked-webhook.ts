/**
 * The webhook as a process between a caller who sends what he likes and an apiserver that keeps pods and protectors and
 * remembers each call. The apiserver is both the core and the cell.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { Agent } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { httpsCall } from "../../scripts/control-plane/https-call.ts";
import { reservePort } from "../../scripts/control-plane/ports.ts";
import { Component } from "../../scripts/environment/component.ts";
import { authority, certificate } from "../support/webhook/loopback-certificate.ts";

type JsonObject = Readonly<Record<string, unknown>>;

const CELL = "cell-1";
const GROUP = "podseidon.kubewharf.io";
const PROTECTORS = `/apis/${GROUP}/v1alpha1/podprotectors`;
const LOOPBACK = "127.0.0.1";

interface Call {
  readonly method: string;
  readonly path: string;
  readonly body: string;
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

interface Given {
  /** Fields of the protector's spec, beside `minAvailable` 2 and the selector `app=web`. */
  readonly spec?: JsonObject;
  /** Fields of the counts, beside 2 available pods. */
  readonly counts?: JsonObject;
  /** As the cell has them. */
  readonly pods?: readonly JsonObject[];
  readonly flags?: readonly string[];
  /** Users who may bypass protectors. */
  readonly bypassers?: readonly string[];
}

/** A Ready pod that the protector selects. */
export function webPod(name: string, metadata: JsonObject = {}): JsonObject {
  return {
    ...{ apiVersion: "v1", kind: "Pod", spec: { containers: [] } },
    metadata: {
      namespace: "default",
      name,
      uid: `uid-of-${name}`,
      resourceVersion: "50",
      labels: { app: "web" },
      ...metadata,
    },
    status: {
      phase: "Running",
      conditions: [{ type: "Ready", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" }],
    },
  };
}

function protectorOf({ spec, counts }: Given): JsonObject {
  const aggregation = { totalReplicas: 9, availableReplicas: 2, resourceVersion: "100", ...counts };
  return {
    ...{ apiVersion: `${GROUP}/v1alpha1`, kind: "PodProtector" },
    metadata: { namespace: "default", name: "web", uid: "uid-of-protector", resourceVersion: "60", generation: 1 },
    spec: { minAvailable: 2, minReadySeconds: 0, selector: { matchLabels: { app: "web" } }, ...spec },
    status: {
      cells: [{ cellID: CELL, aggregation, admissionHistory: { buckets: [] } }],
      summary: { totalReplicas: 9, aggregatedAvailableReplicas: 2, estimatedAvailableReplicas: 2 },
    },
  };
}

/** A DELETE review of an unprotected pod. */
export function deletion(pod: object = {}, request: object = {}): string {
  const { metadata, ...rest } = { metadata: {}, ...pod };
  const named = { name: "web", namespace: "default", uid: "1", resourceVersion: "1", ...metadata };
  return reviewOf({ name: "web", oldObject: { metadata: named, ...rest }, ...request });
}

function reviewOf(review: object): string {
  return JSON.stringify({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: {
      uid: "review-1",
      operation: "DELETE",
      kind: { group: "", version: "v1", kind: "Pod" },
      resource: { group: "", version: "v1", resource: "pods" },
      namespace: "default",
      userInfo: { username: "eve" },
      ...review,
    },
  });
}

export class AttackedWebhook implements AsyncDisposable {
  readonly calls: Call[] = [];
  readonly #given: Given;
  readonly #server: Server;
  readonly #agent = new Agent({ keepAlive: true, ca: authority.certificatePem });
  readonly #folder = mkdtempSync(join(tmpdir(), "podseidon-security-"));
  #version = 100;
  #protector: JsonObject;
  #webhook: Component | undefined;
  #port = 0;

  private constructor(given: Given) {
    this.#given = given;
    this.#protector = protectorOf(given);
    this.#server = createServer((message, response) => this.#receive(message, response));
  }

  static async start(given: Given = {}): Promise<AttackedWebhook> {
    const attacked = new AttackedWebhook(given);
    await new Promise<void>((resolve) => attacked.#server.listen(0, LOOPBACK, resolve));
    await attacked.#start();
    return attacked;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#agent.destroy();
    await this.#webhook?.stop();
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** The buckets of the cell, as they are stored. */
  get buckets(): readonly JsonObject[] {
    const [cell] = JSON.parse(JSON.stringify(this.#protector)).status.cells;
    return cell.admissionHistory?.buckets ?? [];
  }

  /** Bodies of the calls of this method whose path matches. */
  bodies(method: string, path: RegExp): readonly string[] {
    return this.calls.filter((call) => call.method === method && path.test(call.path)).map(({ body }) => body);
  }

  metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number | undefined> {
    return this.#webhook?.metric(name, labels) ?? Promise.resolve(undefined);
  }

  logTail(): string {
    return this.#webhook?.process.logTail(500) ?? "";
  }

  /** The answer to a body of the caller's making, as it is; status 0 when the connection was closed before one. */
  send(body: string | Buffer, path = `/webhook/${CELL}?timeout=10s`, from = LOOPBACK): Promise<Answer> {
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    const options = { localAddress: from, method: "POST", headers, agent: this.#agent };
    return httpsCall(`https://${LOOPBACK}:${this.#port}${path}`, options, body).catch((error: unknown) => {
      if (error instanceof Error && "code" in error) return { status: 0, text: String(error.code) };
      throw error;
    });
  }

  /** The whole text of the answer to a review of the caller's making. */
  async ask(review: JsonObject, path?: string, from?: string): Promise<string> {
    return (await this.send(reviewOf(review), path, from)).text;
  }

  /** The response within the AdmissionReview. */
  async decide(review: JsonObject, from?: string): Promise<AdmissionAnswer> {
    return JSON.parse(await this.ask(review, undefined, from)).response;
  }

  async #start(): Promise<void> {
    const path = (name: string): string => join(this.#folder, name);
    const { port } = this.#server.address() as AddressInfo;
    const kubeconfig = {
      "current-context": "x",
      contexts: [{ name: "x", context: { cluster: "x", user: "x" } }],
      clusters: [{ name: "x", cluster: { server: `http://${LOOPBACK}:${port}` } }],
      users: [{ name: "x", user: { token: "x" } }],
    };
    writeFileSync(path("kubeconfig"), JSON.stringify(kubeconfig));
    writeFileSync(path("tls.crt"), certificate.cert);
    writeFileSync(path("tls.key"), certificate.key);
    this.#port = await reservePort(LOOPBACK);
    this.#webhook = await Component.start({
      kind: "webhook",
      name: "webhook",
      directory: this.#folder,
      environment: { MALLOC_ARENA_MAX: "1" },
      args: [
        ...["--core", `core=${path("kubeconfig")}`, "--cell", `${CELL}=${path("kubeconfig")}`],
        ...["--tls-cert-file", path("tls.crt"), "--tls-private-key-file", path("tls.key")],
        ...["--bind-address", LOOPBACK, "--secure-port", String(this.#port), "--outlive=false"],
        ...["--log-level", "debug", ...(this.#given.flags ?? [])],
      ],
    });
  }

  #receive(message: IncomingMessage, response: ServerResponse): void {
    let body = "";
    message.setEncoding("utf8").on("data", (chunk: string) => {
      body += chunk;
    });
    message.on("end", () => {
      const url = new URL(message.url ?? "/", "http://x");
      const { method = "GET" } = message;
      this.calls.push({ method, path: url.pathname, body });
      this.#answer(method, url, body, response);
    });
  }

  #answer(method: string, { pathname, searchParams }: URL, body: string, response: ServerResponse): void {
    const pod = /^\/api\/v1\/namespaces\/default\/pods\/([^/]+)$/.exec(pathname)?.[1];
    if (pathname === PROTECTORS && searchParams.has("watch"))
      watch(response, Number(searchParams.get("timeoutSeconds")));
    else if (pathname === PROTECTORS) {
      const items = searchParams.get("limit") === "1" ? [] : [this.#protector];
      send(response, 200, { kind: "PodProtectorList", metadata: { resourceVersion: String(this.#version) }, items });
    } else if (pathname.endsWith("/podprotectors/web/status") && method === "PUT") this.#write(body, response);
    else if (pathname.endsWith("/podprotectors/web")) send(response, 200, this.#protector);
    else if (pod !== undefined && method === "PATCH") send(response, 200, {});
    else if (pod !== undefined) this.#readPod(pod, response);
    else if (pathname.endsWith("/subjectaccessreviews")) {
      const allowed = this.#given.bypassers?.includes(JSON.parse(body).spec.user) ?? false;
      send(response, 201, { status: { allowed } });
    } else if (method === "POST") send(response, 201, JSON.parse(body));
    else send(response, 404, { kind: "Status", code: 404, reason: "NotFound", message: "not here" });
  }

  #readPod(name: string, response: ServerResponse): void {
    const found = this.#given.pods?.find((one) => Reflect.get(Object(one.metadata), "name") === name);
    if (found === undefined) send(response, 404, { kind: "Status", code: 404, reason: "NotFound", message: "no pod" });
    else send(response, 200, found);
  }

  #write(body: string, response: ServerResponse): void {
    this.#version++;
    const metadata = { ...Object(this.#protector.metadata), resourceVersion: String(this.#version) };
    this.#protector = { ...this.#protector, metadata, status: JSON.parse(body).status };
    send(response, 200, this.#protector);
  }
}

export interface AdmissionAnswer {
  readonly allowed: boolean;
  readonly status?: { readonly code: number; readonly message: string };
  readonly warnings?: readonly string[];
  readonly auditAnnotations?: Readonly<Record<string, string>>;
}

function send(response: ServerResponse, status: number, body: JsonObject): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

/** A stream without events, as long as the client asks for. */
function watch(response: ServerResponse, seconds: number): void {
  response.writeHead(200, { "content-type": "application/json" }).flushHeaders();
  const timer = setTimeout(() => response.end(), seconds * 1000);
  response.on("close", () => clearTimeout(timer));
}
