import {
  type AdmissionStatus,
  jsonPatch,
  type PatchOperation,
  parseWireReview,
  reviewResponse,
  type UserInfo,
  type WireAdmissionResponse,
} from "../../shared/schema/admission.ts";
import { SchemaError } from "../../shared/schema/schema-error.ts";

export type BadReviewStatus = 400 | 404 | 405 | 413 | 415 | 503;

/** The call is at fault, or one too many; answered with this HTTP status and message, the process lives on (design 6, last row). */
export class BadReview extends Error {
  override readonly name = "BadReview";
  readonly status: BadReviewStatus;
  constructor(status: BadReviewStatus, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

const NO_GROUPS: readonly string[] = [];
const NO_EXTRA: Readonly<Record<string, readonly string[]>> = {};

/** Who asked, as the cell authenticated them. */
export interface User {
  readonly username: string;
  readonly uid: string | undefined;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

/** What is used of an AdmissionRequest. */
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

/** Runs a parser of `shared/schema`; what it finds wrong is the caller's fault. */
export function orBadReview<T>(what: string, parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    if (!(cause instanceof SchemaError) && !(cause instanceof SyntaxError)) throw cause;
    const detail = cause instanceof SchemaError ? cause.message : "not JSON";
    throw new BadReview(400, `malformed ${what}: ${detail}`, { cause });
  }
}

/** Reads the body of a call. Throws {@link BadReview} with a sentence that names the field at fault. */
export function parseAdmissionReview(body: string): AdmissionRequest {
  const request = orBadReview("AdmissionReview", () => parseWireReview(JSON.parse(body)));
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

/** Also a refusal in a registration that does not fail open: what the API's client sees (`metav1.Status`). */
export type DenyStatus = AdmissionStatus & {
  readonly code: 403 | 404 | 409 | 429;
  readonly reason: "Forbidden" | "NotFound" | "Conflict" | "TooManyRequests";
};

export interface AdmissionResponse {
  /** Undefined allows. */
  readonly refusal?: DenyStatus;
  readonly warnings?: readonly string[];
  /** kube-apiserver prefixes the keys with the webhook's name. */
  readonly auditAnnotations?: Readonly<Record<string, string>>;
  readonly patch?: readonly PatchOperation[];
}

/** Around the uid of an answer that allows and says nothing else, which most do. */
const [BEFORE_UID = "", AFTER_UID = ""] = JSON.stringify(reviewResponse({ uid: "", allowed: true })).split('""');

/**
 * kube-apiserver hands warnings on in HTTP headers, and drops one with a control character without a word: texts of users, as the
 * reason of a suspension, may have several lines.
 */
function oneLine(warning: string): string {
  return warning.replace(/\p{Cc}+/gu, " ");
}

/** The AdmissionReview that answers the request of this uid, as JSON. */
export function encodeAdmissionReview(
  uid: string,
  { refusal, warnings, auditAnnotations, patch }: AdmissionResponse,
): string {
  if (refusal === undefined && warnings === undefined && auditAnnotations === undefined && patch === undefined)
    return BEFORE_UID + JSON.stringify(uid) + AFTER_UID;
  const response: WireAdmissionResponse = {
    uid,
    allowed: refusal === undefined,
    ...(refusal === undefined ? {} : { status: refusal }),
    ...(warnings === undefined ? {} : { warnings: warnings.map(oneLine) }),
    // The id under which this replica's log tells of it: what leads from a line of the audit log to one of that log.
    ...(auditAnnotations === undefined ? {} : { auditAnnotations: { ...auditAnnotations, review: uid } }),
    ...(patch === undefined ? {} : jsonPatch(patch)),
  };
  return JSON.stringify(reviewResponse(response));
}
