import { sleep } from "../../runtime/clock.ts";
import { withQuery } from "../client/api-path.ts";
import { MalformedResponse } from "../client/api-result.ts";
import { withoutManagedFields } from "../client/managed-fields.ts";
import type { ApiStream } from "../client/transport.ts";
import { LineSplitter, MAX_LINE_BYTES } from "./line-splitter.ts";
import type { Lister } from "./list.ts";
import { checkKind, type EventType, parseWatchLine } from "./raw-object.ts";
import { failureOfErrorEvent, failureOfResponse, WatchFailure } from "./watch-failure.ts";

/** A stream that is silent for this long beyond the server's own timeout counts as dead (half-open). */
const IDLE_GRACE_MS = 4_000;
/**
 * A stream that is still open this long after the server's own timeout is abandoned. A server ends the stream after the
 * line in flight, which may take as long as a page of a list on a slow network.
 */
const OVERTIME_MS = 30_000;
/** A burst is interrupted after this much work, so that the process stays responsive. */
const MAX_BUSY_MS = 10;
/** Bound of the body of a rejected watch: a Status. */
const MAX_REJECTION_BYTES = 64 * 1024;

interface WatchRequest extends Pick<Lister<unknown>, "name" | "transport" | "ports" | "collection" | "contact"> {
  /** The watch reports changes after this version. */
  readonly resourceVersion: string;
  /** The server ends the stream after this many seconds, and sends a bookmark up to 2 s before. */
  readonly timeoutSeconds: number;
  readonly signal: AbortSignal;
  /** The server of the last stream lags; this one may reach another. */
  readonly isMoved: boolean;
  readonly opened: () => void;
  /** Called for each event but ERROR. */
  readonly each: (type: Exclude<EventType, "ERROR">, object: unknown) => void;
}

/**
 * Opens one watch and reads it to its end. Resolves with its duration when the server ended it on time, or did not end
 * it at all, or `signal` aborted. Rejects with WatchFailure, MalformedResponse or TransportError; an ERROR event and an
 * unparsable line end the watch. After that nothing of the stream is delivered, and its connection is closed or
 * drained.
 */
export async function readWatch(request: WatchRequest): Promise<number> {
  const { transport, ports, collection, resourceVersion, timeoutSeconds, signal, isMoved, name } = request;
  const startedMs = ports.clock.monotonicMs();
  const endMs = startedMs + timeoutSeconds * 1000 + OVERTIME_MS;
  const isOver = (): boolean => ports.clock.monotonicMs() > endMs;
  const query = { ...collection.query, resourceVersion, watch: 1, allowWatchBookmarks: true, timeoutSeconds };
  const stream = await transport.stream({
    method: "GET",
    path: withQuery(collection.path, query),
    timeoutMs: timeoutSeconds * 1000 + IDLE_GRACE_MS,
    signal,
    isMoved,
  });
  try {
    request.contact();
    if (stream.status !== 200) {
      const { status, headers } = stream;
      throw failureOfResponse({ status, headers, body: await readText(stream, isOver) }, `watch ${name}`);
    }
    // A login or maintenance page of a proxy. Read as a stream, it would end an outage in which the server may have
    // been restored.
    if (!/\bjson\b/.test(stream.headers["content-type"] ?? ""))
      throw new MalformedResponse(`watch ${name}: the answer is no JSON; does something in between answer?`);
    request.opened();
    await readEvents(stream, request, isOver);
  } finally {
    stream.close();
  }
  const durationMs = ports.clock.monotonicMs() - startedMs;
  if (!signal.aborted && durationMs < (timeoutSeconds * 1000) / 2) {
    const message = `watch ${name}: ended after ${Math.round(durationMs)} ms of ${timeoutSeconds} s`;
    throw new WatchFailure("ended-early", message);
  }
  return durationMs;
}

async function readEvents(
  stream: ApiStream,
  { name, ports, signal, collection, contact, each }: WatchRequest,
  isOver: () => boolean,
): Promise<void> {
  const lines = new LineSplitter(MAX_LINE_BYTES, withoutManagedFields);
  let busyMs = 0;
  let hasLine = false;
  for await (const chunk of stream.chunks) {
    const receivedMs = ports.clock.monotonicMs();
    contact();
    for (const line of lines.push(chunk)) {
      // Late lines of an abandoned connection change nothing.
      if (signal.aborted) return;
      hasLine = true;
      const event = parseWatchLine(line);
      if (event.type === "ERROR") throw failureOfErrorEvent(event.object, `watch ${name}`);
      if (collection.kind !== undefined) checkKind(event.object, collection.kind);
      each(event.type, event.object);
    }
    // A proxy may keep the stream open, by blank lines or a byte at a time.
    if (isOver()) return;
    busyMs += ports.clock.monotonicMs() - receivedMs;
    if (busyMs >= MAX_BUSY_MS) {
      await sleep(ports, 0, signal);
      busyMs = 0;
    }
  }
  // The body is one page without a line break, perhaps of a proxy.
  if (!hasLine && lines.pendingBytes > 0) throw new MalformedResponse(`watch ${name}: the answer has no end of a line`);
}

async function readText(stream: ApiStream, isOver: () => boolean): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of stream.chunks) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > MAX_REJECTION_BYTES || isOver()) break;
  }
  return text;
}
