/**
 * The smallest world in which R1 to R3 and the pins can fail: one cell, one protector, one webhook, one aggregator that
 * lags. The simulation adds processes, several protectors, shards and restores.
 */

import { specFacts } from "../../../shared/decide/availability/spec-facts.ts";
import { decide } from "../../../shared/decide/quota.ts";
import { apply, rollBack } from "../../../shared/decide/reserve.ts";
import { computeCellUpdate } from "../../../shared/decide/settling/cell-update.ts";
import { FirstSeenTimes } from "../../../shared/decide/settling/first-seen.ts";
import { encodeStatus } from "../../../shared/decide/state/encode-status.ts";
import { type CellState, parseProtector } from "../../../shared/decide/state/protector-state.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { PodProtector, PodProtectorSpec } from "../../../shared/schema/podprotector.ts";
import { formatMs, parseMs } from "../../../shared/schema/time.ts";
import { makePod, makeProtector, makeSpec, NOW_MS } from "../../support/decide/fixtures.ts";

const SETTLE_MS = 1000;
const NO_SUMMARY = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };

/** A disruption that was admitted and that an apiserver may still commit. */
interface InFlight {
  readonly pod: Pod;
  readonly operation: "DELETE" | "EVICT";
  readonly nonce: string;
  readonly deadlineMs: number;
}

/**
 * Without code of the product. These pods have no gates and never finish: Ready and not terminating is all that counts.
 */
function readyMs({ conditions }: Pod): number | undefined {
  return conditions.find(({ type, status }) => type === "Ready" && status)?.sinceMs;
}

function isReadySince(pod: Pod, cutoffMs: number): boolean {
  const sinceMs = readyMs(pod);
  return sinceMs !== undefined && sinceMs <= cutoffMs;
}

export class AccountingWorld {
  readonly spec: PodProtectorSpec;
  #revision = 100;
  #nowMs = 0;
  #created = 0;
  #nonces = 0;
  readonly #live = new Map<string, Pod>();
  /** The pods at each revision. */
  readonly #past = new Map<number, ReadonlyMap<string, Pod>>();
  /** Pods that were Ready when their deletion was committed. */
  readonly #deletedReady = new Set<string>();
  /** Pods whose disruption has used quota. */
  readonly #paid = new Set<string>();
  #inFlight: InFlight[] = [];
  #protector: PodProtector;
  // The aggregator.
  #position: number;
  readonly #seen = new FirstSeenTimes();
  #lists: { sentMs: number; revision: number }[] = [];
  readonly #alive = new Map<string, number>();

  constructor(pods: number, minAvailable: number, minReadySeconds: number, compactThreshold: number) {
    this.spec = makeSpec({ minAvailable, minReadySeconds, admissionHistoryConfig: { compactThreshold } });
    for (let index = 0; index < pods; index++) this.create();
    this.#position = this.#revision;
    this.#protector = makeProtector([], this.spec);
    this.account();
  }

