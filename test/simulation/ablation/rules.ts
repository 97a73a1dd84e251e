/**
 * The rules of the protocol (docs/design.md), and how to leave each of them out. The simulation runs the shipping code
 * with one rule missing and expects an invariant to break. `patch-sources.ts` edits the source text while a process of
 * the simulation loads the code, so the shipping code knows nothing of it. Each `find` occurs in its file exactly once,
 * which a test checks.
 */

export interface SourceEdit {
  /** Path from the root of the repository. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

interface AblatedRule {
  /** What the code does without the rule. */
  readonly without: string;
  readonly edits: readonly SourceEdit[];
}

const SETTLE = "shared/decide/settling/settle-rules.ts";
const CELL_UPDATE = "shared/decide/settling/cell-update.ts";
const STATE = "shared/decide/state/protector-state.ts";
const QUOTA = "shared/decide/quota.ts";
const RESERVATION = "shared/decide/ledger/reservation.ts";
const PIPELINE = "webhook/reserve/pipeline.ts";
const WRITER = "webhook/reserve/protector-writer.ts";
const BATCH = "webhook/reserve/batch.ts";

function rule(without: string, file: string, find: string, replace: string): AblatedRule {
  return { without, edits: [{ file, find, replace }] };
}

export const RULES = {
  R1: rule("The records of a dead pod stay.", SETTLE, "if (pod !== undefined) return isDead(pod);", "return false;"),
  R1Position: rule(
    "A pod that is absent from the snapshot is dead, however old the snapshot is.",
    SETTLE,
    "return evidence.reachedSentMs !== undefined && evidence.reachedSentMs > firstSeenMs;",
    "return true;",
  ),
  R2: rule(
    "The record of a DELETE stays although its pod is at a newer version.",
    SETTLE,
    'if (operation !== "DELETE") return false;',
    "return false;",
  ),
  R2DeleteOnly: rule(
    "A newer version of the pod settles evictions too.",
    SETTLE,
    'if (operation !== "DELETE") return false;',
    "",
  ),
  Heard: rule(
    "R1 and R2 use a snapshot from before the admission was seen.",
    SETTLE,
    "evidence.heardMs(uid) > seenMs ||",
    "true ||",
  ),
  R3: rule(
    "The record of a disruption that never happened stays.",
    SETTLE,
    "const dueMs = settledAtMs(settleMs, span.lastMs);",
    "const dueMs = Number.POSITIVE_INFINITY;",
  ),
  R3Settle: rule(
    "Evidence settles a record before the settle period has ended.",
    SETTLE,
    "return lastSeenMs + settleMs;",
    "return lastSeenMs;",
  ),
  WeightFollowsAvailable: rule(
    "The weight of a reservation stays as the webhook wrote it.",
    "shared/decide/settling/settle-history.ts",
    "if (reservation.weight === weight) return;",
    "return;",
  ),
  Fence: rule(
    "An aggregator writes counts of a snapshot that is older than the stored one.",
    CELL_UPDATE,
    'return isStale ? "StalePosition" : undefined;',
    "return undefined;",
  ),
  Epoch: rule(
    "An aggregator writes with an epoch below the stored one.",
    CELL_UPDATE,
    'if (storedEpoch > adoptedEpoch) return "StaleEpoch";',
    "",
  ),
  Hold: rule(
    "A cell on hold counts and admits.",
    STATE,
    "isOnHold: aggregation?.hold !== undefined,",
    "isOnHold: false,",
  ),
  SpecHash: rule(
    "A cell that was counted under another spec counts.",
    STATE,
    "isCurrent: aggregation?.specHash === undefined || isOfThisSpec,",
    "isCurrent: true,",
  ),
  RepeatRefresh: rule(
    "A repeated request is allowed without a write.",
    QUOTA,
    'allow(input, "Repeated", { ...RESERVED, pays })',
    'allow(input, "Repeated")',
  ),
  Paid: rule(
    "A pin counts as paid, so a repeated request is allowed.",
    RESERVATION,
    "if (records.get(operation)?.paid === true)",
    "if (true)",
  ),
  PinImmature: rule(
    "A Ready pod that is not mature is allowed without a record.",
    QUOTA,
    'allow(input, "PinnedImmature", PINNED)',
    'allow(input, "Unavailable")',
  ),
  PinEviction: rule(
    "An eviction of an unavailable pod is allowed without a record.",
    QUOTA,
    "unavailablePin(input));",
    '"none");',
  ),
  MaturityPosition: rule(
    "A Ready pod that the snapshot does not contain yet counts as immature.",
    "shared/decide/availability/availability.ts",
    'return isKnown ? "Immature" : "Available";',
    'return "Immature";',
  ),
  PinWeight: rule(
    "The pin of an eviction has no weight before the snapshot has reached the live read.",
    QUOTA,
    "const isCaughtUp = hasReached(oldestComponent(cell?.aggregation?.resourceVersion), request.pod.resourceVersion);",
    "const isCaughtUp = true;",
  ),
  LiveRead: rule(
    "An eviction is decided on a read of its pod that is older than the count.",
    BATCH,
    "return pending.podReadMs < cellSinceMs(pending.request.cell);",
    "return false;",
  ),
  SlowPins: rule(
    "An eviction stands on the pod as it was before slow writes of its pins.",
    PIPELINE,
    "nowMs - podReadMs < RECENT_READ_MS;\n    if (byRead.length",
    "true;\n    if (byRead.length",
  ),
  GateReason: rule(
    "A gated pod counts by its containers and its other gates, whatever Ready says.",
    "shared/decide/availability/availability.ts",
    "if (readyMs === undefined && !pod.waitsForGates) return undefined;",
    "",
  ),
  NotReady: rule(
    "Pods that are counted and not Ready yet give quota.",
    "shared/decide/state/estimate.ts",
    "estimated += Math.max(0, inCell - reservedInCell - waiting);",
    "estimated += Math.max(0, inCell - reservedInCell);",
  ),
  RepeatNeedsWeight: rule(
    "A repeated request is allowed although its record has no weight.",
    RESERVATION,
    "if (weight !== 1) return false;",
    "if (weight !== 1) return true;",
  ),
  Reserved: rule(
    "Reserved pods count as available.",
    QUOTA,
    "const left = facts.estimated - delta - facts.minAvailable;",
    "const left = facts.available - delta - facts.minAvailable;",
  ),
  Reached: rule(
    "A quorum list counts as proof before the stream has reached it.",
    "shared/kube/informer/quorum-check.ts",
    "accept(evidence: QuorumRead): void {",
    "accept(evidence: QuorumRead): void {\n    this.#confirm(evidence.sentMs);",
  ),
  ConsistentList: rule(
    "A list is answered from a cache of any age.",
    "shared/kube/stream/list.ts",
    "return {};",
    'return { resourceVersion: "0" };',
  ),
  LostHistory: rule(
    "An aggregator does not notice that its entry is older than before.",
    "shared/decide/settling/lost-history.ts",
    "const lost = lossOf(input);",
    "const lost = undefined;",
  ),
  Reassert: rule(
    "A webhook does not write its reservations again after a protector's history was lost.",
    "webhook/reserve/recent-reservations.ts",
    "reassert(key: string, hold: string, cells: readonly string[]): void {",
    "reassert(key: string, hold: string, cells: readonly string[]): void {\n    return;",
  ),
  OwnAnswers: rule(
    "A list that lacks what an own write has shown is used as it is.",
    "shared/kube/informer/object-store.ts",
    "learned(key: string, version: string): void {",
    "learned(key: string, version: string): void {\n    return;",
  ),
  Stall: rule(
    "A process that did not run for a while continues as if no time had passed.",
    "shared/kube/informer/stream-continuity.ts",
    "get hasStalled(): boolean {",
    "get hasStalled(): boolean {\n    return false;",
  ),
  ConfirmedCache: rule(
    "A cache decides although no quorum check has confirmed it for a while.",
    "webhook/reserve/protector-cache.ts",
    "if (ageMs < (this.#options.maxCacheAgeMs ?? MAX_CACHE_AGE_MS)) return undefined;",
    "return undefined;",
  ),
  AllAgree: rule(
    "The first protector decides alone.",
    PIPELINE,
    "matches.sort(byCoreNamespaceName);",
    "matches.sort(byCoreNamespaceName).splice(1);",
  ),
  RollbackByNonce: rule(
    "A roll-back removes a record that other requests share.",
    "shared/decide/reserve.ts",
    "state.cells.get(cell)?.ledger.removeNonce(uid, operation, nonce, hasPaid);",
    `const ledger = state.cells.get(cell)?.ledger;
    const held = ledger?.get(uid);
    if (held) ledger.dropRecord(held, operation);`,
  ),
  RollbackRefused: rule(
    "A request without a verdict is rolled back, although its API server may allow it.",
    PIPELINE,
    "return verdictOf(decisions, rollBack);",
    `const verdict = verdictOf(decisions, rollBack);
    if (verdict.kind !== "allowed" && verdict.kind !== "denied") this.#rollBack(written);
    return verdict;`,
  ),
  UnknownOutcome: rule(
    "A write without a response counts as written.",
    "webhook/reserve/protector-calls.ts",
    "if (!result.sent) for (const pending of attempted) pending.attempt = undefined;",
    `if (!result.sent) for (const pending of attempted) pending.attempt = undefined;
    else
      for (const pending of attempted) {
        const decision = pending.attempt?.decision;
        const version = this.#versions.newest;
        if (decision) this.#queue.settle(pending, { kind: "allowed", decision, version, written: true });
      }`,
  ),
  DecideAgain: rule(
    "After a conflict the first admission is written to whatever is stored.",
    BATCH,
    "const decision = decide(batch.working, pending.request);",
    `const decision = pending.firstAdmission ?? decide(batch.working, pending.request);
    if (decision.allowed) pending.firstAdmission = decision;`,
  ),
  DecideTogether: rule(
    "Each request of a batch is decided on the stored version, without the requests before it.",
    BATCH,
    "const decision = decide(batch.working, pending.request);",
    "const decision = decide(batch.base.state, pending.request);",
  ),
  ConfirmRefusal: rule(
    "A denial is decided on a cached version that is older than the request.",
    WRITER,
    "if (sentMs !== undefined && sentMs >= pending.arrivedMs)",
    "if (true)",
  ),
  Deadline: rule(
    "A request has the longest time that Kubernetes allows, however short its API server waits.",
    "webhook/request/deadline.ts",
    "if (last.timeout !== timeout)",
    "return MAX_TIMEOUT_MS;\n  if (last.timeout !== timeout)",
  ),
} as const satisfies Readonly<Record<string, AblatedRule>>;

export type Rule = keyof typeof RULES;
export const RULE_NAMES = Object.keys(RULES).filter(isRule);

export function isRule(name: string): name is Rule {
  return Object.hasOwn(RULES, name);
}
