/**
 * The force-delete annotation (docs/design.md#bypass). Any plain value allows the disruption, as upstream has it. A value in JSON can
 * expire and give a reason. With `--bypass-needs-permission`, the requesting user also needs a permission.
 */
import { FORCE_DELETE_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { User } from "./admission-request.ts";
import type { CellClient } from "./cell-client.ts";
import type { BypassIgnored } from "./exemption.ts";

/** What a pod's annotation asks for. */
export type BypassClaim =
  | { readonly kind: "none" }
  | { readonly kind: "malformed" }
  | {
      readonly kind: "claimed";
      /** Wall clock, Unix milliseconds; undefined when the claim does not expire. */
      readonly untilMs: number | undefined;
      readonly until: string | undefined;
      readonly reason: string | undefined;
    };

/** Values that begin with this are JSON: `{"until": RFC 3339, "reason": text}`, either or both. */
const STRUCTURED = "{";
const MAX_REASON = 200;
const RFC3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/;
const KNOWN_KEYS: ReadonlySet<string> = new Set(["until", "reason"]);

function field(fields: ReadonlyMap<string, unknown>, name: string): string | undefined {
  const value = fields.get(name);
  if (value !== undefined && typeof value !== "string") throw new SyntaxError(`${name} is not a string`);
  return value;
}

/** Reads a value. An unreadable value allows nothing: its author may have meant less than "always". */
export function readClaim(value: string | undefined): BypassClaim {
  if (value === undefined) return { kind: "none" };
  if (!value.startsWith(STRUCTURED)) {
    return { kind: "claimed", untilMs: undefined, until: undefined, reason: undefined };
  }
  try {
    const raw: unknown = JSON.parse(value);
    const fields = new Map<string, unknown>(Object.entries(Object(raw)));
    if (fields.size === 0 || [...fields.keys()].some((key) => !KNOWN_KEYS.has(key))) return { kind: "malformed" };
    const until = field(fields, "until");
    const untilMs = until === undefined ? undefined : Date.parse(until);
    if (until !== undefined && (!RFC3339.test(until) || Number.isNaN(untilMs))) return { kind: "malformed" };
    return { kind: "claimed", untilMs, until, reason: field(fields, "reason")?.slice(0, MAX_REASON) };
  } catch {
    return { kind: "malformed" };
  }
}

/** Whether a pod's annotation is followed, and what the response says about it. */
export interface BypassResult {
  readonly forced: boolean;
  readonly ignored?: BypassIgnored;
  readonly warnings: readonly string[];
  readonly auditAnnotations: Readonly<Record<string, string>>;
}

export interface BypassContext {
  readonly user: User;
  readonly cell: CellClient;
  /** Wall clock: the expiry is for people, and no accounting rests on it. */
  readonly nowMs: number;
  readonly timeoutMs: number;
  /** The user needs the permission `bypass` on `podprotectors` in the pod's namespace. */
  readonly needsPermission: boolean;
}

/** Without an answer about the permission, the annotation is ignored, and the pod is decided like any other. */
export async function checkBypass({ annotations, namespace }: Pod, context: BypassContext): Promise<BypassResult> {
  const claim = readClaim(annotations?.[FORCE_DELETE_ANNOTATION]);
  if (claim.kind === "none") return { forced: false, warnings: [], auditAnnotations: {} };
  if (claim.kind === "malformed") {
    const form = '{"until":"2030-01-31T12:00:00Z","reason":"..."}';
    return ignored("malformed", `it can't be read: write ${form}, or any value that does not begin with {`);
  }
  if (claim.untilMs !== undefined && context.nowMs >= claim.untilMs) {
    return ignored("expired", `it was good until ${claim.until ?? ""}`);
  }
  const withheld = context.needsPermission ? await permissionMissing(namespace, context) : undefined;
  return withheld ?? followed(claim);
}

async function permissionMissing(
  namespace: string,
  { user, cell, timeoutMs }: BypassContext,
): Promise<BypassResult | undefined> {
  const permission = (await cell.mayBypass?.(user, namespace, timeoutMs)) ?? "unknown";
  if (permission === "allowed") return undefined;
  if (permission === "unknown")
    return ignored("unchecked", `it could not be checked whether ${user.username} may use it`);
  const needed = `bypass podprotectors.podseidon.kubewharf.io in namespace ${namespace}`;
  return ignored("forbidden", `${user.username} may not ${needed}`);
}

function ignored(why: BypassIgnored, because: string): BypassResult {
  return {
    forced: false,
    ignored: why,
    warnings: [`the annotation ${FORCE_DELETE_ANNOTATION} is not followed: ${because}`],
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
