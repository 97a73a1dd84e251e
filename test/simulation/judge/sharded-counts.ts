/** What is worth seeing in a count that was made in shards: that it mattered at which version each of them was. */
import type { CellStatus } from "../../../shared/schema/podprotector.ts";
import type { PodTruth, Wanted } from "../truth/pod-truth.ts";
import { Position } from "../truth/position.ts";
import { ledgerOf } from "../truth/stored-protectors.ts";
import type { SeenRule } from "./coverage.ts";

/** `stored`: the position that the count has replaced. */
export function* seenInShards(
  pods: PodTruth,
  wanted: Wanted,
  { aggregation, ...entry }: CellStatus,
  position: Position,
  stored: Position | undefined,
): Iterable<SeenRule> {
  if (stored !== undefined && stored.parts.length !== position.parts.length)
    yield "shards: counted in another number of them";
  if (position.parts.length === 1) return;
  const { newest } = position;
  const cutoffMs = Date.parse(aggregation?.maturityCutoff ?? "");
  const counted = pods.availableAt(position, wanted, cutoffMs);
  const now = pods.availableAt(new Position(String(newest)), wanted, cutoffMs);
  if (counted.size !== now.size || [...counted].some((uid) => !now.has(uid)))
    yield "shards: counted while one is behind";
  for (const { uid } of ledgerOf(entry).reservations()) {
    const dead = uid === undefined ? undefined : pods.deadAt(uid);
    if (uid === undefined || dead === undefined || dead > newest || dead <= position.of(uid)) continue;
    yield "shards: a reservation in one that is behind";
    return;
  }
}
