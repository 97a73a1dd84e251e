/**
 * Whether a cell needs the trigger (docs/design.md#informers): an apiserver that sends bookmarks moves a quiet stream
 * by itself. The probe watches the dummy pod from time to time for one stream, like an aggregator watches pods.
 */
import { podPath } from "../../shared/kube/client/api-path.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import { type Ports, sleep } from "../../shared/runtime/clock.ts";
import { type Pod, parsePod } from "../../shared/schema/pod.ts";

export interface BookmarkProbeOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  readonly namespace: string;
  readonly podName: string;
  /** `sends` is undefined when no stream was complete: the permission is missing, or the apiserver is down. */
  readonly onResult: (sends: boolean | undefined) => void;
}

const EVERY_MS = 600_000;
/** Longer than two streams of the length that an aggregator uses. */
const LONGEST_MS = 30_000;
const CONFIRM_EVERY_MS = 2_000;
const SERVER_TIMEOUT_SECONDS = [8, 8] as const;

/** Probes at once, and then every ten minutes until `signal` aborts. Never rejects. */
export async function probeBookmarks(options: BookmarkProbeOptions, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    options.onResult(await probeOnce(options, signal));
    await sleep(options.ports, EVERY_MS, signal);
  }
}

async function probeOnce(options: BookmarkProbeOptions, signal: AbortSignal): Promise<boolean | undefined> {
  const { transport, ports, namespace, podName } = options;
  const stop = new AbortController();
  let sends: boolean | undefined;
  const watch = new Reflector<Pod>({
    name: "the dummy pod",
    ...{ transport, ports },
    path: podPath(namespace),
    query: { fieldSelector: `metadata.name=${podName}` },
    parse: parsePod,
    keyOf: (pod) => pod.name,
    uidOf: (pod) => pod.uid,
    versionOf: (pod) => pod.resourceVersion,
    serverTimeoutSeconds: SERVER_TIMEOUT_SECONDS,
    // A watch cache that serves no other request makes no progress and sends no bookmark
    // (docs/decisions/0002-short-watches.md).
    confirmEveryMs: CONFIRM_EVERY_MS,
    onEvent: (event) => {
      if (event.kind !== "ended") return;
      sends = event.bookmarks > 0;
      stop.abort();
    },
  });
  watch.start();
  await sleep(ports, LONGEST_MS, AbortSignal.any([signal, stop.signal]));
  await watch.stop();
  return sends;
}
