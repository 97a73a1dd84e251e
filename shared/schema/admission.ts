/** The wire formats of `admission.k8s.io/v1` AdmissionReview and `policy` Eviction. */
import * as v from "valibot";
import { checker, isRecord } from "./check.ts";
import { MAX_LABEL_LENGTH, MAX_NAME_LENGTH, requireShort } from "./lengths.ts";
import { SchemaError } from "./schema-error.ts";

const ADMISSION_API_VERSION = "admission.k8s.io/v1";

/** Kubernetes has no limit on user names, but they come in headers. The name appears in logs and Events. */
const MAX_USERNAME_LENGTH = 4_096;

const optional = v.optional;

const Kind = v.looseObject({ group: v.string(), version: v.string(), kind: v.string() });
const Resource = v.looseObject({ group: v.string(), version: v.string(), resource: v.string() });

/** `authentication/v1.UserInfo`. */
export const UserInfo = v.looseObject({
  username: optional(v.string()),
  uid: optional(v.string()),
  groups: v.nullish(v.array(v.string())),
  /** Go encodes an empty list as null, here and for each key. */
  extra: v.nullish(v.record(v.string(), v.nullable(v.array(v.string())))),
});
export type UserInfo = v.InferOutput<typeof UserInfo>;

/** The request of an AdmissionReview. The parser of each kind reads `object`, `oldObject` and `options`. */
const WireAdmissionRequest = v.looseObject({
  uid: v.string(),
  kind: Kind,
  resource: Resource,
  subResource: optional(v.string()),
  requestKind: v.nullish(Kind),
  requestResource: v.nullish(Resource),
  requestSubResource: optional(v.string()),
  name: optional(v.string()),
  namespace: optional(v.string()),
  operation: v.picklist(["CREATE", "UPDATE", "DELETE", "CONNECT"]),
  userInfo: UserInfo,
  object: optional(v.unknown()),
  oldObject: optional(v.unknown()),
  dryRun: v.nullish(v.boolean()),
  options: optional(v.unknown()),
});
type WireAdmissionRequest = v.InferOutput<typeof WireAdmissionRequest>;

export const AdmissionReview = v.looseObject({
  apiVersion: v.string(),
  kind: v.string(),
  request: WireAdmissionRequest,
});
export type AdmissionReview = v.InferOutput<typeof AdmissionReview>;

function isTextOrNone(value: unknown): boolean {
  return typeof value === "string" || value === undefined;
}

function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}

function isKind(value: unknown): boolean {
  if (!isRecord(value)) return false;
  return typeof value.group === "string" && typeof value.version === "string" && typeof value.kind === "string";
}

function isResource(value: unknown): boolean {
  if (!isRecord(value)) return false;
  return typeof value.group === "string" && typeof value.version === "string" && typeof value.resource === "string";
}

function isUser(value: unknown): boolean {
  if (!isRecord(value)) return false;
  const { username, uid, groups, extra } = value;
  if (!isTextOrNone(username) || !isTextOrNone(uid)) return false;
  if (groups !== undefined && groups !== null && !isTexts(groups)) return false;
  if (extra === undefined || extra === null) return true;
  return isRecord(extra) && Object.values(extra).every((values) => values === null || isTexts(values));
}

function isOperation(value: unknown): boolean {
  return value === "DELETE" || value === "CREATE" || value === "UPDATE" || value === "CONNECT";
}

/**
 * True only for a value that the schema of AdmissionReview accepts. Every admission request runs this, so the check is
 * written by hand: the compiled schema is several times slower. After false, the schema finds the invalid field.
 */
export function isPlainReview(raw: unknown): raw is AdmissionReview {
  if (!isRecord(raw) || typeof raw.apiVersion !== "string" || typeof raw.kind !== "string") return false;
  const request = raw.request;
  if (!isRecord(request) || typeof request.uid !== "string" || !isOperation(request.operation)) return false;
  if (!isKind(request.kind) || !isResource(request.resource) || !isUser(request.userInfo)) return false;
  const { requestKind, requestResource, dryRun } = request;
  if (requestKind !== undefined && requestKind !== null && !isKind(requestKind)) return false;
  if (requestResource !== undefined && requestResource !== null && !isResource(requestResource)) return false;
  if (dryRun !== undefined && dryRun !== null && typeof dryRun !== "boolean") return false;
  const { subResource, requestSubResource, name, namespace } = request;
  return isTextOrNone(subResource) && isTextOrNone(requestSubResource) && isTextOrNone(name) && isTextOrNone(namespace);
}

const checkReview = checker(AdmissionReview);

