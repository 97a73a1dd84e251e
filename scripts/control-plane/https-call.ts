import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { type RequestOptions, request } from "node:https";
import { text } from "node:stream/consumers";

export interface HttpsAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** Resolves with the whole response, whatever its status; rejects when the connection ends before. */
export async function httpsCall(url: string, options: RequestOptions, body?: string | Buffer): Promise<HttpsAnswer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    request(url, options, resolve).on("error", reject).end(body);
  });
  return { status: response.statusCode ?? 0, headers: response.headers, text: await text(response) };
}
