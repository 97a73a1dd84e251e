/** As much of HTTP/1.1 on the wire as the proxy needs: where a request begins, and how an answer is written. */

export interface RawAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

const HEAD = /^(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP\/1\.1\r\n/;
/** Longer request lines do not occur here. */
const MAX_HEAD_BYTES = 8192;

/** Method and path when `bytes` begins a request. Clients here never pipeline, so that a request begins a piece. */
export function requestHead(bytes: Buffer): { readonly method: string; readonly path: string } | undefined {
  const found = HEAD.exec(bytes.subarray(0, MAX_HEAD_BYTES).toString("latin1"));
  return found?.[1] !== undefined && found[2] !== undefined ? { method: found[1], path: found[2] } : undefined;
}

export function serialize({ status, headers = {}, body = "" }: RawAnswer): string {
  const lines = Object.entries({
    "content-type": "application/json",
    ...headers,
    "content-length": `${Buffer.byteLength(body)}`,
  });
  return `HTTP/1.1 ${status} Scripted\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n${body}`;
}
