/** Responses of the API server model, with the codes, reasons and causes of the real one. */
import type { Json } from "./etcd.ts";
import type { SimulatedResource } from "./resources.ts";

export interface SimulatedResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Json;
}

export function ok(body: Json, status = 200): SimulatedResponse {
  return { status, headers: { "content-type": "application/json" }, body };
}

export function failure(
  code: number,
  reason: string,
  message: string,
  details: Json = {},
  headers: Record<string, string> = {},
): SimulatedResponse {
  return {
    status: code,
    headers: { "content-type": "application/json", ...headers },
    body: statusBody(code, reason, message, details),
  };
}

export function statusBody(code: number, reason: string, message: string, details: Json = {}): Json {
  return { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", message, reason, details, code };
}

/** A 404 with a name. A 404 without one would mean a path that the server does not know. */
export const notFound = (name: string, { group, plural }: SimulatedResource): SimulatedResponse =>
  failure(404, "NotFound", `${plural} "${name}" not found`, { name, ...(group === "" ? {} : { group }), kind: plural });
export const conflict = (name: string): SimulatedResponse =>
  failure(
    409,
    "Conflict",
    `Operation cannot be fulfilled on "${name}": the object has been modified; ` +
      "please apply your changes to the latest version and try again",
  );
export const alreadyExists = (name: string): SimulatedResponse =>
  failure(409, "AlreadyExists", `"${name}" already exists`);
/** For a JSON patch whose test fails. */
export const failedTest = (): SimulatedResponse =>
  failure(422, "Invalid", "the server rejected our request due to an error in our request");

/** For a patch of a pod with another UID. */
export const immutableUid = (name: string): SimulatedResponse =>
  failure(422, "Invalid", `Pod "${name}" is invalid: metadata.uid: Invalid value: field is immutable`);
export const expired = (): SimulatedResponse =>
  failure(410, "Expired", "The provided continue parameter is too old or too old resource version");
export const tooLarge = (): SimulatedResponse =>
  failure(504, "Timeout", "Too large resource version: unavailable", {
    causes: [{ reason: "ResourceVersionTooLarge", message: "Too large resource version" }],
    retryAfterSeconds: 1,
  });
