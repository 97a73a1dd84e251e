/** Finds the messages in a stream of HTTP/1.1 without pipelining, as apiservers and webhooks speak. */

export interface HttpMessage {
  /** The request line or the status line, and the headers. */
  readonly head: string;
  readonly body: string;
}

export class MessageReader {
  readonly #onMessage: (message: HttpMessage) => void;
  #bytes: Buffer = Buffer.alloc(0);

  constructor(onMessage: (message: HttpMessage) => void) {
    this.#onMessage = onMessage;
  }

  push(bytes: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? bytes : Buffer.concat([this.#bytes, bytes]);
    for (;;) {
      const end = this.#bytes.indexOf("\r\n\r\n");
      if (end < 0) return;
      const head = this.#bytes.toString("latin1", 0, end);
      const rest = this.#bytes.subarray(end + 4);
      const found = /^transfer-encoding: *chunked/im.test(head) ? chunkedBody(rest) : plainBody(head, rest);
      if (found === undefined) return;
      this.#bytes = rest.subarray(found.length);
      this.#onMessage({ head, body: found.body });
    }
  }
}

interface FoundBody {
  readonly body: string;
  /** The bytes that it takes. */
  readonly length: number;
}

function plainBody(head: string, rest: Buffer): FoundBody | undefined {
  const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
  return rest.length < length ? undefined : { body: rest.toString("utf8", 0, length), length };
}

function chunkedBody(rest: Buffer): FoundBody | undefined {
  const chunks: Buffer[] = [];
  for (let at = 0; ; ) {
    const line = rest.indexOf("\r\n", at);
    if (line < 0) return undefined;
    const size = Number.parseInt(rest.toString("latin1", at, line), 16);
    const end = line + 2 + size + 2;
    if (rest.length < end) return undefined;
    if (size === 0) return { body: Buffer.concat(chunks).toString("utf8"), length: end };
    chunks.push(rest.subarray(line + 2, end - 2));
    at = end;
  }
}
