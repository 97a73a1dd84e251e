import { IncomingMessage } from "node:http";
import { valueCounter } from "../../shared/runtime/json-values.ts";
import { HttpError } from "./call.ts";
import type { InFlightLimiter, InFlightSlot } from "./in-flight-limiter.ts";
import { LARGE_BODY_BYTES, MAX_JSON_VALUES, MAX_SINGLE_OBJECT_BYTES, OPERATION_WITHIN_BYTES } from "./limits.ts";

/** A complete body, or the error that answers the request instead. */
export type Body = HttpError | { readonly isLarge: boolean; readonly text: () => string };

/** A request with its complete body, or with the error that answers it instead. */
export class ReceivedRequest extends IncomingMessage {
  received: string | HttpError | undefined;
}

/**
 * Reads the body straight from the socket's stream (the web stream around it costs a third of a request), and calls
 * `done` once. Returns the slot that the request holds until its response. Without a free slot it returns undefined and
 * reads nothing.
 */
export function readBody(
  incoming: IncomingMessage,
  limiter: InFlightLimiter,
  maxBytes: number,
  done: (body: Body) => void,
): InFlightSlot | undefined {
  let chunks: Buffer[] = [];
  let bytes = 0;
  let values = 0;
  const valuesIn = valueCounter();
  let isDone = false;
  const finish = (error: HttpError | undefined): void => {
    if (isDone) return;
    isDone = true;
    // Frees the chunks of a rejected request: its listeners live until the caller disconnects.
    const complete = chunks;
    chunks = [];
    slot?.arrived();
    done(error ?? { isLarge: bytes > LARGE_BODY_BYTES, text: () => textOf(complete) });
  };
  const slot = limiter.enter(() => finish(tooManyRequests()));
  if (slot === undefined) return undefined;
  incoming.on("data", (chunk: Buffer) => {
    if (isDone) return;
    bytes += chunk.length;
    if (bytes > maxBytes) return finish(tooLarge(maxBytes));
    chunks.push(chunk);
    slot.keep(chunk.length);
    if (bytes <= LARGE_BODY_BYTES) return;
    const uncounted = bytes - chunk.length <= LARGE_BODY_BYTES ? chunks : [chunk];
    for (const one of uncounted) values += valuesIn(one);
    if (values > MAX_JSON_VALUES) return finish(tooManyValues());
    // Once: a caller can send hundreds of thousands of small chunks.
    const isFirstBeyond = bytes > MAX_SINGLE_OBJECT_BYTES && bytes - chunk.length <= MAX_SINGLE_OBJECT_BYTES;
    if (isFirstBeyond && !isUpdate(chunks)) finish(tooLarge(MAX_SINGLE_OBJECT_BYTES));
  });
  incoming.on("end", () => {
    if (isDone) return;
    if (bytes <= LARGE_BODY_BYTES && limiter.countsValues) for (const one of chunks) values += valuesIn(one);
    finish(slot.weigh(values) ? undefined : tooManyRequests());
  });
  incoming.on("error", (cause) => finish(endedEarly(cause)));
  // This event comes after every request. An error with its stack costs a tenth of a request, so it is made only when
  // needed.
  incoming.on("close", () => {
    if (!isDone) finish(endedEarly());
  });
  return slot;
}

function endedEarly(cause?: unknown): HttpError {
  return new HttpError(400, "the request ended early", { cause });
}

/** True when the request's own content-length says so. */
export function isTooLarge(incoming: IncomingMessage, maxBytes: number): boolean {
  return Number(incoming.headers["content-length"]) > maxBytes;
}

export function tooLarge(maxBytes: number): HttpError {
  return new HttpError(413, `the AdmissionReview is larger than ${maxBytes} bytes`);
}

/** Without `Retry-After`: client-go in kube-apiserver would repeat the call up to ten times, and most of them here. */
export function tooManyRequests(): HttpError {
  return new HttpError(503, "too many admission requests are in flight here, try another replica");
}

function tooManyValues(): HttpError {
  return new HttpError(413, `the AdmissionReview has more than ${MAX_JSON_VALUES} values`);
}

function isUpdate(chunks: readonly Buffer[]): boolean {
  const start = Buffer.concat(chunks, OPERATION_WITHIN_BYTES).toString("latin1");
  return /"operation":\s{0,8}"UPDATE"/.test(start);
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
