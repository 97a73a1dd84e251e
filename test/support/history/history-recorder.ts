/**
 * Records what happens in an environment, for `test/histories/checker`: each review with its answer, and each version
 * of pods and protectors. `test/histories/checker/history.ts` says what the lines are.
 */
import { createWriteStream, mkdtempSync, readFileSync, rmSync, type WriteStream } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster, ClusterOptions } from "../../../scripts/control-plane/cluster.ts";
import type { Balancer } from "../../../scripts/environment/balancer.ts";
import { type EnvironmentOptions, TestEnvironment } from "../../../scripts/environment/environment.ts";
import { judge } from "../../histories/checker/judge.ts";
import { EtcdStream, PROGRESS_FLAGS } from "./etcd-stream.ts";
import type { HttpMessage } from "./message-reader.ts";
import { ReviewTap, type TappedRequest } from "./review-tap.ts";

const PREFIXES = { pods: "/registry/pods/", podprotectors: "/registry/podseidon.kubewharf.io/podprotectors/" } as const;
const RETRY_MS = 100;

export class HistoryRecorder {
  readonly #directory: string;
  readonly #file: string;
  readonly #lines: WriteStream;
  readonly #streams: EtcdStream[] = [];
  /** Answers whose `to` is asked for. */
  readonly #pending = new Set<Promise<void>>();
  readonly #failures: Error[] = [];
  /** The history and the revision of the core up to which everything was told, for the thread of the tap. */
  readonly #position = new Float64Array(new SharedArrayBuffer(16));
  #tap: ReviewTap | undefined;
  #core: Cluster | undefined;
  #environment: TestEnvironment | undefined;
  #protectors: EtcdStream | undefined;

  private constructor() {
    this.#directory = mkdtempSync(join(tmpdir(), "podseidon-history-"));
    this.#file = join(this.#directory, "history.ndjson");
    this.#lines = createWriteStream(this.#file);
  }

  /** Starts an environment of which everything is recorded from its first object on. */
  static async start(
    options: EnvironmentOptions & { readonly settle: string },
  ): Promise<{ readonly environment: TestEnvironment; readonly recorder: HistoryRecorder }> {
    const recorder = new HistoryRecorder();
    const environment = await TestEnvironment.start({
      ...options,
      core: recorded(options.core ?? {}),
      cell: recorded(options.cell ?? {}),
      front: (core, balancer) => recorder.#open(core, balancer),
    });
    recorder.#environment = environment;
    recorder.#watch(environment, options.settle);
    return { environment, recorder };
  }