  /** Creates a pod with the first free name, as a StatefulSet would. */
  create(): void {
    const taken = new Set([...this.#live.values()].map(({ name }) => name));
    let ordinal = 0;
    while (taken.has(`db-${ordinal}`)) ordinal++;
    this.#put(makePod(`db-${ordinal}`, { uid: `uid-${++this.#created}`, ...this.#readyNow() }));
  }

  flip(index: number): void {
    const pod = this.#pick(index);
    if (pod === undefined || pod.terminating) return;
    const isReady = readyMs(pod) !== undefined;
    const { conditions } = makePod(pod.name, isReady ? { readyForSeconds: undefined } : this.#readyNow());
    this.#put({ ...pod, conditions });
  }

  annotate(index: number): void {
    const pod = this.#pick(index);
    if (pod !== undefined) this.#put(pod);
  }

  finish(index: number): void {
    const pod = this.#pick(index);
    if (pod?.terminating === true) this.#put(pod, true);
  }

  tick(ms: number): void {
    this.#nowMs += ms;
    this.#inFlight = this.#inFlight.filter(({ deadlineMs }) => deadlineMs > this.#nowMs);
  }

  /** An admission request for the pod as it is now. The response comes at once, the deletion later or never. */
  review(index: number, operation: "DELETE" | "EVICT"): void {
    const pod = this.#pick(index);
    if (pod === undefined) return;
    const nonce = `n${this.#nonces++}`.padEnd(8, "x");
    const wall = NOW_MS + this.#nowMs;
    const request = {
      cell: "a",
      operation,
      nonce,
      pod,
      forced: false,
      criterion: "Available",
      startTime: formatMs(wall),
      staleRefreshBefore: formatMs(wall - 2 * SETTLE_MS),
    } as const;
    const state = parseProtector(this.#protector);
    const decision = decide(state, request);
    if (!decision.allowed) return;
    apply(state, request, decision);
    this.#write(encodeStatus(state, this.#protector.status));
    if (pod.terminating) return;
    this.#inFlight.push({ pod, operation, nonce, deadlineMs: this.#nowMs + SETTLE_MS });
    const isPayment = decision.reason === "Reserved" || (decision.reason === "Repeated" && !this.#paid.has(pod.uid));
    if (!isPayment) return;
    this.#paid.add(pod.uid);
    this.#checkSafety();
  }

  /** The apiserver commits a DELETE only at the reviewed version, an eviction at any version. */
  commit(index: number): void {
    const [one] = this.#inFlight.splice(index % Math.max(1, this.#inFlight.length), 1);
    if (one === undefined) return;
    const pod = this.#live.get(one.pod.uid);
    if (pod === undefined || pod.terminating) return;
    if (one.operation === "DELETE" && pod.resourceVersion !== one.pod.resourceVersion) return;
    if (readyMs(pod) !== undefined) this.#deletedReady.add(pod.uid);
    this.#put({ ...pod, terminating: true });
  }

  /** Another webhook denies the disruption. */
  refuse(index: number): void {
    this.#inFlight.splice(index % Math.max(1, this.#inFlight.length), 1);
  }

  /** Another protector denies the disruption, so that its record is rolled back. */
  rollBack(index: number): void {
    const [one] = this.#inFlight.splice(index % Math.max(1, this.#inFlight.length), 1);
    if (one === undefined) return;
    const state = parseProtector(this.#protector);
    rollBack(state, "a", one.pod.uid, one.operation, one.nonce);
    this.#write(encodeStatus(state, this.#protector.status));
  }

  /** The watch delivers `share` of the missing events. */
  watch(share: number): void {
    this.#position += Math.ceil((this.#revision - this.#position) * share);
  }

  list(): void {
    this.#lists.push({ sentMs: this.#nowMs, revision: this.#revision });
  }

  get(index: number): void {
    const pod = this.#pick(index);
    if (pod !== undefined && !pod.terminating) this.#alive.set(pod.uid, this.#nowMs);
  }

  account(): void {
    const pods = this.#past.get(this.#position) ?? new Map<string, Pod>();
    const spec = specFacts(this.spec);
    const position = String(this.#position);
    const reached = this.#lists.filter(({ revision }) => revision <= this.#position).map(({ sentMs }) => sentMs);
    const stored = this.#protector.status?.cells[0];
    const result = computeCellUpdate({
      spec,
      cellID: "a",
      stored,
      snapshot: {
        position,
        positionOf: () => position,
        podByUID: (uid) => pods.get(uid),
        podByName: (name, isWanted) => [...pods.values()].find((pod) => pod.name === name && isWanted(pod)),
        settledGeneration: () => undefined,
        unconfirmedGeneration: () => undefined,
        declinedGeneration: () => undefined,
      },
      pods: pods.values(),
      history: { lost: undefined, epoch: 0, hold: undefined },
      adoptedEpoch: 0,
      nowMs: NOW_MS + this.#nowMs,
      monotonicMs: this.#nowMs,
      settleMs: SETTLE_MS,
      seen: this.#seen,
      evidence: {
        heardMs: () => Number.POSITIVE_INFINITY,
        reachedSentMs: reached.length === 0 ? undefined : Math.max(...reached),
        aliveSentMs: (uid) => this.#alive.get(uid),
      },
      algorithm: "exact",
      lastEventMs: NOW_MS + this.#nowMs,
      isHeartbeatDue: false,
    });
    if (result.stale !== undefined) throw new Error(`the snapshot is stale: ${result.stale}`);
    if (result.reasons.length === 0) return;
    const status = { ...this.#protector.status, summary: NO_SUMMARY, cells: [result.entry] };
    this.#write(encodeStatus(parseProtector({ ...this.#protector, status }), status));
    this.#checkSubtraction();
  }

  /** Stops faults and requests. Returns the number of reservations once everything has settled (L1). */
  leftAfterQuiet(): number {
    this.#inFlight = [];
    this.watch(1);
    this.account();
    this.tick(SETTLE_MS);
    this.list();
    this.watch(1);
    this.account();
    return [...this.#cell().ledger.reservations()].length;
  }

  /** S1: at least `minAvailable` counted pods are neither deleted nor possibly deleted. */
  #checkSafety(): void {
    const left = [...this.#counted()].filter((uid) => !this.#deletedReady.has(uid) && !this.#mayBeDeleted(uid));
    if (left.length < this.spec.minAvailable) throw new Error(`S1: ${left.length} pods are certain to stay`);
  }

  /** The deletion of a pod that is unavailable by itself costs no capacity. */
  #mayBeDeleted(uid: string): boolean {
    const pod = this.#live.get(uid);
    if (pod === undefined || pod.terminating || readyMs(pod) === undefined) return false;
    return this.#inFlight.some(
      (one) => one.pod.uid === uid && (one.operation === "EVICT" || one.pod.resourceVersion === pod.resourceVersion),
    );
  }

  /** `A - sum(w) = |AV \ UIDs of buckets|`: only counted pods are subtracted. */
  #checkSubtraction(): void {
    const { ledger, aggregation } = this.#cell();
    const counted = this.#counted();
    const names = new Map([...(this.#past.get(this.#position)?.values() ?? [])].map((pod) => [pod.uid, pod.name]));
    const rest = [...counted].filter((uid) => ledger.get(uid, names.get(uid)) === undefined);
    const difference = (aggregation?.availableReplicas ?? 0) - ledger.weight;
    if (difference !== rest.length) throw new Error(`A - sum(w) is ${difference}, |AV \\ UIDs| is ${rest.length}`);
  }

  /** The available pods at the published position under the published cutoff, whose number is published (S3). */
  #counted(): ReadonlySet<string> {
    const { aggregation } = this.#cell();
    const pods = this.#past.get(Number(aggregation?.resourceVersion)) ?? new Map<string, Pod>();
    const cutoffMs = this.spec.minReadySeconds > 0 ? parseMs(aggregation?.maturityCutoff) : Number.POSITIVE_INFINITY;
    const available = new Set(
      [...pods.values()].filter((pod) => !pod.terminating && isReadySince(pod, cutoffMs)).map(({ uid }) => uid),
    );
    if (available.size !== aggregation?.availableReplicas) throw new Error("S3: the count is not what it says it is");
    return available;
  }

  #cell(): CellState {
    const cell = parseProtector(this.#protector).cells.get("a");
    if (cell === undefined) throw new Error("the cell was never counted");
    return cell;
  }

  #pick(index: number): Pod | undefined {
    const pods = [...this.#live.values()];
    return pods[index % Math.max(1, pods.length)];
  }

  #readyNow(): { readyForSeconds: number } {
    return { readyForSeconds: -Math.floor(this.#nowMs / 1000) };
  }

  #put(pod: Pod, isGone = false): void {
    this.#revision++;
    if (isGone) this.#live.delete(pod.uid);
    else this.#live.set(pod.uid, { ...pod, resourceVersion: String(this.#revision) });
    this.#past.set(this.#revision, new Map(this.#live));
  }

  #write(status: PodProtector["status"]): void {
    this.#protector = JSON.parse(JSON.stringify({ ...this.#protector, status })) as PodProtector;
  }
}
