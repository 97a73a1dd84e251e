import { IncomingMessage } from "node:http";
import { HttpError } from "./call.ts";
import type { InFlightLimiter, InFlightSlot } from "./in-flight-limiter.ts";

/** A request, with its complete body, or with the reason why its body cannot be had. */
export class ReceivedRequest extends IncomingMessage {
  received: string | HttpError | undefined;
}

/**
 * Reads the body as text straight from the socket's stream (the web stream around it costs a third of a request), and
 * calls `done` once. Returns the slot that the request holds until its response; undefined, without reading anything,
 * when no slot is free.
 */
export function readBody(
  incoming: IncomingMessage,
  limiter: InFlightLimiter,
  maxBytes: number,
  done: (body: string | HttpError) => void,
): InFlightSlot | undefined {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let isDone = false;
  const finish = (body: string | HttpError): void => {
    if (isDone) return;
    isDone = true;
    // The listeners live until a rejected caller has disconnected.
    chunks.length = 0;
    slot?.arrived();
    done(body);
  };
  const slot = limiter.enter(() => finish(tooManyRequests()));
  if (slot === undefined) return undefined;
  incoming.on("data", (chunk: Buffer) => {
    if (isDone) return;
    bytes += chunk.length;
    if (bytes > maxBytes) return finish(tooLarge(maxBytes));
    chunks.push(chunk);
    slot.keep(chunk.length);
  });
  incoming.on("end", () => {
    if (!isDone) finish(textOf(chunks));
  });
  incoming.on("error", (cause) => finish(new HttpError(400, "the request ended early", { cause })));
  // Fires after every request, and an error with its stack costs a tenth of a request: made only when needed.
  incoming.on("close", () => {
    if (!isDone) finish(new HttpError(400, "the request ended early"));
  });
  return slot;
}

/** True when the request's own content-length says so. */
export function isTooLarge(incoming: IncomingMessage, maxBytes: number): boolean {
  return Number(incoming.headers["content-length"] ?? 0) > maxBytes;
}

export function tooLarge(maxBytes: number): HttpError {
  return new HttpError(413, `the AdmissionReview is larger than ${maxBytes} bytes`);
}

export function tooManyRequests(): HttpError {
  return new HttpError(503, "too many admission requests are in flight here, try another replica");
}

function textOf(chunks: readonly Buffer[]): string {
  const [only] = chunks;
  return chunks.length === 1 && only !== undefined ? only.toString("utf8") : Buffer.concat(chunks).toString("utf8");
}

export function isJson(incoming: IncomingMessage): boolean {
  const type = incoming.headers["content-type"];
  if (type === "application/json") return true;
  return type !== undefined && type.split(";", 1)[0]?.trim().toLowerCase() === "application/json";
}