  /** Resolves when every replica knows every protector; from then on none has the excuse of a new one. */
  async untilKnown(): Promise<void> {
    const { core, webhooks } = this.#environment ?? {};
    await core?.waitFor("every replica to know every protector", async () => {
      const stored = items(await core.admin.get("/apis/podseidon.kubewharf.io/v1alpha1/podprotectors"));
      const newest = Math.max(0, ...stored.map((one) => Number(field(one, "metadata", "resourceVersion"))));
      const known = (webhooks ?? []).map(({ component }) => component.metric("podseidon_webhook_protectors"));
      const areKnown = (await Promise.all(known)).every((count) => count === stored.length);
      return areKnown && (this.#protectors?.position.revision ?? 0) >= newest;
    });
    this.#write({ kind: "known" });
  }

  /** Something breaks until `end`, so that quota may take longer to come back. */
  fault(what: string, phase: "begin" | "end"): void {
    this.#write({ kind: "fault", what, phase });
  }

  async during<T>(what: string, work: () => Promise<T>): Promise<T> {
    this.fault(what, "begin");
    try {
      return await work();
    } finally {
      this.fault(what, "end");
    }
  }

  /**
   * Ends the record and judges it; each of `needed` has to have been judged at least once. The file of a history that
   * fails is kept. Called before the environment stops. Resolves with the lines.
   */
  async judged(needed: readonly string[] = ["allowed", "counts", "dropped", "returned"]): Promise<readonly string[]> {
    await Promise.all(this.#streams.map((stream) => stream.catchUp()));
    await Promise.all(this.#pending);
    this.#write({ kind: "end" });
    await this.#close();
    const startMs = performance.now();
    const lines = readFileSync(this.#file, "utf8").split("\n");
    const { violations, numbers } = judge(lines);
    const seconds = ((performance.now() - startMs) / 1000).toFixed(1);
    const missing = needed.filter((what) => (numbers.get(what) ?? 0) === 0);
    process.stdout.write(
      `history: ${[...numbers].map(([what, number]) => `${number} ${what}`).join(", ")} in ${seconds} s\n`,
    );
    const failures = this.#failures.map(String);
    expect({ failures, missing, violations: violations.slice(0, 20) }, this.#file).toEqual({
      failures: [],
      missing: [],
      violations: [],
    });
    rmSync(this.#directory, { recursive: true, force: true });
    return lines;
  }

  async #close(): Promise<void> {
    await Promise.all(this.#streams.map((stream) => stream[Symbol.asyncDispose]()));
    await this.#tap?.[Symbol.asyncDispose]();
    await new Promise<void>((resolve) => this.#lines.end(resolve));
  }

  #watch(environment: TestEnvironment, settle: string): void {
    const cells = Object.fromEntries([...environment.cells].map(([id, { name }]) => [id, name]));
    const settleMs = Number.parseFloat(settle) * 1000;
    this.#write({ kind: "head", core: environment.core.name, cells, settleMs });
    this.#protectors = this.#stream(environment.core, "podprotectors", this.#position);
    for (const cluster of new Set(environment.cells.values())) this.#stream(cluster, "pods");
  }

  #stream(cluster: Cluster, resource: keyof typeof PREFIXES, position: Float64Array = new Float64Array(2)): EtcdStream {
    const about = { cluster: cluster.name, resource };
    const stream = new EtcdStream(cluster, PREFIXES[resource], position, {
      version: ({ value, ...version }) => this.#write({ kind: "version", ...about, ...version, object: slim(value) }),
      replaced: (history, inherits) => this.#write({ kind: "replaced", ...about, history, inherits }),
      failed: (error) => this.#failures.push(error),
    });
    this.#streams.push(stream);
    return stream;
  }

  async #open(core: Cluster, balancer: Balancer): Promise<number> {
    this.#core = core;
    const target = { host: "127.0.0.1", port: balancer.port };
    const certificate = await core.identity.servingCertificate(["localhost"], ["127.0.0.1"]);
    this.#tap = await ReviewTap.start({ target, ...certificate }, this.#position, (one) => this.#reviewed(one));
    return this.#tap.port;
  }

  #reviewed({ request, response, ...times }: TappedRequest): void {
    const review = reviewIn(request);
    if (review === undefined) return;
    const line = { ...review, ...times, answer: response && answerIn(response) };
    const work = this.#now().then((to) => this.#write({ kind: "review", ...line, to }));
    const pending = work.finally(() => this.#pending.delete(pending));
    this.#pending.add(pending);
  }

  /** A moment of the core that is not before the call. */
  async #now(): Promise<{ readonly history: number; readonly revision: number }> {
    for (;;) {
      const history = this.#core?.etcdHistory ?? 0;
      const revision = await this.#core?.etcd.revision().catch(() => undefined);
      if (revision !== undefined && this.#core?.etcdHistory === history) return { history, revision: Number(revision) };
      await delay(RETRY_MS);
    }
  }

  #write(line: Readonly<Record<string, unknown>>): void {
    this.#lines.write(`${JSON.stringify({ ...line, atMs: Date.now() })}\n`);
  }
}

/** Cluster options with which etcd tells everything. */
function recorded(options: ClusterOptions): ClusterOptions {
  const apiserver = { ...options.flags?.["kube-apiserver"], "storage-media-type": "application/json" };
  const etcd = { ...options.flags?.etcd, ...PROGRESS_FLAGS };
  return { ...options, flags: { ...options.flags, "kube-apiserver": apiserver, etcd } };
}

/** Who owns which field, and what containers are made of, decides nothing. */
function slim(object: unknown): unknown {
  if (typeof object !== "object" || object === null) return undefined;
  const { managedFields: _, ...metadata } = { managedFields: undefined, ...Object(field(object, "metadata")) };
  const spec = field(object, "spec");
  const { containers: __, volumes: ___, ...rest } = { containers: undefined, volumes: undefined, ...Object(spec) };
  return { ...object, metadata, spec: rest };
}

/** The deletion or eviction of a pod; undefined for other reviews. */
function reviewIn({ head, body }: HttpMessage): Readonly<Record<string, unknown>> | undefined {
  const [, cell] = /^POST \/webhook\/([^/?\s]+)(\?\S*)? /.exec(head) ?? [];
  if (cell === undefined) return undefined;
  const request = field(JSON.parse(body), "request");
  const resource = [field(request, "resource", "resource"), field(request, "subResource") ?? ""].join("/");
  const isDeletion = resource === "pods/" && field(request, "operation") === "DELETE";
  if (!isDeletion && resource !== "pods/eviction") return undefined;
  const pod = isDeletion ? slim(field(request, "oldObject")) : undefined;
  const bound = field(request, "object", "deleteOptions", "preconditions", "uid");
  return {
    cell,
    id: field(request, "uid"),
    operation: isDeletion ? "DELETE" : "EVICT",
    namespace: field(request, "namespace"),
    // An item of a deletecollection has no name of its own.
    name: field(request, "name") ?? field(pod, "metadata", "name"),
    podUid: isDeletion ? field(pod, "metadata", "uid") : bound,
    pod,
    dryRun: field(request, "dryRun") === true,
  };
}

function answerIn({ head, body }: HttpMessage): unknown {
  const status = Number(/^HTTP\/1\.1 (\d+)/.exec(head)?.[1]);
  if (status !== 200) return { status };
  const response = field(JSON.parse(body), "response");
  const decision = field(response, "auditAnnotations", "decision");
  return { status, allowed: field(response, "allowed"), ...(decision === undefined ? {} : { decision }) };
}
