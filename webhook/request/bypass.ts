/**
 * The force-delete annotation (design 9, 12): who may let a pod go whatever the count is, until when, and what is said about it. Any
 * plain value lets go, as upstream has it; a value in JSON can end by itself and give a reason; and where it is asked for, the user
 * who deletes needs a permission of their own.
 */
import { FORCE_DELETE_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { User } from "./admission-request.ts";
import type { BypassIgnored } from "./bypass-labels.ts";
import type { CellClient } from "./cell-client.ts";

/** What a pod's annotation asks for. */
export type Claim =
  | { readonly kind: "none" }
  | { readonly kind: "malformed" }
  | {
      readonly kind: "claimed";
      /** Wall clock, Unix milliseconds; undefined when it does not end by itself. */
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
  if (value === undefined) return undefined;
  if (typeof value !== "string") throw new SyntaxError(`${name} is no text`);
  return value;
}

/** Reads a value. One that can't be read lets nothing go: what it was to mean may be narrower than "always". */
export function readClaim(value: string | undefined): Claim {
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

/** What became of a pod's annotation. */
export interface BypassVerdict {
  readonly forced: boolean;
  readonly ignored?: BypassIgnored;
  readonly warnings: readonly string[];
  readonly auditAnnotations: Readonly<Record<string, string>>;
}

export interface BypassContext {
  readonly user: User;
  readonly cell: CellClient;
  /** Wall clock of this process: an annotation is for people, and no accounting rests on it. */
  readonly nowMs: number;
  readonly timeoutMs: number;
  /** The user needs the permission `bypass` on `podprotectors` in the pod's namespace. */
  readonly needsPermission: boolean;
}

/** Judges the annotation. The answer to a permission that can't be had is no: the pod is then decided like any other. */
export async function judgeBypass({ annotations, namespace }: Pod, context: BypassContext): Promise<BypassVerdict> {
  const claim = readClaim(annotations?.[FORCE_DELETE_ANNOTATION]);
  if (claim.kind === "none") return { forced: false, warnings: [], auditAnnotations: {} };
  if (claim.kind === "malformed") {
    const form = '{"until":"2030-01-31T12:00:00Z","reason":"..."}';
    return ignored("malformed", `it can't be read: write ${form}, or any value that does not begin with {`);
  }
  if (claim.untilMs !== undefined && context.nowMs >= claim.untilMs) {
    return ignored("expired", `it was good until ${claim.until ?? ""}`);
  }
  const refusal = context.needsPermission ? await refusedTo(namespace, context) : undefined;
  return refusal ?? granted(claim);
}

async function refusedTo(
  namespace: string,
  { user, cell, timeoutMs }: BypassContext,
): Promise<BypassVerdict | undefined> {
  const answer = (await cell.mayBypass?.(user, namespace, timeoutMs)) ?? "unknown";
  if (answer === "allowed") return undefined;
  if (answer === "unknown") return ignored("unchecked", `it could not be checked whether ${user.username} may use it`);
  const permission = `bypass podprotectors.podseidon.kubewharf.io in namespace ${namespace}`;
  return ignored("forbidden", `${user.username} may not ${permission}`);
}

function ignored(why: BypassIgnored, because: string): BypassVerdict {
  return {
    forced: false,
    ignored: why,
    warnings: [`the annotation ${FORCE_DELETE_ANNOTATION} is not followed: ${because}`],
    auditAnnotations: { "force-delete-ignored": why },
  };
}

function granted({ until, reason }: Extract<Claim, { kind: "claimed" }>): BypassVerdict {
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
