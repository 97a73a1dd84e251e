/**
 * The annotations force-delete and no-protect (docs/design.md#bypass): whether one is followed. With
 * `--bypass-needs-permission`, the requesting user needs a permission.
 */
import { type BypassClaim, readClaim } from "../../shared/decide/bypass-claim.ts";
import { FORCE_DELETE_ANNOTATION, NO_PROTECT_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { User } from "./admission-request.ts";
import type { CellClient } from "./cell-client.ts";
import type { BypassIgnored } from "./exemption.ts";

/** Whether a pod's annotation is followed, and what the response says about it. */
export interface BypassResult {
  readonly forced: boolean;
  /** OpenKruise's annotation is followed. Only protectors that were made from PodUnavailableBudgets do so. */
  readonly noProtect?: boolean;
  readonly ignored?: BypassIgnored;
  readonly warnings: readonly string[];
  readonly auditAnnotations: Readonly<Record<string, string>>;
}

export interface BypassContext {
  readonly user: User;
  /** Of the caller. */
  readonly address?: string | undefined;
  readonly cell: CellClient;
  /** Wall clock, Unix milliseconds: people choose the expiry, and no accounting depends on it. */
  readonly nowMs: number;
  readonly timeoutMs: number;
  /** The user needs the permission `bypass` on `podprotectors` in the pod's namespace. */
  readonly needsPermission: boolean;
  /** The pod was read from the cell. Otherwise, only the caller says that it has the annotation. */
  readonly isLive: boolean;
}

const NOT_FORCED: BypassResult = { forced: false, warnings: [], auditAnnotations: {} };

type Ignored = (why: BypassIgnored, because: string) => BypassResult;

/** Part of its time that an admission request waits for the pod. The rest is for deciding without it. */
const WAITED_FRACTION = 0.5;

/** Where the permission or the pod cannot be read, the annotation is ignored, and the pod is decided like any other. */
export async function checkBypass(pod: Pod, context: BypassContext): Promise<BypassResult> {
  if (pod.annotations?.[FORCE_DELETE_ANNOTATION] === undefined)
    return await checkAnnotation(pod, NO_PROTECT_ANNOTATION, context);
  const result = await checkAnnotation(pod, FORCE_DELETE_ANNOTATION, context);
  if (!isVoid(result) || pod.annotations[NO_PROTECT_ANNOTATION] !== "true") return result;
  // A force-delete annotation that is invalid for every user does not affect the other annotation.
  const other = await checkAnnotation(pod, NO_PROTECT_ANNOTATION, context);
  return {
    ...other,
    warnings: [...result.warnings, ...other.warnings],
    auditAnnotations: { ...result.auditAnnotations, ...other.auditAnnotations },
  };
}

/** The annotation itself is malformed or expired, so that it is followed for no user. */
function isVoid({ ignored }: BypassResult): boolean {
  return ignored === "malformed" || ignored === "expired";
}

async function checkAnnotation(
  pod: Pod,
  annotation: typeof FORCE_DELETE_ANNOTATION | typeof NO_PROTECT_ANNOTATION,
  context: BypassContext,
): Promise<BypassResult> {
  const { annotations, namespace } = pod;
  const isForced = annotation === FORCE_DELETE_ANNOTATION;
  const ignored = (why: BypassIgnored, because: string): BypassResult => notFollowed(annotation, why, because);
  const claim = readClaim(annotations?.[annotation]);
  if (claim.kind === "none") return NOT_FORCED;
  if (claim.kind === "malformed") {
    const form = '{"until":"2030-01-31T12:00:00Z","reason":"..."}';
    return ignored("malformed", `it can't be read: write ${form}, or any value that does not begin with {`);
  }
  if (claim.untilMs !== undefined && context.nowMs >= claim.untilMs) {
    return ignored("expired", `it was good until ${claim.until ?? ""}`);
  }
  const [withheld, unconfirmed] = await Promise.all([
    context.needsPermission ? permissionMissing(namespace, context, ignored) : undefined,
    context.isLive ? undefined : notOnThePod(pod, annotation, context, ignored),
  ]);
  const found = withheld ?? unconfirmed;
  if (found !== undefined) return found;
  return isForced ? followed(claim) : { ...NOT_FORCED, noProtect: true, auditAnnotations: { "no-protect": "true" } };
}

/** Anybody who reaches the webhook's port can send any pod. So a bypass needs the annotation on the pod in the cell. */
async function notOnThePod(
  pod: Pod,
  annotation: string,
  { cell, timeoutMs }: BypassContext,
  ignored: Ignored,
): Promise<BypassResult | undefined> {
  const live = await cell.readPod?.(pod.namespace, pod.name, timeoutMs * WAITED_FRACTION);
  if (live?.kind === "failed") return ignored("unconfirmed", `the pod could not be read: ${live.message}`);
  if (live === undefined) return ignored("unconfirmed", `the pod can't be read: give --cell ${cell.id}=KUBECONFIG`);
  const value = pod.annotations?.[annotation];
  const isThere = live.kind === "found" && live.pod.uid === pod.uid && live.pod.annotations?.[annotation] === value;
  return isThere ? undefined : ignored("unconfirmed", "the pod in the cell does not have it");
}

async function permissionMissing(
  namespace: string,
  { user, address, cell, timeoutMs }: BypassContext,
  ignored: Ignored,
): Promise<BypassResult | undefined> {
  const permission = (await cell.mayBypass?.(user, namespace, timeoutMs, address)) ?? "unknown";
  if (permission === "allowed") return undefined;
  if (permission === "unknown")
    return ignored("unchecked", `it could not be checked whether ${user.username} may use it`);
  const needed = `bypass podprotectors.podseidon.kubewharf.io in namespace ${namespace}`;
  return ignored("forbidden", `${user.username} may not ${needed}`);
}

function notFollowed(annotation: string, why: BypassIgnored, because: string): BypassResult {
  return {
    forced: false,
    ignored: why,
    warnings: [`the annotation ${annotation} is not followed: ${because}`],
    auditAnnotations: { "force-delete-ignored": why },
  };
}

function followed({ until, reason }: Extract<BypassClaim, { kind: "claimed" }>): BypassResult {
  return {
    forced: true,
    warnings: [],
    auditAnnotations: {
      "force-delete": "true",
      ...(until === undefined ? {} : { "force-delete-until": until }),
      ...(reason === undefined ? {} : { "force-delete-reason": reason }),
    },
  };
}