/** Returns the request. Throws `SchemaError`, also for another kind or version than `admission.k8s.io/v1`. */
export function parseWireReview(raw: unknown): WireAdmissionRequest {
  const review = isPlainReview(raw) ? raw : checkReview(raw);
  if (review.kind !== "AdmissionReview") throw new SchemaError("kind", "expected AdmissionReview");
  if (review.apiVersion !== ADMISSION_API_VERSION) {
    throw new SchemaError("apiVersion", `only ${ADMISSION_API_VERSION} is served`);
  }
  const { uid, name, namespace, userInfo } = review.request;
  if (uid === "") throw new SchemaError("request.uid", "is required");
  requireShort(uid, "request.uid", MAX_NAME_LENGTH);
  requireShort(name, "request.name", MAX_NAME_LENGTH);
  requireShort(namespace, "request.namespace", MAX_LABEL_LENGTH);
  requireShort(userInfo.username, "request.userInfo.username", MAX_USERNAME_LENGTH);
  return review.request;
}

const Preconditions = v.looseObject({
  uid: v.nullish(v.string()),
  resourceVersion: v.nullish(v.string()),
});

/** The fields of `metav1.DeleteOptions` that the project uses. */
const DeleteOptions = v.looseObject({
  dryRun: v.nullish(v.array(v.string())),
  gracePeriodSeconds: v.nullish(v.number()),
  preconditions: v.nullish(Preconditions),
});

/** The body of `pods/eviction`, `policy/v1` and `policy/v1beta1`, which are alike. */
export const Eviction = v.looseObject({
  apiVersion: v.string(),
  kind: v.string(),
  metadata: v.nullish(
    v.looseObject({
      name: optional(v.string()),
      namespace: optional(v.string()),
      annotations: v.nullish(v.record(v.string(), v.string())),
    }),
  ),
  deleteOptions: v.nullish(DeleteOptions),
});
export type Eviction = v.InferOutput<typeof Eviction>;

const EVICTION_API_VERSIONS = ["policy/v1", "policy/v1beta1"];
const checkEviction = checker(Eviction);

/** Returns the Eviction. Throws `SchemaError`, also for another kind or version. */
export function parseEviction(raw: unknown): Eviction {
  const eviction = checkEviction(raw);
  if (eviction.kind !== "Eviction") throw new SchemaError("kind", "expected Eviction");
  if (!EVICTION_API_VERSIONS.includes(eviction.apiVersion)) {
    throw new SchemaError("apiVersion", `expected one of ${EVICTION_API_VERSIONS.join(", ")}`);
  }
  const { uid, resourceVersion } = eviction.deleteOptions?.preconditions ?? {};
  requireShort(eviction.metadata?.name, "metadata.name", MAX_NAME_LENGTH);
  requireShort(uid, "deleteOptions.preconditions.uid", MAX_NAME_LENGTH);
  requireShort(resourceVersion, "deleteOptions.preconditions.resourceVersion", MAX_NAME_LENGTH);
  return eviction;
}

/** One entry of `details.causes`; a denial has one with reason `DisruptionBudget`. */
interface StatusCause {
  readonly reason: string;
  readonly message: string;
  readonly field?: string;
}

/** `metav1.Status` of a denial; kube-apiserver passes it to the client unchanged. */
export interface AdmissionStatus {
  /** HTTP status of the denied call. */
  readonly code: number;
  /** `metav1.StatusReason`, for example `TooManyRequests`. */
  readonly reason: string;
  readonly message: string;
  readonly details?: {
    readonly name?: string;
    readonly kind?: string;
    readonly causes?: readonly StatusCause[];
    /** When set, client-go repeats the call by itself after this time. */
    readonly retryAfterSeconds?: number;
  };
}

/** `uid` is the request's. */
export interface WireAdmissionResponse {
  readonly uid: string;
  readonly allowed: boolean;
  readonly status?: AdmissionStatus;
  /** Shown by kubectl; kube-apiserver cuts each at 256 characters. */
  readonly warnings?: readonly string[];
  /** Keys without prefix; kube-apiserver puts the webhook's name before them. */
  readonly auditAnnotations?: Readonly<Record<string, string>>;
  readonly patchType?: "JSONPatch";
  /** Base64 of a JSON patch (RFC 6902); see {@link jsonPatch}. */
  readonly patch?: string;
}

/** The AdmissionReview that carries a response. */
interface AdmissionReviewResponse {
  readonly apiVersion: typeof ADMISSION_API_VERSION;
  readonly kind: "AdmissionReview";
  readonly response: WireAdmissionResponse;
}

export function reviewResponse(response: WireAdmissionResponse): AdmissionReviewResponse {
  return { apiVersion: ADMISSION_API_VERSION, kind: "AdmissionReview", response };
}

/** One operation of a JSON patch; `path` is a JSON pointer. */
export interface PatchOperation {
  readonly op: "add" | "replace" | "remove" | "test";
  readonly path: string;
  readonly value?: unknown;
}

/** Returns the two fields of a response with a patch. */
export function jsonPatch(
  operations: readonly PatchOperation[],
): Required<Pick<WireAdmissionResponse, "patch" | "patchType">> {
  return { patchType: "JSONPatch", patch: Buffer.from(JSON.stringify(operations)).toString("base64") };
}
