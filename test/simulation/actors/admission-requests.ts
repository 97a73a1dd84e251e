/**
 * The reviews of one cell on their way: which replica is asked, what is lost, what may still be committed. The checks ask here
 * what is possibly deleted.
 */
import { type Ports, sleep } from "../../../shared/runtime/clock.ts";
import type { AdmissionChain, SimulatedVerdict } from "../apiserver/admission.ts";
import type { Etcd, Json, Stored } from "../apiserver/etcd.ts";
import { patched } from "../apiserver/json-patch.ts";
import { jsonOf, metadataOf, record, text } from "../apiserver/objects.ts";
import type { Coverage } from "../judge/coverage.ts";
import type { Chance } from "../world/random.ts";
import type { Scenario } from "../world/scenario.ts";
import { restartsContainer } from "./container-restarts.ts";
import type { Replica } from "./replica.ts";

const WEBHOOK_TIMEOUT_MS = 10_000;
export const FORCE_ANNOTATION = "podseidon.kubewharf.io/force-delete";
const OTHER_WEBHOOK_MESSAGE = "refused by another webhook";

/** One review that the API server waits for, or has had allowed and not yet finished. */
export interface InFlight {
  readonly cell: string;
  readonly uid: string;
  readonly key: string;
  readonly operation: "DELETE" | "EVICT" | "UPDATE";
  /** Version that a DELETE or an UPDATE is bound to; undefined for an eviction. */
  readonly revision: number | undefined;
  readonly forced: boolean;
  readonly askedMs: number;
  state: "asked" | "allowed";
  /** A replica has begun to decide, whatever became of it: there may be a record. */
  wasHeard?: boolean;
  /** A replica has said no, whatever became of its answer. */
  wasRefused?: boolean;
  /** The same of one that was asked beside it, whose answer nobody reads. */
  isCopyRefused?: boolean;
  /** It was superseded, and a restore of the cell has taken that back. */
  isRevived?: boolean;
  /** The deletion of a pod that is not available, bound to a version at which it is not; or what a replica would have refused, and may not. */
  isFree?: boolean;
  /** What was decided, as in {@link Answered.decisions}; undefined while no verdict is known. */
  decisions?: readonly string[];
}

export interface Answered {
  readonly request: Json;
  readonly allowed: boolean;
  readonly code: number;
  readonly message: string;
  /** What each protector said, by the webhook's audit annotation: `core/namespace/name=Reason`. */
  readonly decisions: readonly string[];
  /** The same without their names. */
  readonly reasons: readonly string[];
  /** The replica's wall clock while it decided. */
  readonly wallMs: { readonly earliest: number; readonly latest: number };
  /** Let go because the replica refuses nothing. */
  readonly isOnlyWarned: boolean;
  /** Who said so. */
  readonly by?: Replica;
}

export interface ReviewWorld {
  readonly ports: Ports;
  readonly scenario: Scenario;
  readonly chance: Chance;
  readonly coverage: Coverage;
  replicas(): readonly Replica[];
  faultsActive(): boolean;
  /** Called with each verdict of this project's webhook, before it travels back. */
  answered(cell: string, flight: InFlight | undefined, answer: Answered): void;
  /** Every review without a verdict goes on. */
  failsOpen(): boolean;
  /** A review goes on although this project's webhook did not say so: nothing can be promised of it. */
  failedOpen(cell: string, flight: InFlight): void;
  violation(invariant: string, message: string): void;
}

export class ReviewLog implements AdmissionChain {
  readonly #cell: string;
  readonly #etcd: Etcd;
  readonly #world: ReviewWorld;
  readonly #flights = new Map<Json, InFlight>();
  /** `UID/operation` of every review that was no dry run. */
  readonly #meant = new Set<string>();
  readonly mutatePod: ((request: Json) => Promise<Json>) | undefined;

