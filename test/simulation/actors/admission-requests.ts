/**
 * The admission requests of one cell on their way: which replica gets a request, what the network loses, and which
 * requests may still commit. The judge asks here which pods are possibly deleted. Admission is
 * docs/design.md#admission.
 */
import { type Ports, sleep } from "../../../shared/runtime/clock.ts";
import type { AdmissionChain, AdmissionVerdict } from "../apiserver/admission.ts";
import type { Etcd, EtcdObject, Json } from "../apiserver/etcd.ts";
import { isForced, jsonOf, metadataOf, record, text } from "../apiserver/objects.ts";
import { applyJsonPatch } from "../apiserver/patches.ts";
import { closesGate } from "../apiserver/pod-conditions.ts";
import type { Coverage } from "../judge/coverage.ts";
import type { Chance } from "../scenario/random.ts";
import type { Scenario } from "../scenario/scenario.ts";
import { isRegardless, leavesNoRecord } from "../truth/pod-truth.ts";
import { restartsContainer } from "./container-restarts.ts";
import { requestsOfNode } from "./node-deletions.ts";
import type { Replica } from "./replica.ts";

const WEBHOOK_TIMEOUT_MS = 10_000;
const OTHER_WEBHOOK_MESSAGE = "denied by another webhook";

/** An admission request that the API server waits for, or that was allowed and has not committed yet. */
export interface InFlightRequest {
  readonly cell: string;
  readonly uid: string;
  readonly key: string;
  readonly operation: "DELETE" | "EVICT" | "UPDATE";
  /** The version that a DELETE or an UPDATE commits at; undefined for an eviction, which any version fits. */
  readonly revision: number | undefined;
  readonly forced: boolean;
  readonly askedMs: number;
  state: "asked" | "allowed";
  /** When a replica first allowed it: the API server may commit before anything else happens. */
  answeredMs?: number;
  /** A replica has begun to decide, so there may be a record, whatever became of the response. */
  wasHeard?: boolean;
  /** A replica has denied it, whatever became of the response. */
  wasDenied?: boolean;
  /** The replica that got a duplicate of the request has denied it. Nobody reads that response. */
  isDuplicateDenied?: boolean;
  /** The request was superseded, and a restore of the cell has undone that. */
  isRevived?: boolean;
  /** What each protector decided, as in {@link ObservedResponse.decisions}; undefined until there is a verdict. */
  decisions?: readonly string[];
  /**
   * Of these, those that leave a record: not that of a pod that is unavailable to a protector, whose deletion commits
   * only at a version at which it is so, nor one that a replica in dry-run mode would have denied.
   */
  recorded?: readonly string[];
}

export interface ObservedResponse {
  readonly request: Json;
  readonly allowed: boolean;
  readonly code: number;
  readonly message: string;
  /** The decision of each protector, from the webhook's audit annotation: `core/namespace/name=Reason`. */
  readonly decisions: readonly string[];
  /** The reasons of {@link decisions}. */
  readonly reasons: readonly string[];
  /** The replica's wall clock before and after the decision. */
  readonly wallMs: { readonly earliest: number; readonly latest: number };
  /** A replica in dry-run mode allowed what it would have denied. */
  readonly isOnlyWarned: boolean;
  /** The replica that decided. */
  readonly by?: Replica;
  /** Those of the node whose deletion was asked for, as they were at that moment. */
  readonly podsOfNode: readonly InFlightRequest[];
}

interface AdmissionWorld {
  readonly ports: Ports;
  readonly scenario: Scenario;
  readonly chance: Chance;
  readonly coverage: Coverage;
  replicas(): readonly Replica[];
  faultsActive(): boolean;
  /** Called with each verdict of this project's webhook, before the response travels back. */
  responded(cell: string, inFlight: InFlightRequest | undefined, response: ObservedResponse): void;
  /** Every request without a verdict is allowed. */
  failsOpen(): boolean;
  /** A request is allowed although no replica said so: nothing is promised of its pod. */
  allowedWithoutVerdict(cell: string, inFlight: InFlightRequest): void;
  violation(invariant: string, message: string): void;
}

