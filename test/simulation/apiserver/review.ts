/** One request to the admission webhooks, and what a refusal is to the client. */
import type { Json } from "./etcd.ts";
import { failure, type SimulatedReply } from "./responses.ts";
import type { ApiServer, ServerRequest } from "./server.ts";

export function reviewOf(server: ApiServer, request: ServerRequest, fields: Json): Json {
  return { uid: server.ports.random.token(), userInfo: { username: request.user, groups: [] }, ...fields };
}

export async function reviewed(server: ApiServer, review: Json): Promise<SimulatedReply | undefined> {
  const verdict = await server.admission?.review(review);
  if (verdict === undefined || verdict.allowed) return undefined;
  return failure(verdict.code, verdict.code === 429 ? "TooManyRequests" : "InternalError", verdict.message);
}
