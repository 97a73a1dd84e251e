/** The checks on every admission response: coverage, the invariants that a response can break, and what it exempts. */

import { FORCE_DELETE_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { MAX_PIN_MS } from "../../../webhook/handler.ts";
import type { InFlightRequest, ObservedResponse } from "../actors/admission-requests.ts";
import type { EtcdObject, Json } from "../apiserver/etcd.ts";
import { hasLabels, metadataOf, record } from "../apiserver/objects.ts";
import { closesGate, isTrue } from "../apiserver/pod-conditions.ts";
import { PRE_ACTIVITY } from "../faults/pod-states.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import { parseStored, wantedOf } from "../truth/stored-protectors.ts";
import type { World } from "../world/world.ts";
import { admissionRowsOf, type KnownNames } from "./admission-rows.ts";

/** Reasons for which a disruption is allowed whatever the pre-activity says. */
const WHATEVER: ReadonlySet<string> = new Set([
  ...["Finished", "Terminating", "Mirror", "Pending", "PinnedPending", "Forced"],
]);

type RequestKind = "delete" | "evict" | "change" | "end" | "gate" | "node";

function kindOf({ operation, resource, subResource, object, oldObject }: Json): RequestKind {
  if (record(resource).resource === "nodes") return "node";
  if (operation === "UPDATE" && subResource === "status")
    return closesGate(record(oldObject), record(object)) ? "gate" : "end";
  if (operation === "UPDATE") return "change";
  return subResource === "eviction" ? "evict" : "delete";
}

export class ResponseChecks {
  readonly #world: World;
  readonly #names: KnownNames = new Map();

  constructor(world: World) {
    this.#world = world;
  }

  /** Called with each verdict, before the response travels back. */
  responded(cell: string, inFlight: InFlightRequest | undefined, response: ObservedResponse): void {
    const world = this.#world;
    const { request, allowed, code, message, reasons, isOnlyWarned } = response;
    const kind = kindOf(request);
    if (kind === "change" && inFlight === undefined && request.dryRun !== true && !allowed)
      world.violation("L6", `a change that restarts nothing was denied: ${message}`);
    const verdict = allowed ? "allowed" : String(code);
    for (const row of admissionRowsOf(response, world.scenario.protectors.length, this.#names)) world.coverage.row(row);
    for (const reason of reasons.length > 0 ? reasons : ["without a protector"])
      world.coverage.verdict(`${kind} ${verdict} ${reason}`);
    const what = `${inFlight?.key ?? "?"} ${inFlight?.uid ?? ""}@${inFlight?.revision ?? ""}`;
    world.note(`${cell} review of ${what} (${kind}): ${allowed ? "allowed" : `${code} ${message}`}`);
    if (!allowed && inFlight !== undefined) world.denials.denied(cell, inFlight, response.decisions);
    if (!allowed && code === 429 && world.scenario.features.isDryRunMode)
      world.violation("S9", `${inFlight?.key ?? "?"} was denied by a replica in dry-run mode: ${message}`);
    world.suspensions.responded(cell, inFlight, response);
    if (!world.exemptions.isForced(inFlight?.uid ?? "")) world.owner?.responded(inFlight, response);
    world.source?.responded(cell, inFlight, response);
    world.backups?.responded(cell, inFlight, response);
    if (world.scenario.features.preActivityEveryMs > 0) this.#checkPreActivity(response);
    if (allowed && inFlight !== undefined) {
      world.exemptions.admitted(cell, inFlight.uid);
      if (this.#isUnpinned(cell, inFlight, response)) world.exemptions.unknown(inFlight.uid);
      this.#exemptFromOthers(cell, inFlight);
    }
    if (isOnlyWarned) {
      world.coverage.fault("dryRunMode");
      world.coverage.row("dry-run mode of the webhook");
    }
    if (response.decisions.length > 0 && world.scenario.features.terminateEveryMs > 0 && this.#someTerminate())
      world.coverage.row("protector terminating but with its finalizer");
    // Dry-run mode allows what a protector has denied.
    if (isOnlyWarned && inFlight !== undefined) world.exemptions.unknown(inFlight.uid);
    else if (allowed && inFlight !== undefined) world.checks.allowed(this.#protectors(), cell, inFlight, request);
    else if (allowed && !isOnlyWarned && request.dryRun !== true) this.#checkNode(cell, response);
  }

  /** The eviction of a Pending pod that no protector could record in time (docs/limits.md) passes all the same. */
  #isUnpinned(cell: string, inFlight: InFlightRequest, { decisions }: ObservedResponse): boolean {
    const { time, cells } = this.#world;
    const { operation, askedMs } = inFlight;
    if (operation !== "EVICT" || decisions.length > 0) return false;
    if (time.elapsedMs - askedMs < MAX_PIN_MS) return false;
    const pod = cells.get(cell)?.admission.stored(inFlight)?.value;
    return pod !== undefined && record(pod.status).phase === "Pending";
  }

  #protectors(): EtcdObject[] {
    return [...this.#world.cores.values()].flatMap(({ etcd }) => etcd.range("podprotectors/"));
  }

  /** Every pod of a node that may be deleted has its record, as if its own deletion had been allowed. */
  #checkNode(cell: string, response: ObservedResponse): void {
    const { request, podsOfNode } = response;
    for (const pod of podsOfNode) {
      this.#world.suspensions.responded(cell, pod, response);
      this.#world.coverage.rule("nodes: a pod of an allowed deletion is checked");
      this.#world.checks.allowed(this.#protectors(), cell, pod, { ...request, oldObject: null });
    }
  }

  /**
   * Exempts the pod from protectors that do not exist or do not cover it. A protector that covers it later learns of it
   * by the next count.
   */
  #exemptFromOthers(cell: string, inFlight: InFlightRequest): void {
    const world = this.#world;
    const truth = world.cells.get(cell);
    const pod = truth?.admission.stored(inFlight)?.value;
    // A second change belongs to whoever decided the first one, which is still in progress.
    const isFirst = inFlight.operation === "UPDATE" && truth?.restarts?.isInProgress(inFlight.uid) === false;
    for (const { name } of world.scenario.protectors) {
      const stored = world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`);
      const isCovered =
        stored !== undefined && pod !== undefined && hasLabels(pod, wantedOf(parseStored(stored)).labels);
      if (isFirst || (inFlight.operation === "UPDATE" && isCovered))
        world.exemptions.changedInPlace(name, inFlight.uid, isCovered || pod === undefined);
      if (pod === undefined || isCovered) continue;
      world.exemptions.add(name, cell, inFlight.uid);
    }
  }

  /** No deletion is allowed of a pod whose reviewed version has the annotation. */
  #checkPreActivity({ request, allowed, reasons, isOnlyWarned }: ObservedResponse): void {
    if (!allowed || isOnlyWarned || request.operation !== "DELETE" || reasons.length === 0) return;
    const pod = record(request.oldObject);
    const { name, annotations } = metadataOf(pod);
    // Kubernetes is about to end it, and on a dead node nobody is left to end the pre-activity.
    if (isTrue(pod, "DisruptionTarget") && !isTrue(pod, "Ready")) return;
    // A suspended protector calls a forced disruption suspended.
    const isForced = record(annotations)[FORCE_DELETE_ANNOTATION] !== undefined;
    if (isForced || record(annotations)[PRE_ACTIVITY] === undefined || reasons.some((reason) => WHATEVER.has(reason)))
      return;
    this.#world.violation(
      "pre-activity",
      `${String(name)} was allowed (${reasons.join()}), and its pre-activity is not done`,
    );
  }

  #someTerminate(): boolean {
    const world = this.#world;
    return world.scenario.protectors.some(({ name }) => {
      const stored = world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`);
      return stored !== undefined && metadataOf(stored.value).deletionTimestamp !== undefined;
    });
  }
}
