/**
 * S2: with a constant spec, fewer than minAvailable pods are truly available only by as many as were lost by themselves. A loss is
 * remembered until it is published and the protector has had enough pods again; until then a decision may not have known of it.
 */
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { Position } from "../truth/position.ts";

interface Loss {
  readonly cell: string;
  readonly uid: string;
  readonly revision: number;
}

export class Shortfall {
  #losses: Loss[] = [];
  #published: PodProtector | undefined;
  #reserved = 0;
  /** In a cell on hold, or without an entry, what was admitted is unknown and may still be committed. */
  #isUnknown = false;

  /** The protector was written; its counts say which losses are known, its reservations what may still go. */
  written(protector: PodProtector): void {
    this.#published = protector;
    this.#reserved = 0;
    this.#isUnknown = false;
    for (const { admissionHistory, aggregation } of protector.status?.cells ?? []) {
      if (aggregation?.hold !== undefined || aggregation?.resourceVersion === undefined) this.#isUnknown = true;
      for (const { counter } of admissionHistory?.buckets ?? []) this.#reserved += counter ?? 1;
    }
  }

  /** A pod became unavailable without having been deleted. */
  lost(cell: string, uid: string, revision: number): void {
    this.#losses.push({ cell, uid, revision });
  }

  /** How many pods are missing that nothing explains; `available` is the truth of all cells at this moment. */
  unexplained(available: number): number {
    if (this.#published === undefined) return 0;
    const missing = this.#published.spec.minAvailable - available;
    // What was admitted before the loss may still be committed, and then the loss shows.
    if (missing + this.#reserved <= 0 && !this.#isUnknown) this.#forgetPublished();
    return missing - this.#losses.length;
  }

  #forgetPublished(): void {
    if (this.#losses.length === 0) return;
    const positions = new Map(
      (this.#published?.status?.cells ?? []).map(({ cellID, aggregation }) => [
        cellID,
        new Position(aggregation?.resourceVersion ?? "0"),
      ]),
    );
    this.#losses = this.#losses.filter(({ cell, uid, revision }) => revision > (positions.get(cell)?.of(uid) ?? 0));
  }
}