export class AdmissionRequests implements AdmissionChain {
  readonly #cell: string;
  readonly #etcd: Etcd;
  readonly #world: AdmissionWorld;
  readonly #inFlight = new Map<Json, InFlightRequest>();
  /** `UID/operation` of every request that was no dry run. */
  readonly #requested = new Set<string>();
  /** Requests for deletions of nodes that are not decided yet. */
  readonly #nodeRequests = new Set<Json>();
  readonly mutatePod: ((request: Json) => Promise<Json>) | undefined;

  constructor(cell: string, etcd: Etcd, world: AdmissionWorld) {
    this.#cell = cell;
    this.#etcd = etcd;
    this.#world = world;
    this.mutatePod = world.scenario.features.countedGateEveryMs > 0 ? (request) => this.gatePod(request) : undefined;
  }

  /** Requests whose pods are as they were reviewed, allowed or not. */
  *unsuperseded(): IterableIterator<InFlightRequest> {
    for (const inFlight of this.#inFlight.values()) if (this.#canCommit(inFlight)) yield inFlight;
  }

  /** Requests that were allowed and may commit at any moment. */
  *committable(): IterableIterator<InFlightRequest> {
    for (const inFlight of this.unsuperseded()) if (inFlight.state === "allowed") yield inFlight;
  }

  /** Those, and requests whose pods a replica lets go although the API server does not know it yet. */
  *promised(): IterableIterator<InFlightRequest> {
    for (const inFlight of this.unsuperseded())
      if (inFlight.state === "allowed" || inFlight.answeredMs !== undefined) yield inFlight;
  }

  /** The pod of this request as it is stored now; undefined when it was deleted or replaced. */
  stored(inFlight: InFlightRequest): EtcdObject | undefined {
    const stored = this.#etcd.get(inFlight.key);
    return stored !== undefined && metadataOf(stored.value).uid === inFlight.uid ? stored : undefined;
  }

  /**
   * Whether this protector allowed a request for this UID that can still commit, and of which the record may be whose
   * last nonce was written at `recordedMs`. Those of later versions than `lostAfter` may have lost theirs. S8 covers
   * requests without a response, and protectors that were not asked.
   */
  isPending(protector: string, uid: string, operation: string, recordedMs = Infinity, lostAfter = Infinity): boolean {
    for (const inFlight of this.#inFlight.values()) {
      if (inFlight.uid !== uid || inFlight.operation !== operation || inFlight.state !== "allowed") continue;
      // The denial was lost, or no replica took the request, and the API server went on without a verdict. Of a revived
      // request, a process that has removed the record has seen that it was superseded.
      if (inFlight.wasDenied || inFlight.wasHeard !== true || inFlight.isRevived) continue;
      const ofProtector = (decision: string): boolean => decision.split("=")[0]?.endsWith(`/${protector}`) === true;
      const isOfQuota = inFlight.decisions?.some((one) => ofProtector(one) && isRegardless(one)) === false;
      // Asked after the record was written, and allowed with or without one, or lost: the record is of another request.
      const isOwn = isOfQuota && !inFlight.forced && (inFlight.revision ?? 0) <= lostAfter;
      if (!isOwn && recordedMs < inFlight.askedMs) continue;
      // Allowed without a verdict, and the record may belong to the duplicate, which was denied.
      if (inFlight.decisions === undefined && inFlight.isDuplicateDenied) continue;
      // The protector let the request pass without a record, or did not decide it: its selector may have changed since.
      if (inFlight.recorded?.some(ofProtector) === false) continue;
      if (this.#canCommit(inFlight)) return true;
    }
    return false;
  }

  /** The evictions of the pod that have not ended. */
  evictionsOf(uid: string): InFlightRequest[] {
    return [...this.#inFlight.values()].filter((one) => one.uid === uid && one.operation === "EVICT");
  }

  /** True when such a request was ever made that was no dry run. */
  wasRequested(uid: string, operation: string): boolean {
    this.#requestPodsOfNodes();
    return this.#requested.has(`${uid}/${operation}`);
  }

  /** A webhook lists the pods of a node after it was asked about the node, and meanwhile the scheduler places more. */
  #requestPodsOfNodes(): void {
    for (const request of this.#nodeRequests)
      for (const { uid } of requestsOfNode(this.#etcd, this.#cell, request, 0)) this.#requested.add(`${uid}/DELETE`);
  }

  async validate(request: Json): Promise<AdmissionVerdict> {
    const inFlight = this.#inFlightOf(request);
    if (inFlight !== undefined) {
      this.#inFlight.set(request, inFlight);
      this.#requested.add(`${inFlight.uid}/${inFlight.operation}`);
    }
    const verdict = await this.#verdict(request, inFlight);
    this.#requestPodsOfNodes();
    this.#nodeRequests.delete(request);
    const rejected = this.#strikes(this.#world.scenario.faults.otherWebhookRejectRate);
    if (rejected) this.#world.coverage.fault("otherWebhookReject");
    const final = verdict.allowed && rejected ? { allowed: false, code: 403, message: OTHER_WEBHOOK_MESSAGE } : verdict;
    if (!final.allowed) this.#inFlight.delete(request);
    else if (inFlight !== undefined) inFlight.state = "allowed";
    return final;
  }

  /** Of all webhook configurations: one denial is enough. */
  async #verdict(request: Json, inFlight: InFlightRequest | undefined): Promise<AdmissionVerdict> {
    const { scenario, ports, coverage } = this.#world;
    const ask = async (asked: Json): Promise<AdmissionVerdict> =>
      (await this.#call(asked, "validate", inFlight)) ?? this.#withoutVerdict(inFlight);
    if (!scenario.features.cluster.isReviewedTwice) return await ask(request);
    coverage.fault("reviewedTwice");
    const [first, second] = await Promise.all([ask(request), ask({ ...request, uid: ports.random.token() })]);
    if (first.allowed !== second.allowed) coverage.rule("two configurations: one allows and the other denies");
    return first.allowed ? second : first;
  }

  async mutateEviction(request: Json): Promise<Json> {
    const response = await this.#call(request, "mutate");
    const patch = response?.patch;
    if (patch === undefined) return request;
    return { ...request, object: applyJsonPatch(record(request.object), patch) };
  }

  /** Calls the mutating webhook of pod creation. Without a response the pod gets no gate (failurePolicy Ignore). */
  async gatePod(request: Json): Promise<Json> {
    const response = await this.#call(request, "gate");
    const { apiVersion: _, kind: __, ...object } = record(request.object);
    return response?.patch === undefined ? object : applyJsonPatch(object, response.patch);
  }

  settled(request: Json, _committed: boolean): void {
    this.#inFlight.delete(request);
  }

  /** The verdict on a call that failed, by failurePolicy Fail or Ignore. */
  #withoutVerdict(inFlight: InFlightRequest | undefined): AdmissionVerdict {
    if (!this.#world.failsOpen() && !this.#strikes(this.#world.scenario.faults.failOpenRate))
      return { allowed: false, code: 500, message: "failed calling webhook" };
    this.#world.coverage.fault("failOpen");
    if (inFlight !== undefined) this.#world.allowedWithoutVerdict(this.#cell, inFlight);
    return { allowed: true, code: 200, message: "" };
  }

  /** One call over the network: it may reach a dead replica, get lost, or be made twice. */
  async #call(
    request: Json,
    kind: "validate" | "mutate" | "gate",
    inFlight?: InFlightRequest,
  ): Promise<(AdmissionVerdict & { readonly patch?: string }) | undefined> {
    const { ports, scenario, chance, coverage } = this.#world;
    const alive = this.#world.replicas().filter((replica) => replica.serving);
    if (alive.length === 0) return undefined;
    const replica = chance.pick(alive);
    const body = jsonOf({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request });
    await sleep(ports, chance.exponential(2));
    if (kind === "validate" && this.#strikes(scenario.faults.duplicateReviewRate)) {
      coverage.fault("duplicateReview");
      if (inFlight !== undefined) inFlight.wasHeard = true;
      void chance
        .pick(alive)
        .handle({ cell: this.#cell, kind, body, timeout: "10s", isCallerGone: () => false })
        .then((response) => {
          if (
            inFlight !== undefined &&
            response.status === 200 &&
            record(record(JSON.parse(response.body)).response).allowed !== true
          )
            inFlight.isDuplicateDenied = true;
          response.delivered?.(true);
        })
        .catch(() => undefined);
    }
    const podsOfNode = requestsOfNode(this.#etcd, this.#cell, request, ports.clock.monotonicMs());
    const startedMs = ports.clock.monotonicMs();
    const wallMs = replica.ports.clock.nowMs();
    let timedOut = false;
    const timeout = sleep(ports, WEBHOOK_TIMEOUT_MS).then(() => {
      timedOut = true;
      return undefined;
    });
    // By the replica's own timer: a stopped replica does not even take the call.
    const called = sleep(replica.ports, 0)
      .then(() => {
        if (inFlight !== undefined) inFlight.wasHeard = true;
        const isCallerGone = (): boolean => timedOut || !replica.serving;
        return replica.handle({ cell: this.#cell, kind, body, timeout: "10s", isCallerGone });
      })
      .then(
        (response) => {
          // The replica writes its response before anybody gives up. Whether the response arrives is another matter.
          if (replica.serving) response.delivered?.(!timedOut);
          return this.#read(replica, request, inFlight, kind, response, { startedMs, wallMs, podsOfNode });
        },
        (error: unknown) => {
          // Every request here is well-formed, so no error may reach the caller (S13).
          if (replica.serving) this.#world.violation("S13", `an admission request failed with ${String(error)}`);
          return undefined;
        },
      );
    const response = await Promise.race([called, timeout, replica.died.then(() => undefined)]);
    await sleep(ports, chance.exponential(2));
    if (this.#strikes(scenario.faults.lostResponseRate)) {
      coverage.fault("lostResponse");
      return undefined;
    }
    return response;
  }

  #read(
    replica: Replica,
    request: Json,
    inFlight: InFlightRequest | undefined,
    kind: "validate" | "mutate" | "gate",
    http: { readonly status: number; readonly body: string },
    asked: { readonly startedMs: number; readonly wallMs: number; readonly podsOfNode: readonly InFlightRequest[] },
  ): (AdmissionVerdict & { readonly patch?: string }) | undefined {
    const { startedMs, wallMs, podsOfNode } = asked;
    const tookMs = this.#world.ports.clock.monotonicMs() - startedMs;
    // A replica that is not ready responds in time, too. A stopped one can't.
    if (tookMs > WEBHOOK_TIMEOUT_MS && replica.alive && replica.ports.stoppedUntilMs < startedMs)
      this.#world.violation("L4", `an admission request got its response after ${tookMs} ms`);
    if (http.status !== 200) {
      this.#world.coverage.verdict(`http ${http.status}`);
      if (http.status >= 500) this.#world.coverage.row("core out of reach: HTTP error");
      if (kind === "validate" && this.#world.scenario.features.isDryRunMode)
        this.#world.violation("S9", `a replica in dry-run mode responded ${http.status}: ${http.body}`);
      return undefined;
    }
    const response = record(record(JSON.parse(http.body)).response);
    const status = record(response.status);
    const verdict = {
      allowed: response.allowed === true,
      code: Number(status.code ?? 200),
      message: text(status.message) ?? "",
      ...retryAfterOf(status),
    };
    const annotations = record(response.auditAnnotations);
    const decisions = text(annotations.decision)?.split(",") ?? [];
    const reasons = decisions.map((decision) => decision.slice(decision.indexOf("=") + 1));
    const nowMs = replica.ports.clock.nowMs();
    const clocks = { wallMs: { earliest: Math.min(wallMs, nowMs), latest: Math.max(wallMs, nowMs) } };
    const isOnlyWarned = annotations["dry-run"] === "true";
    if (kind === "validate")
      this.#world.responded(this.#cell, inFlight, {
        ...{ request, ...verdict, decisions, reasons, ...clocks, isOnlyWarned },
        ...{ by: replica, podsOfNode },
      });
    if (inFlight !== undefined && kind === "validate") {
      if (verdict.allowed) inFlight.answeredMs ??= this.#world.ports.clock.monotonicMs();
      else inFlight.wasDenied = true;
      inFlight.decisions = [...(inFlight.decisions ?? []), ...decisions];
      const isBound = inFlight.operation === "DELETE" && verdict.allowed;
      const pod = record(request.oldObject);
      const recorded = isBound ? decisions.filter((decision) => !leavesNoRecord(decision, pod)) : decisions;
      inFlight.recorded = [...(inFlight.recorded ?? []), ...(isOnlyWarned ? [] : recorded)];
    }
    const patch = text(response.patch);
    return patch === undefined ? verdict : { ...verdict, patch };
  }

  #strikes(rate: number): boolean {
    return this.#world.chance.chance(rate) && this.#world.faultsActive();
  }

  #inFlightOf(request: Json): InFlightRequest | undefined {
    if (isDry(request)) return undefined;
    const askedMs = this.#world.ports.clock.monotonicMs();
    const namespace = text(request.namespace) ?? "";
    if (request.subResource === "eviction") {
      const options = record(record(request.object).deleteOptions);
      const uid = text(record(options.preconditions).uid);
      const key = `pods/${namespace}/${text(request.name) ?? ""}`;
      const found = uid ?? text(metadataOf(this.#etcd.get(key)?.value ?? {}).uid);
      if (found === undefined) return undefined;
      const forced = isForced(this.#etcd.get(key)?.value ?? {});
      const evicted = { cell: this.#cell, uid: found, key, operation: "EVICT", revision: undefined } as const;
      return { ...evicted, forced, askedMs, state: "asked" };
    }
    if (record(request.resource).resource === "nodes") {
      this.#nodeRequests.add(request);
      this.#requestPodsOfNodes();
      return undefined;
    }
    // A status write that ends a pod is decided as its deletion, and one that closes its gate as a change.
    const [before, after] = [record(request.oldObject), record(request.object)];
    const isClosing = request.subResource === "status" && closesGate(before, after);
    const isUpdate = isClosing || (request.operation === "UPDATE" && request.subResource !== "status");
    // A change that restarts nothing uses no quota.
    if (isUpdate && !isClosing && !restartsContainer(before, after)) return undefined;
    const pod = record(request.oldObject);
    const meta = metadataOf(pod);
    const key = `pods/${namespace}/${text(meta.name) ?? ""}`;
    const operation = isUpdate ? "UPDATE" : "DELETE";
    const asked = { cell: this.#cell, uid: text(meta.uid) ?? "", key, operation } as const;
    return { ...asked, revision: Number(meta.resourceVersion), forced: isForced(pod), askedMs, state: "asked" };
  }

  #canCommit(inFlight: InFlightRequest): boolean {
    const stored = this.#etcd.get(inFlight.key);
    if (stored === undefined || metadataOf(stored.value).uid !== inFlight.uid) return false;
    return inFlight.revision === undefined || stored.revision === inFlight.revision;
  }
}

function retryAfterOf(status: Json): { readonly retryAfterSeconds?: number } {
  const { retryAfterSeconds } = record(status.details);
  return typeof retryAfterSeconds === "number" ? { retryAfterSeconds } : {};
}

/** Whether the request, or the options of its eviction, ask for a dry run. */
function isDry(request: Json): boolean {
  const listed = record(record(request.object).deleteOptions).dryRun;
  return request.dryRun === true || (Array.isArray(listed) && listed.includes("All"));
}
