/**
 * What an AdmissionReview asks. `admission-request` parses it, `disruption-target` finds the pod that it would disrupt,
 * `exemption` names the pods that no protector counts, `bypass` reads the force-delete annotation, `deadline` says how
 * long all of it may take.
 */
import { parseWireReview, type UserInfo } from "../../shared/schema/admission.ts";
import { SchemaError } from "../../shared/schema/schema-error.ts";
import { HttpError } from "../http/call.ts";

const NO_GROUPS: readonly string[] = [];
const NO_EXTRA: Readonly<Record<string, readonly string[]>> = {};

/** The requesting user, as the cell authenticated it. */
export interface User {
  readonly username: string;
  readonly uid: string | undefined;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

/** The fields of an AdmissionReview's request that the webhook uses. */
export interface AdmissionRequest {
  readonly uid: string;
  readonly operation: string;
  readonly group: string;
  readonly resource: string;
  readonly subResource: string;
  readonly namespace: string;
  /** Empty for a deletecollection. */
  readonly name: string;
  readonly user: User;
  readonly dryRun: boolean;
  /** Raw, unchecked. */
  readonly object: unknown;
  readonly oldObject: unknown;
}

/** Runs a parser of `shared/schema`. Input that it cannot read is the caller's fault: throws {@link HttpError} 400. */
export function parseOrReject<T>(what: string, parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    if (!(cause instanceof SchemaError) && !(cause instanceof SyntaxError)) throw cause;
    const detail = cause instanceof SchemaError ? cause.message : "not JSON";
    throw new HttpError(400, `malformed ${what}: ${detail}`, { cause });
  }
}

/** Reads the body of a call. Throws {@link HttpError} with a sentence that names the field at fault. */
export function parseAdmissionReview(body: string): AdmissionRequest {
  const request = parseOrReject("AdmissionReview", () => parseWireReview(JSON.parse(body)));
  return {
    uid: request.uid,
    operation: request.operation,
    group: request.resource.group,
    resource: request.resource.resource,
    subResource: request.subResource ?? "",
    namespace: request.namespace ?? "",
    name: request.name ?? "",
    user: userOf(request.userInfo),
    dryRun: request.dryRun === true,
    object: request.object,
    oldObject: request.oldObject,
  };
}

function userOf({ username = "", uid, groups, extra }: UserInfo): User {
  return { username, uid, groups: groups ?? NO_GROUPS, extra: extra ? withoutNulls(extra) : NO_EXTRA };
}

function withoutNulls(extra: NonNullable<UserInfo["extra"]>): User["extra"] {
  return Object.fromEntries(Object.entries(extra).map(([key, values]) => [key, values ?? []]));
}
