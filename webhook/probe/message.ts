/** The two messages of `disruptionprobe.v1` in protobuf (x-pdb's contract), and their JSON. Small enough to need no library. */
import type { OwnerQuestion } from "./owner.ts";

export interface ProbeReply {
  readonly isAllowed: boolean;
  readonly error: string;
}

/** The answer is none: it can't be read, or is not what was asked for. */
export class BadReply extends Error {
  override readonly name = "BadReply";
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
export function encodeRequest({ podName, podNamespace, budgetName, budgetNamespace }: OwnerQuestion): Buffer {
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

  /** The low 53 bits are what anything here needs; more bytes than a varint has are an error. */
  varint(): number {
    let value = 0;
    for (let index = 0; index < MAX_VARINT_BYTES; index++) {
      const byte = this.#bytes[this.#at++];
      if (byte === undefined) throw new BadReply("the message is cut off");
      value += (byte & 0x7f) * 2 ** (7 * index);
      if (byte < 0x80) return value;
    }
    throw new BadReply("the message holds a malformed number");
  }

  bytes(length: number): Buffer {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new BadReply("the message is cut off");
    const found = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return found;
  }

  skip(wireType: number): void {
    if (wireType === 0) this.varint();
    else if (wireType === 1) this.bytes(8);
    else if (wireType === LENGTH_DELIMITED) this.bytes(this.varint());
    else if (wireType === 5) this.bytes(4);
    else throw new BadReply("the message holds an unknown kind of field");
  }
}

/** IsDisruptionAllowedResponse: is_allowed = 1, error = 2; unknown fields are skipped. Throws {@link BadReply}. */
export function decodeReply(bytes: Buffer): ProbeReply {
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

/** The request's JSON, with the names of the .proto file. */
export function requestJson({ podName, podNamespace, budgetName, budgetNamespace }: OwnerQuestion): string {
  return JSON.stringify({
    pod_name: podName,
    pod_namespace: podNamespace,
    xpdb_name: budgetName,
    xpdb_namespace: budgetNamespace,
  });
}

/** Reads the JSON of a response, by the names of the .proto file or protobuf's JSON names. Throws {@link BadReply}. */
export function parseReplyJson(text: string): ProbeReply {
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch {
    throw new BadReply("the answer is not JSON");
  }
  if (typeof raw !== "object" || raw === null || Array.isArray(raw)) throw new BadReply("the answer is no JSON object");
  const fields = new Map<string, unknown>(Object.entries(raw));
  const isAllowed = fields.get("is_allowed") ?? fields.get("isAllowed") ?? false;
  const error = fields.get("error") ?? "";
  if (typeof isAllowed !== "boolean") throw new BadReply("is_allowed is neither true nor false");
  if (typeof error !== "string") throw new BadReply("error is no text");
  return { isAllowed, error };
}
