/** The changes between two versions of a protector, as texts for people, and who made them. */
import { isDeepStrictEqual } from "node:util";
import * as v from "valibot";
import { isRemoved } from "../../../shared/decide/state/protector-state.ts";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import type { EventNote } from "../../../shared/observe/event-recorder.ts";
import { isMadeByHand, isMarkedReleased } from "../../../shared/recovery/lost-protector.ts";
import { PERHAPS_RESTORED } from "../../../shared/recovery/restore-protector.ts";
import {
  DERIVATION_ANNOTATION,
  RELEASED_ANNOTATION,
  RESTORED_ANNOTATION,
  SUSPENSION_CHANGED_BY_ANNOTATION,
} from "../../../shared/schema/annotations.ts";
import { type Aggregation, isDeleting, type PodProtector } from "../../../shared/schema/podprotector.ts";
import { parseMs } from "../../../shared/schema/time.ts";
import { PROTECTOR_KIND } from "../protectors/events.ts";
import type { CHANGES } from "./change-reasons.ts";

export interface ProtectorChange {
  readonly reason: (typeof CHANGES)[number];
  readonly isWarning: boolean;
  readonly message: string;
  /** Changes of the same series share one Event with a count. */
  readonly series?: string;
  /** Who made the change, where the object itself shows it. */
  readonly by?: string;
  /** Otherwise, the field of the spec whose last writer made the change. */
  readonly field?: string;
}

/** The longest reason of a suspension in an Event. */
const MAX_REASON = 200;
const AUDIT = "who asked for it stands in the audit log of the core alone";

/** `before` is undefined for a new protector, `after` for one that is gone. */
export function changesOf(
  before: PodProtector | undefined,
  after: PodProtector | undefined,
  nowMs: number,
): readonly ProtectorChange[] {
  if (after === undefined) return before === undefined ? [] : gone(before);
  if (before === undefined) return [created(after)];
  return [
    ...deletion(before, after),
    ...(before.metadata.generation === after.metadata.generation ? [] : specChanges(before, after, nowMs)),
    ...suspensionExpired(before, after),
    ...holds(before, after),
  ];
}

function change(
  reason: ProtectorChange["reason"],
  isWarning: boolean,
  message: string,
  more: Pick<ProtectorChange, "series" | "by" | "field"> = {},
): ProtectorChange {
  return { reason, isWarning, message, ...more };
}

function created(protector: PodProtector): ProtectorChange {
  const { metadata, spec } = protector;
  const { [DERIVATION_ANNOTATION]: derivation, [RESTORED_ANNOTATION]: restored } = metadata.annotations ?? {};
  const why = derivation === undefined ? "" : ` (${derivation})`;
  const promise = `created: ${spec.minAvailable} pods stay available${why}`;
  const isNew = restored === undefined || restored === PERHAPS_RESTORED;
  const held = isNew ? "Its cells are on hold at first" : "Created again";
  const message = restored === undefined ? promise : `${promise}. ${held}, because ${restored}`;
  return change("ProtectorCreated", !isNew, message, { field: "minAvailable" });
}

function gone(protector: PodProtector): ProtectorChange[] {
  const released = protector.metadata.annotations?.[RELEASED_ANNOTATION];
  if (released !== undefined)
    return [change("ProtectorReleased", false, `released (${released}): its pods are not protected any more`)];
  // The deletion was reported, and the protector is about to be created again.
  if (isDeleting(protector.metadata)) return [];
  const end = isMadeByHand(protector) ? "it is not in force" : "it stays in force until it is created again";
  return [change("ProtectorDeleted", true, `deleted without a release: ${end}; ${AUDIT}`)];
}

function deletion(before: PodProtector, after: PodProtector): ProtectorChange[] {
  if (isDeleting(before.metadata) || !isDeleting(after.metadata) || isMarkedReleased(after)) return [];
  const end = isMadeByHand(after) ? "is in force until it is gone" : "stays in force, and is created again";
  const what = `a client asked for the deletion: it ${end}`;
  return [change("ProtectorDeleted", true, `${what}; ${AUDIT}`)];
}

function specChanges(before: PodProtector, after: PodProtector, nowMs: number): ProtectorChange[] {
  const [had, has] = [before.spec, after.spec];
  const names = new Set([...Object.keys(had), ...Object.keys(has)]);
  const value = (spec: object, name: string): unknown => Reflect.get(spec, name);
  const others = [...names].filter(
    (name) => !["minAvailable", "suspend"].includes(name) && !isDeepStrictEqual(value(had, name), value(has, name)),
  );
  const [first] = others;
  return [
    ...promise(before, after),
    ...suspension(before, after, nowMs),
    ...(first === undefined
      ? []
      : [change("SpecChanged", false, `${others.map((name) => `spec.${name}`).join(", ")} changed`, { field: first })]),
  ];
}

function promise(before: PodProtector, after: PodProtector): ProtectorChange[] {
  const [from, to] = [before.spec.minAvailable, after.spec.minAvailable];
  if (from === to) return [];
  const [old, derivation] = [before, after].map(({ metadata }) => metadata.annotations?.[DERIVATION_ANNOTATION]);
  // A change by a person does not change the derivation.
  const why = derivation === undefined || derivation === old ? "" : `: ${derivation}`;
  const message = `minAvailable changed from ${from} to ${to}${why}`;
  return [change(to < from ? "PromiseLowered" : "PromiseRaised", to < from, message, { field: "minAvailable" })];
}

