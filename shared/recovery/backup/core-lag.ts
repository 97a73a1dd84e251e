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
 * A stream is older than what another process has noted where its apiserver lags behind another one, and, while nothing
 * happens, until its next bookmark. So a core that seems to be older is asked first: resolves when a quorum LIST that
 * was sent from now on is answered.
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
