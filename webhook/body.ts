import { IncomingMessage } from "node:http";
import { BadReview } from "./review.ts";

/** A call, with its body once that was read to its end, or with why it can't be. */
export class ReceivedCall extends IncomingMessage {
  received: string | BadReview | undefined;
}

/**
 * Reads the body as text, straight from the socket's stream (the web stream around it costs a third of a review), and calls `done` once:
 * with the text, or with what is wrong.
 */
export function readBody(incoming: IncomingMessage, maxBytes: number, done: (body: string | BadReview) => void): void {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let isDone = false;
  const finish = (body: string | BadReview): void => {
    if (isDone) return;
    isDone = true;
    done(body);
  };
  incoming.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= maxBytes) chunks.push(chunk);
    else finish(tooLarge(maxBytes));
  });
  incoming.on("end", () => finish(textOf(chunks)));
  incoming.on("error", (cause) => finish(new BadReview(400, "the request ended early", { cause })));
  // After every request: an error with its stack, made for nobody, would be a tenth of a review.
  incoming.on("close", () => {
    if (!isDone) finish(new BadReview(400, "the request ended early"));
  });
}

/** True when the caller says itself that the body is larger. */
export function isTooLarge(incoming: IncomingMessage, maxBytes: number): boolean {
  return Number(incoming.headers["content-length"] ?? 0) > maxBytes;
}

export function tooLarge(maxBytes: number): BadReview {
  return new BadReview(413, `the review is larger than ${maxBytes} bytes`);
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