function isSuspended({ spec: { suspend } }: PodProtector, nowMs: number): boolean {
  return suspend?.enabled === true && (suspend.until === undefined || parseMs(suspend.until) > nowMs);
}

function suspension(before: PodProtector, after: PodProtector, nowMs: number): ProtectorChange[] {
  const [was, is] = [isSuspended(before, nowMs), isSuspended(after, nowMs)];
  const [had, has] = [before, after].map(({ metadata }) => metadata.annotations?.[SUSPENSION_CHANGED_BY_ANNOTATION]);
  const who = has === undefined || has === had ? { field: "suspend" } : { by: `${has}, as kubectl podseidon says` };
  if (was && !is) return [change("SuspensionEnded", false, "the suspension was ended", who)];
  if (!is || isDeepStrictEqual(before.spec.suspend, after.spec.suspend)) return [];
  const { until, reason, cells } = after.spec.suspend ?? {};
  const where = cells === undefined ? "" : ` in ${cells.join(", ")}`;
  const end = until === undefined ? "until somebody ends it" : `until ${until}`;
  const why = reason === undefined || reason === "" ? "" : `: ${reason.slice(0, MAX_REASON)}`;
  const what = was ? "the suspension was changed: " : "";
  return [change("SuspensionStarted", true, `${what}suspended${where} ${end}, no deletion is refused${why}`, who)];
}

/** The aggregators write the condition when the suspension has ended. */
function suspensionExpired(before: PodProtector, after: PodProtector): ProtectorChange[] {
  const condition = ({ status }: PodProtector) => status?.conditions?.find(({ type }) => type === "Suspended");
  const now = condition(after);
  if (now?.reason !== "Expired" || condition(before)?.status !== "True") return [];
  return [change("SuspensionEnded", false, `${now.message}, as it was written`)];
}

function holds(before: PodProtector, after: PodProtector): ProtectorChange[] {
  return (after.status?.cells ?? []).flatMap(({ cellID, aggregation }) => {
    const had = before.status?.cells.find((cell) => cell.cellID === cellID)?.aggregation?.hold;
    const hold = aggregation?.hold;
    if (had === hold) return [];
    const series = cellID;
    if (hold !== undefined) return [change("HoldStarted", true, holdText(cellID, hold), { series })];
    const message = isRemoved(aggregation ?? undefined)
      ? `cell ${cellID} was removed while it was on hold: its pods count no more`
      : `cell ${cellID} is no longer on hold: its pods are counted and may be disrupted again`;
    return [change("HoldEnded", false, message, { series })];
  });
}

function holdText(cellID: string, hold: NonNullable<Aggregation["hold"]>): string {
  const [reason = ""] = hold.split("/");
  return `cell ${cellID} is on hold (${reason}): admissions may be lost, so none of its available pods may go`;
}

/** The Event about a change. The generator, `ownName`, only lowers a promise because its workload asks for fewer. */
export function noteOf(
  { metadata: { namespace = "", name, uid } }: PodProtector,
  { reason, isWarning, message, series }: ProtectorChange,
  by: string | undefined,
  ownName: string,
): EventNote {
  return {
    regarding: { ...PROTECTOR_KIND, namespace, name, uid },
    type: isWarning && !(reason === "PromiseLowered" && by === ownName) ? "Warning" : "Normal",
    reason,
    message: by === undefined ? message : `${message}; by ${by}`,
    ...(series === undefined ? {} : { series }),
  };
}

const TIMEOUT_MS = 5_000;

const FieldSet = v.record(v.string(), v.unknown());
const ManagedObject = v.looseObject({
  metadata: v.looseObject({
    generation: v.optional(v.number()),
    managedFields: v.optional(
      v.array(
        v.looseObject({
          manager: v.optional(v.string()),
          time: v.optional(v.string()),
          fieldsV1: v.optional(v.looseObject({ "f:spec": v.optional(FieldSet) })),
        }),
      ),
    ),
  }),
});
type ManagedObject = v.InferOutput<typeof ManagedObject>;

/** The manager that last wrote this field of the spec; undefined where the core has another version by now. */
export async function writerOf(
  api: Pick<ApiClient, "get">,
  { metadata: { namespace = "", name, generation } }: PodProtector,
  field: string,
): Promise<string | undefined> {
  const parse = (raw: unknown): ManagedObject => v.parse(ManagedObject, raw);
  const options = { timeoutMs: TIMEOUT_MS, managedFields: true };
  const result = await api.get(podProtectorPath(namespace, name), parse, options);
  if (result.kind !== "ok" || result.object.metadata.generation !== generation) return undefined;
  const owners = (result.object.metadata.managedFields ?? []).filter(
    ({ fieldsV1 }) => fieldsV1?.["f:spec"]?.[`f:${field}`] !== undefined,
  );
  return owners.sort((one, other) => ((one.time ?? "") < (other.time ?? "") ? 1 : -1))[0]?.manager;
}
