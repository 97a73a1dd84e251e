/**
 * The two messages of `disruptionprobe.v1`, x-pdb's contract, in protobuf and JSON. Both are small enough to need no
 * library.
 */
import type { ProbeRequest } from "./probe-request.ts";

export interface ProbeResponse {
  readonly isAllowed: boolean;
  readonly error: string;
}

/** The response cannot be read, or does not fit the request. */
export class BadProbeResponse extends Error {
  override readonly name = "BadProbeResponse";
}

const LENGTH_DELIMITED = 2;
const IS_ALLOWED_FIELD = 1;
const ERROR_FIELD = 2;
const MAX_VARINT_BYTES = 10;

function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 0x80) {
    bytes.push((rest % 0x80) | 0x80);
    rest = Math.floor(rest / 0x80);
  }
  bytes.push(rest);
  return bytes;
}

/** IsDisruptionAllowedRequest: pod_name = 1, pod_namespace = 2, xpdb_name = 3, xpdb_namespace = 4. */
export function encodeRequest({ podName, podNamespace, budgetName, budgetNamespace }: ProbeRequest): Buffer {
  const parts: Buffer[] = [];
  for (const [index, text] of [podName, podNamespace, budgetName, budgetNamespace].entries()) {
    if (text === "") continue;
    const bytes = Buffer.from(text);
    parts.push(Buffer.from([((index + 1) << 3) | LENGTH_DELIMITED, ...varint(bytes.length)]), bytes);
  }
  return Buffer.concat(parts);
}

class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get done(): boolean {
    return this.#at >= this.#bytes.length;
  }

  /** The low 53 bits, which suffice here. */
  varint(): number {
    let value = 0;
    for (let index = 0; index < MAX_VARINT_BYTES; index++) {
      const byte = this.#bytes[this.#at++];
      if (byte === undefined) throw new BadProbeResponse("the message is cut off");
      value += (byte & 0x7f) * 2 ** (7 * index);
      if (byte < 0x80) return value;
    }
    throw new BadProbeResponse("the message holds a malformed number");
  }

  bytes(length: number): Buffer {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new BadProbeResponse("the message is cut off");
    const found = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return found;
  }

  skip(wireType: number): void {
    if (wireType === 0) this.varint();
    else if (wireType === 1) this.bytes(8);
    else if (wireType === LENGTH_DELIMITED) this.bytes(this.varint());
    else if (wireType === 5) this.bytes(4);
    else throw new BadProbeResponse("the message holds an unknown kind of field");
  }
}

/** IsDisruptionAllowedResponse: is_allowed = 1, error = 2. Throws {@link BadProbeResponse}. */
export function decodeResponse(bytes: Buffer): ProbeResponse {
  const reader = new Reader(bytes);
  let isAllowed = false;
  let error = "";
  while (!reader.done) {
    const key = reader.varint();
    const field = Math.floor(key / 8);
    const wireType = key % 8;
    if (field === IS_ALLOWED_FIELD && wireType === 0) isAllowed = reader.varint() !== 0;
    else if (field === ERROR_FIELD && wireType === LENGTH_DELIMITED) error = reader.bytes(reader.varint()).toString();
    else reader.skip(wireType);
  }
  return { isAllowed, error };
}

/** With the field names of the .proto file. */
export function requestJson({ podName, podNamespace, budgetName, budgetNamespace }: ProbeRequest): string {
  return JSON.stringify({
    pod_name: podName,
    pod_namespace: podNamespace,
    xpdb_name: budgetName,
    xpdb_namespace: budgetNamespace,
  });
}

/** By the names of the .proto file, or protobuf's JSON names. Throws {@link BadProbeResponse}. */
export function parseResponseJson(text: string): ProbeResponse {
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch {
    throw new BadProbeResponse("the answer is not JSON");
  }
  if (typeof raw !== "object" || raw === null || Array.isArray(raw))
    throw new BadProbeResponse("the answer is not a JSON object");
  const fields = new Map<string, unknown>(Object.entries(raw));
  const isAllowed = fields.get("is_allowed") ?? fields.get("isAllowed") ?? false;
  const error = fields.get("error") ?? "";
  if (typeof isAllowed !== "boolean") throw new BadProbeResponse("is_allowed is neither true nor false");
  if (typeof error !== "string") throw new BadProbeResponse("error is not a string");
  return { isAllowed, error };
}
