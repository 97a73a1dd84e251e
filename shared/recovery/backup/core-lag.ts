import type { LearningInformer } from "../../kube/informer/informer.ts";
import { type Ports, sleep } from "../../runtime/clock.ts";
import { isBehindAny } from "./core-versions.ts";

const POLL_MS = 50;

/** What a process knows of a core's versions. */
export type CoreWatch = Pick<
  LearningInformer<unknown>,
  "position" | "serverVersion" | "quorumSentMs" | "requestEvidence"
>;

/**
 * Before a core counts as restored, rules out that only this stream is old: its apiserver may lag behind another one,
 * or no bookmark may have arrived yet. Resolves at once if the core does not seem to be older, else with the response
 * to a quorum LIST that is sent from now on.
 */
export async function askIfBehind(
  watch: CoreWatch,
  noted: readonly (string | undefined)[],
  ports: Pick<Ports, "clock" | "timers">,
  signal: AbortSignal,
): Promise<void> {
  const sinceMs = ports.clock.monotonicMs();
  const seemsOlder = (): boolean => isBehindAny(watch.serverVersion ?? watch.position, noted);
  if (seemsOlder()) watch.requestEvidence();
  while (seemsOlder() && (watch.quorumSentMs ?? Number.NEGATIVE_INFINITY) < sinceMs && !signal.aborted)
    await sleep(ports, POLL_MS, signal);
}
