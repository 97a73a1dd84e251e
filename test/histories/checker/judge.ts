/**
 * Judges a recorded history. This folder reads the JSON by itself and imports nothing of the product, so no mistake of
 * the product can be a mistake of the checker, too.
 *
 * Read `history.ts` for what is recorded, then the four checks: `counter.ts`, `dropped.ts`, `counts.ts`, `returned.ts`.
 */
import { judgeCounter } from "./counter.ts";
import { judgeCounts } from "./counts.ts";
import { judgeDropped } from "./dropped.ts";
import { readHistory } from "./history.ts";
import { Judgement } from "./judgement.ts";
import { protectorsOf } from "./protector-history.ts";
import { judgeReturned } from "./returned.ts";

/** Judges the lines of a history. */
export function judge(lines: Iterable<string>): Judgement {
  const history = readHistory(lines);
  const judgement = new Judgement();
  const protectors = protectorsOf(history);
  judgeCounter(history, protectors, judgement);
  judgeDropped(history, protectors, judgement);
  judgeCounts(history, protectors, judgement);
  judgeReturned(history, protectors, judgement);
  return judgement;
}
