/** Waits until the generator has done what a command has asked it for. */
import { podProtectorPath } from "../../shared/kube/client/api-path.ts";
import { sleep } from "../../shared/runtime/clock.ts";
import { namespacedName, type PodProtector, parsePodProtector } from "../../shared/schema/podprotector.ts";
import type { ClusterClient } from "./invocation/cluster.ts";
import type { Context } from "./invocation/command.ts";
import { CommandError } from "./invocation/errors.ts";
import { age, firstNames, plural } from "./invocation/output.ts";

/** Longest time without a protector that the generator has acted on. */
const WAIT_MS = 60_000;
const POLL_MS = 500;
/** Of those that the generator has not acted on, in the sentence about them. */
const MAX_NAMED = 5;

/** True while the generator has not acted on the protector, as it is now. */
type IsLeft = (protector: PodProtector) => boolean;

/** Waits until the generator has acted on each of these. One that is gone is done. */
export async function waitForGenerator(
  context: Context,
  core: ClusterClient,
  protectors: readonly PodProtector[],
  isLeft: IsLeft,
): Promise<void> {
  const waiting = await stillLeft(context, core, protectors, isLeft);
  if (waiting.length === 0) return;
  const named = firstNames(
    waiting.map(({ metadata }) => namespacedName(metadata)),
    MAX_NAMED,
  );
  const names = waiting.length > MAX_NAMED ? `${plural(waiting.length, "protector")} (${named})` : named;
  const [flags] = await context.flagsFor(core);
  throw new CommandError(
    `the generator has not acted on ${names} in ${age(WAIT_MS)}: is it running, and for their kind and namespace? ` +
      `(kubectl podseidon doctor${flags}${context.systemFlag}, docs/generator.md)`,
  );
}

/** Those that the generator has not acted on, after a minute in which it has acted on none. */
export async function stillLeft(
  { ports, progress }: Pick<Context, "ports" | "progress">,
  core: Pick<ClusterClient, "find">,
  protectors: readonly PodProtector[],
  isLeft: IsLeft,
): Promise<readonly PodProtector[]> {
  const { clock } = ports;
  const waiting = new Set(protectors);
  const isWaiting = async ({ metadata }: PodProtector): Promise<boolean> => {
    const raw = await core.find(podProtectorPath(metadata.namespace ?? "", metadata.name));
    const found = raw === undefined ? undefined : parsePodProtector(raw);
    return found !== undefined && found.metadata.uid === metadata.uid && isLeft(found);
  };
  let deadlineMs = clock.monotonicMs() + WAIT_MS;
  const poll = async (): Promise<void> => {
    for (const one of waiting) {
      let isThere = await isWaiting(one);
      while (isThere && clock.monotonicMs() < deadlineMs) {
        await sleep(ports, POLL_MS);
        isThere = await isWaiting(one);
      }
      if (isThere) continue;
      waiting.delete(one);
      // While the generator gets on, it has time.
      if (clock.monotonicMs() < deadlineMs) deadlineMs = clock.monotonicMs() + WAIT_MS;
    }
  };
  await progress.during("waiting for the generator", poll, () => plural(waiting.size, "protector"));
  return [...waiting];
}
