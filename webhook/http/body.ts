import { IncomingMessage } from "node:http";
import { BadReview } from "../request/admission-request.ts";
import type { InFlightLimiter, InFlightSlot } from "./in-flight-limiter.ts";

/** A call, with its body once that was read to its end, or with why it can't be. */
export class ReceivedCall extends IncomingMessage {
  received: string | BadReview | undefined;
}

/**
 * Reads the body as text, straight from the socket's stream (the web stream around it costs a third of a review), and calls `done` once:
 * with the text, or with what is wrong. Returns the place that the review holds until it is answered; undefined, and nothing is read, when
 * there is none.
 */
export function readBody(
  incoming: IncomingMessage,
  room: InFlightLimiter,
  maxBytes: number,
  done: (body: string | BadReview) => void,
): InFlightSlot | undefined {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let isDone = false;
  const finish = (body: string | BadReview): void => {
    if (isDone) return;
    isDone = true;
    // The listeners live on until a caller who is refused has gone.
    chunks.length = 0;
    place?.arrived();
    done(body);
  };
  const place = room.enter(() => finish(busy()));
  if (place === undefined) return undefined;
  incoming.on("data", (chunk: Buffer) => {
    if (isDone) return;
    bytes += chunk.length;
    if (bytes > maxBytes) return finish(tooLarge(maxBytes));
    chunks.push(chunk);
    place.keep(chunk.length);
  });
  incoming.on("end", () => {
    if (!isDone) finish(textOf(chunks));
  });
  incoming.on("error", (cause) => finish(new BadReview(400, "the request ended early", { cause })));
  // After every request: an error with its stack, made for nobody, would be a tenth of a review.
  incoming.on("close", () => {
    if (!isDone) finish(new BadReview(400, "the request ended early"));
  });
  return place;
}

/** True when the caller says itself that the body is larger. */
export function isTooLarge(incoming: IncomingMessage, maxBytes: number): boolean {
  return Number(incoming.headers["content-length"] ?? 0) > maxBytes;
}

export function tooLarge(maxBytes: number): BadReview {
  return new BadReview(413, `the review is larger than ${maxBytes} bytes`);
}

export function busy(): BadReview {
  return new BadReview(503, "too many reviews are under way here, try another replica");
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
