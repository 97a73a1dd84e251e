/** What is looked at in every answer to a review: what it covers, the invariants that it could break, and whom it excuses. */

import type { Answered, InFlight } from "../actors/admission-requests.ts";
import { hasLabels, metadataOf } from "../apiserver/objects.ts";
import { checkHeld } from "../faults/pod-states.ts";
import { parse, wantedOf } from "../truth/stored-protectors.ts";
import { NAMESPACE, type World } from "../world/world.ts";
import { type KnownNames, rowsOf } from "./admission-rows.ts";

export class Answers {
  readonly #world: World;
  readonly #names: KnownNames = new Map();

  constructor(world: World) {
    this.#world = world;
  }

  /** Called with each verdict, before it travels back. */
  given(cell: string, flight: InFlight | undefined, answer: Answered): void {
    const world = this.#world;
    const { request, allowed, code, message, reasons, isOnlyWarned } = answer;
    const kind = request.operation === "UPDATE" ? "change" : request.subResource === "eviction" ? "evict" : "delete";
    if (kind === "change" && flight === undefined && request.dryRun !== true && !allowed)
      world.violation("L6", `a change that restarts nothing was refused: ${message}`);
    const verdict = allowed ? "allowed" : String(code);
    for (const row of rowsOf(answer, world.scenario.protectors.length, this.#names)) world.coverage.row(row);
    for (const reason of reasons.length > 0 ? reasons : ["without a protector"])
      world.coverage.verdict(`${kind} ${verdict} ${reason}`);
    world.note(
      `${cell} review of ${flight?.key ?? "?"} ${flight?.uid ?? ""}@${flight?.revision ?? ""} (${kind}): ${allowed ? "allowed" : `${code} ${message}`}`,
    );
    if (!allowed && flight !== undefined) world.rejections.refused(cell, flight, answer.decisions);
    if (!allowed && code === 429 && world.scenario.features.isDryRunMode)
      world.violation("S9", `${flight?.key ?? "?"} was refused by a replica that refuses nothing: ${message}`);
    world.suspensions.answered(cell, flight, answer);
    if (!world.exemptions.isForced(flight?.uid ?? "")) world.owner?.answered(flight, answer);
    world.sources?.answered(cell, flight, answer);
    world.copies?.answered(cell, flight, answer);
    if (world.scenario.features.holdEveryMs > 0)
      checkHeld(answer, (invariant, text) => world.violation(invariant, text));
    if (allowed && flight !== undefined) {
      world.exemptions.admitted(cell, flight.uid);
      this.#exemptFromOthers(cell, flight);
    }
    if (isOnlyWarned) {
      world.coverage.fault("dryRunMode");
      world.coverage.row("dry-run mode of the webhook");
    }
    if (answer.decisions.length > 0 && world.scenario.features.terminateEveryMs > 0 && this.#someTerminate())
      world.coverage.row("protector terminating but with its finalizer");
    // What its protector refused goes all the same.
    if (isOnlyWarned && flight !== undefined) world.exemptions.unknown(flight.uid);
    else if (allowed && flight !== undefined)
      world.checks.allowed(
        [...world.cores.values()].flatMap(({ etcd }) => etcd.range("podprotectors/")),
        cell,
        flight,
        request,
      );
  }

  /** Protectors that are not there or do not cover the pod have no say; one that comes to cover it is told of it when the count catches up. */
  #exemptFromOthers(cell: string, flight: InFlight): void {
    const world = this.#world;
    const truth = world.cells.get(cell);
    const pod = truth?.reviews.stored(flight)?.value;
    // What is under way already is whoever's it was.
    const isFirst = flight.operation === "UPDATE" && truth?.restarts?.isUnderWay(flight.uid) === false;
    for (const { name } of world.scenario.protectors) {
      const stored = world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`);
      const isCovered = stored !== undefined && pod !== undefined && hasLabels(pod, wantedOf(parse(stored)).labels);
      if (isFirst || (flight.operation === "UPDATE" && isCovered))
        world.exemptions.changed(name, flight.uid, isCovered || pod === undefined);
      if (pod === undefined || isCovered) continue;
      world.exemptions.add(name, cell, flight.uid);
    }
  }

  #someTerminate(): boolean {
    const world = this.#world;
    return world.scenario.protectors.some(({ name }) => {
      const stored = world.coreOf(name).etcd.get(`podprotectors/${NAMESPACE}/${name}`);
      return stored !== undefined && metadataOf(stored.value).deletionTimestamp !== undefined;
    });
  }
}
