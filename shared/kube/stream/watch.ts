import { type Ports, sleep } from "../../runtime/clock.ts";
import type { ApiStream, Transport } from "../client/transport.ts";
import { type Collection, collectionPath } from "./collection.ts";
import { LineSplitter, MAX_LINE_BYTES } from "./line-splitter.ts";
import { withoutManagedFields } from "./managed-fields.ts";
import { type EventType, parseWatchLine } from "./raw-object.ts";
import { failureOfErrorEvent, failureOfResponse } from "./watch-failure.ts";

/** How much longer than the server's own timeout a stream may be silent before it counts as dead (half-open). */
export const IDLE_GRACE_MS = 4_000;
/** A burst that arrives faster than it is read is interrupted after so much work on it, so that the process stays responsive. */
const MAX_BUSY_MS = 10;
/** Bound on the body of a refused watch: a Status. */
const MAX_REFUSAL_BYTES = 64 * 1024;

export interface WatchRequest {
  readonly name: string;
  readonly transport: Transport;
  readonly ports: Pick<Ports, "clock" | "timers">;
  readonly collection: Collection;
  /** Beside `watch=1`, `allowWatchBookmarks=true` and the timeout. */
  readonly parameters: Readonly<Record<string, string>>;
  /** After this many seconds the server ends the stream; a bookmark comes 2 s before. */
  readonly timeoutSeconds: number;
  readonly signal: AbortSignal;
  readonly contact: () => void;
  readonly opened: () => void;
  /** Called for each event but ERROR; `false` ends the stream from this side. */
  readonly each: (type: Exclude<EventType, "ERROR">, object: unknown) => boolean;
  /** Awaited between chunks: a consumer that is behind holds the stream, and the sender with it. */
  readonly pause: (() => Promise<void> | undefined) | undefined;
}

/**
 * Opens one watch and reads it to its end. Returns when the server ended it or `each` asked to; throws WatchFailure or
 * TransportError otherwise: an ERROR event or an unparsable line ends it (design 8). Nothing of the stream is delivered after
 * the return, and its connection is gone or drained.
 */
export async function readWatch(request: WatchRequest): Promise<void> {
  const { transport, collection, parameters, timeoutSeconds, signal, name } = request;
  const stream = await transport.stream({
    method: "GET",
    path: collectionPath(collection, {
      ...parameters,
      watch: 1,
      allowWatchBookmarks: true,
      timeoutSeconds,
    }),
    timeoutMs: timeoutSeconds * 1000 + IDLE_GRACE_MS,
    signal,
  });
  try {
    request.contact();
    if (stream.status !== 200) {
      throw failureOfResponse(
        { status: stream.status, headers: stream.headers, body: await readText(stream) },
        `watch ${name}`,
      );
    }
    request.opened();
    await readEvents(stream, request);
  } finally {
    stream.close();
  }
}

async function readEvents(stream: ApiStream, request: WatchRequest): Promise<void> {
  const lines = new LineSplitter(MAX_LINE_BYTES, withoutManagedFields);
  const { ports } = request;
  let busyMs = 0;
  for await (const chunk of stream.chunks) {
    const receivedMs = ports.clock.monotonicMs();
    request.contact();
    for (const line of lines.push(chunk)) {
      // A late line of a connection that was given up changes nothing.
      if (request.signal.aborted) return;
      const event = parseWatchLine(line);
      if (event.type === "ERROR") throw failureOfErrorEvent(event.object, `watch ${request.name}`);
      if (!request.each(event.type, event.object)) return;
    }
    busyMs += ports.clock.monotonicMs() - receivedMs;
    const paused = request.pause?.();
    if (paused !== undefined) await settledOrAborted(paused, request.signal);
    if (busyMs >= MAX_BUSY_MS) {
      await sleep(ports, 0, request.signal);
      busyMs = 0;
    }
  }
}

/** Resolves when `work` has settled or the signal aborts, whichever is first. */
function settledOrAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      signal.removeEventListener("abort", done);
      resolve();
    };
    if (signal.aborted) return done();
    signal.addEventListener("abort", done);
    work.then(done, done);
  });
}

async function readText(stream: ApiStream): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of stream.chunks) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > MAX_REFUSAL_BYTES) break;
  }
  return text;
}