  constructor(cell: string, etcd: Etcd, world: ReviewWorld) {
    this.#cell = cell;
    this.#etcd = etcd;
    this.#world = world;
    this.mutatePod = world.scenario.features.gateEveryMs > 0 ? (request) => this.gatePod(request) : undefined;
  }

  /** What may be deleted at any moment by a request that was allowed. */
  *committable(): IterableIterator<InFlight> {
    for (const flight of this.#flights.values())
      if (flight.state === "allowed" && this.#canCommit(flight)) yield flight;
  }

  /** The pod of this review as it is stored now; undefined when it is gone or replaced. */
  stored(flight: InFlight): Stored | undefined {
    const stored = this.#etcd.get(flight.key);
    return stored !== undefined && metadataOf(stored.value).uid === flight.uid ? stored : undefined;
  }

  /**
   * Requests for this UID that this protector allowed and that can still be committed, of which there may be a record that was last added to at
   * `recordedMs`. (S8 looks after those that are not answered yet, and after a protector that should have been asked.)
   */
  pending(protector: string, uid: string, operation: string, recordedMs = Number.POSITIVE_INFINITY): boolean {
    for (const flight of this.#flights.values()) {
      if (flight.uid !== uid || flight.operation !== operation || flight.state !== "allowed") continue;
      // Its refusal was lost, or no replica was there to take it, and it goes on without a verdict.
      if (flight.wasRefused || flight.wasHeard !== true) continue;
      // Whoever forgets it has seen that it was superseded.
      if (flight.isRevived) continue;
      // It goes on without a verdict, and was asked after that: nothing of what is recorded is its own.
      if (flight.decisions === undefined && recordedMs < flight.askedMs) continue;
      // It goes on without a verdict, and what was recorded may be its copy's, which was refused.
      if (flight.decisions === undefined && flight.isCopyRefused) continue;
      // It takes nothing from anybody, or nobody's leave, and is not recorded.
      if (flight.isFree) continue;
      // It was none of this protector's, whose selector may be another one now.
      if (flight.decisions?.some((decision) => decision.split("=")[0]?.endsWith(`/${protector}`)) === false) continue;
      if (this.#canCommit(flight)) return true;
    }
    return false;
  }

  /** True when such a review was ever made that was no dry run. */
  wasMeant(uid: string, operation: string): boolean {
    return this.#meant.has(`${uid}/${operation}`);
  }

  async review(request: Json): Promise<SimulatedVerdict> {
    const flight = this.#flightOf(request);
    if (flight !== undefined) {
      this.#flights.set(request, flight);
      this.#meant.add(`${flight.uid}/${flight.operation}`);
    }
    const verdict = (await this.#call(request, "validate", flight)) ?? this.#withoutVerdict(flight);
    const rejected = this.#strikes(this.#world.scenario.faults.otherWebhookRejectRate);
    if (rejected) this.#world.coverage.fault("otherWebhookReject");
    const final = verdict.allowed && rejected ? { allowed: false, code: 403, message: OTHER_WEBHOOK_MESSAGE } : verdict;
    if (!final.allowed) this.#flights.delete(request);
    else if (flight !== undefined) flight.state = "allowed";
    return final;
  }

  async mutateEviction(request: Json): Promise<Json> {
    const reply = await this.#call(request, "mutate");
    const patch = reply?.patch;
    if (patch === undefined) return request;
    return { ...request, object: patched(record(request.object), patch) };
  }

  /** Who asks for the gate; without an answer there is none (failurePolicy Ignore). */
  async gatePod(request: Json): Promise<Json> {
    const reply = await this.#call(request, "gate");
    const { apiVersion: _, kind: __, ...object } = record(request.object);
    return reply?.patch === undefined ? object : patched(object, reply.patch);
  }

  settled(request: Json, _committed: boolean): void {
    this.#flights.delete(request);
  }

  /** What the API server makes of a call that failed: failurePolicy Fail, or Ignore. */
  #withoutVerdict(flight: InFlight | undefined): SimulatedVerdict {
    if (!this.#world.failsOpen() && !this.#strikes(this.#world.scenario.faults.failOpenRate))
      return { allowed: false, code: 500, message: "failed calling webhook" };
    this.#world.coverage.fault("failOpen");
    if (flight !== undefined) this.#world.failedOpen(this.#cell, flight);
    return { allowed: true, code: 200, message: "" };
  }

  /** One call over the network: it may go to a dead replica, be lost, or be made twice. */
  async #call(
    request: Json,
    kind: "validate" | "mutate" | "gate",
    flight?: InFlight,
  ): Promise<(SimulatedVerdict & { readonly patch?: string }) | undefined> {
    const { ports, scenario, chance, coverage } = this.#world;
    const alive = this.#world.replicas().filter((replica) => replica.serving);
    if (alive.length === 0) return undefined;
    const replica = chance.pick(alive);
    const body = jsonOf({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request });
    await sleep(ports, chance.exponential(2));
    if (kind === "validate" && this.#strikes(scenario.faults.duplicateReviewRate)) {
      coverage.fault("duplicateReview");
      if (flight !== undefined) flight.wasHeard = true;
      void chance
        .pick(alive)
        .handle({ cell: this.#cell, kind, body, timeout: "10s", isCallerGone: () => false })
        .then((reply) => {
          if (flight !== undefined && reply.status === 200 && responseOf(reply.body).allowed !== true)
            flight.isCopyRefused = true;
          reply.delivered?.(true);
        })
        .catch(() => undefined);
    }
    const startedMs = ports.clock.monotonicMs();
    const wallMs = replica.ports.clock.nowMs();
    let timedOut = false;
    const timeout = sleep(ports, WEBHOOK_TIMEOUT_MS).then(() => {
      timedOut = true;
      return undefined;
    });
    // By the replica's own timer: one that is stopped does not even take the call.
    const answer = sleep(replica.ports, 0)
      .then(() => {
        if (flight !== undefined) flight.wasHeard = true;
        return replica.handle({
          cell: this.#cell,
          kind,
          body,
          timeout: "10s",
          isCallerGone: () => timedOut || !replica.serving,
        });
      })
      .then(
        (reply) => {
          // Written to the connection before anybody gave up; whether it arrives is another matter.
          if (replica.serving) reply.delivered?.(!timedOut);
          return this.#read(replica, request, flight, kind, reply, { startedMs, wallMs });
        },
        (error: unknown) => {
          // Every review here is well-formed: nothing about it may be thrown at the caller (S13).
          if (replica.serving) this.#world.violation("S13", `a review was answered by ${String(error)}`);
          return undefined;
        },
      );
    const reply = await Promise.race([answer, timeout, replica.died.then(() => undefined)]);
    await sleep(ports, chance.exponential(2));
    if (this.#strikes(scenario.faults.lostResponseRate)) {
      coverage.fault("lostResponse");
      return undefined;
    }
    return reply;
  }

  #read(
    replica: Replica,
    request: Json,
    flight: InFlight | undefined,
    kind: "validate" | "mutate" | "gate",
    reply: { readonly status: number; readonly body: string },
    { startedMs, wallMs }: { readonly startedMs: number; readonly wallMs: number },
  ): (SimulatedVerdict & { readonly patch?: string }) | undefined {
    const tookMs = this.#world.ports.clock.monotonicMs() - startedMs;
    // One that is not ready answers in time as well; one that was stopped can't.
    if (tookMs > WEBHOOK_TIMEOUT_MS && replica.alive && replica.ports.stoppedUntilMs < startedMs)
      this.#world.violation("L4", `a review was answered after ${tookMs} ms`);
    if (reply.status !== 200) {
      this.#world.coverage.verdict(`http ${reply.status}`);
      if (reply.status >= 500) this.#world.coverage.row("core out of reach: HTTP error");
      if (kind === "validate" && this.#world.scenario.features.isDryRunMode)
        this.#world.violation("S9", `a replica that refuses nothing answered ${reply.status}: ${reply.body}`);
      return undefined;
    }
    const response = responseOf(reply.body);
    const status = record(response.status);
    const verdict = {
      allowed: response.allowed === true,
      code: Number(status.code ?? 200),
      message: text(status.message) ?? "",
    };
    const annotations = record(response.auditAnnotations);
    const decisions = text(annotations.decision)?.split(",") ?? [];
    const reasons = decisions.map((decision) => decision.slice(decision.indexOf("=") + 1));
    const nowMs = replica.ports.clock.nowMs();
    const clocks = { wallMs: { earliest: Math.min(wallMs, nowMs), latest: Math.max(wallMs, nowMs) } };
    const isOnlyWarned = annotations["dry-run"] === "true";
    if (kind === "validate")
      this.#world.answered(this.#cell, flight, {
        ...{ request, ...verdict, decisions, reasons, ...clocks, isOnlyWarned },
        by: replica,
      });
    if (flight !== undefined && kind === "validate") {
      if (!verdict.allowed) flight.wasRefused = true;
      flight.decisions = decisions;
      const isBound = flight.operation === "DELETE" && verdict.allowed && reasons.length > 0;
      flight.isFree = isOnlyWarned || (isBound && reasons.every((reason) => reason === "Unavailable"));
    }
    const patch = text(response.patch);
    return patch === undefined ? verdict : { ...verdict, patch };
  }

  #strikes(rate: number): boolean {
    return this.#world.chance.chance(rate) && this.#world.faultsActive();
  }

  #flightOf(request: Json): InFlight | undefined {
    if (isDry(request)) return undefined;
    const askedMs = this.#world.ports.clock.monotonicMs();
    const namespace = text(request.namespace) ?? "";
    if (request.subResource === "eviction") {
      const options = record(record(request.object).deleteOptions);
      const uid = text(record(options.preconditions).uid);
      const key = `pods/${namespace}/${text(request.name) ?? ""}`;
      const found = uid ?? text(metadataOf(this.#etcd.get(key)?.value ?? {}).uid);
      return found === undefined
        ? undefined
        : {
            cell: this.#cell,
            uid: found,
            key,
            operation: "EVICT",
            revision: undefined,
            forced: this.#isForced(key),
            askedMs,
            state: "asked",
          };
    }
    const isUpdate = request.operation === "UPDATE";
    // What restarts nothing takes nothing.
    if (isUpdate && !restartsContainer(record(request.oldObject), record(request.object))) return undefined;
    const pod = record(request.oldObject);
    const meta = metadataOf(pod);
    const forced = isForced(pod);
    const key = `pods/${namespace}/${text(meta.name) ?? ""}`;
    return {
      cell: this.#cell,
      uid: text(meta.uid) ?? "",
      key,
      operation: isUpdate ? "UPDATE" : "DELETE",
      revision: Number(meta.resourceVersion),
      forced,
      askedMs,
      state: "asked",
    };
  }

  #isForced(key: string): boolean {
    return isForced(this.#etcd.get(key)?.value ?? {});
  }

  #canCommit(flight: InFlight): boolean {
    const stored = this.#etcd.get(flight.key);
    if (stored === undefined || metadataOf(stored.value).uid !== flight.uid) return false;
    return flight.revision === undefined || stored.revision === flight.revision;
  }
}

function isForced(pod: Json): boolean {
  return record(metadataOf(pod).annotations)[FORCE_ANNOTATION] !== undefined;
}

function responseOf(body: string): Json {
  return record(record(JSON.parse(body)).response);
}

/** The request's own dry run, or that of an eviction's options. */
function isDry(request: Json): boolean {
  const listed = record(record(request.object).deleteOptions).dryRun;
  return request.dryRun === true || (Array.isArray(listed) && listed.includes("All"));
}
