/**
 * Whether a cell needs the trigger (docs/design.md#informers): an apiserver whose bookmarks carry the version of a LIST
 * moves a quiet stream by itself. The probe watches the dummy pod from time to time for one stream.
 */
import { podPath, withQuery } from "../../shared/kube/client/api-path.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { isRawObject, parseListPage } from "../../shared/kube/stream/raw-object.ts";
import { readWatch } from "../../shared/kube/stream/watch.ts";
import { type Ports, sleep } from "../../shared/runtime/clock.ts";
import { isOlderVersion } from "../../shared/schema/resource-version.ts";

export interface BookmarkProbeOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  readonly namespace: string;
  readonly podName: string;
  /**
   * `sends` is undefined when no stream was complete (the permission is missing, or the apiserver is down), and when
   * nothing but the dummy pod changed.
   */
  readonly onResult: (sends: boolean | undefined) => void;
}

const EVERY_MS = 600_000;
/** After a stream that did not show it. */
const AGAIN_MS = 10_000;
const STREAM_SECONDS = 8;
/** A watch cache that serves no list makes no progress (docs/decisions/0002-short-watches.md). */
const LIST_EVERY_MS = 1_000;
const TIMEOUT_MS = 10_000;

/** Probes at once, and then every ten minutes until `signal` aborts. Never rejects. */
export async function probeBookmarks(options: BookmarkProbeOptions, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const stop = new AbortController();
    const sends = await probeOnce(options, AbortSignal.any([signal, stop.signal])).catch(() => undefined);
    stop.abort();
    options.onResult(sends);
    await sleep(options.ports, sends === undefined ? AGAIN_MS : EVERY_MS, signal);
  }
}

async function probeOnce(options: BookmarkProbeOptions, signal: AbortSignal): Promise<boolean | undefined> {
  const { transport, ports, namespace, podName } = options;
  const collection = { path: podPath(namespace), query: { fieldSelector: `metadata.name=${podName}` } };
  /** Versions of the lists, oldest first. */
  const listed: string[] = [];
  const ofPod = new Set<string>();
  const versionOf = (object: unknown): string =>
    (isRawObject(object) ? object.metadata.resourceVersion : undefined) ?? "";
  const list = async (): Promise<string> => {
    const path = withQuery(collection.path, { ...collection.query, limit: 1 });
    const { status, body } = await transport.request({ method: "GET", path, timeoutMs: TIMEOUT_MS, signal });
    if (status !== 200) throw new Error(`HTTP ${status}`);
    const { resourceVersion, items } = parseListPage(body);
    for (const item of items) ofPod.add(versionOf(item));
    listed.push(resourceVersion);
    return resourceVersion;
  };
  const resourceVersion = await list();
  const keepListing = async (): Promise<void> => {
    for (; !signal.aborted; await sleep(ports, LIST_EVERY_MS, signal)) await list();
  };
  void keepListing().catch(() => {});
  let sends: boolean | undefined;
  let bookmarks = 0;
  await readWatch({
    ...{ name: "the dummy pod", transport, ports, collection, resourceVersion, signal },
    timeoutSeconds: STREAM_SECONDS,
    isMoved: false,
    contact: () => {},
    opened: () => {},
    each: (type, object) => {
      const version = versionOf(object);
      if (type !== "BOOKMARK") {
        ofPod.add(version);
        return;
      }
      bookmarks++;
      // Where lists move nothing, a bookmark has the version of the last pod that changed, such as the dummy pod.
      if (listed.includes(version) && !ofPod.has(version)) sends = true;
      // The newest list may have been answered after the bookmark.
      else if (listed.slice(0, -1).some((before) => isOlderVersion(version, before))) sends ??= false;
    },
  });
  if (signal.aborted) return undefined;
  return bookmarks === 0 ? false : sends;
}
