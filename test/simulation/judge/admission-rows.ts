/** Which rows of the admission table (docs/design.md#admission-table) a request and its response belong to. */

import type { ObservedResponse } from "../actors/admission-requests.ts";
import { CONTROLLERS } from "../actors/clients.ts";
import { restartsContainer } from "../actors/container-restarts.ts";
import type { Json } from "../apiserver/etcd.ts";
import { FORCE_ANNOTATION, metadataOf, record } from "../apiserver/objects.ts";
import { closesGate } from "../apiserver/pod-conditions.ts";
import { OWN_NAMESPACE } from "../scenario/scenario.ts";

/** The rows that these worlds can reach. */
export const ADMISSION_ROWS = [
  "Ready, mature pod: allowed",
  "Ready, mature pod: denied, at the minimum",
  "Ready, mature pod: busy, reserved",
  "same UID again while its bucket lives",
  "same name, other UID",
  "deletionTimestamp already set",
  "gracePeriodSeconds 0 on a live pod",
  "finished",
  "pending",
  "not available, AlwaysAllow",
  "not available, IfHealthyBudget, too few",
  "Ready, not mature",
  "dry run",
  "eviction policy/v1",
  "eviction policy/v1beta1",
  "eviction of a pod that does not exist",
  "eviction with another UID",
  "deletecollection",
  "no protector",
  "cell never aggregated",
  "cell on hold",
  "several protectors, all agree",
  "several protectors, one denies",
  "force-delete annotation",
  "namespace controller, garbage collector, scheduler, taint eviction",
  "core out of reach: HTTP error",
  "the project's own pods",
  "other operations",
  "malformed review",
  "protector terminating but with its finalizer",
  "dry-run mode of the webhook",
  "change in place that restarts containers",
  "change in place that restarts nothing",
  "status write that ends a pod",
  "status write that closes a gate",
  "deletion of a node",
] as const;
export type AdmissionTableRow = (typeof ADMISSION_ROWS)[number];

const BY_REASON: Readonly<Record<string, AdmissionTableRow>> = {
  Reserved: "Ready, mature pod: allowed",
  Repeated: "same UID again while its bucket lives",
  PinnedImmature: "Ready, not mature",
  Unavailable: "not available, AlwaysAllow",
  PinnedUnavailable: "not available, AlwaysAllow",
  PinnedPending: "pending",
};

const BY_CAUSE: Readonly<Record<string, AdmissionTableRow>> = {
  AtMinimum: "Ready, mature pod: denied, at the minimum",
  Reserved: "Ready, mature pod: busy, reserved",
  UnhealthyBudget: "not available, IfHealthyBudget, too few",
  NotCounted: "cell never aggregated",
  OnHold: "cell on hold",
};

/** The names that were reviewed, with the last UID of each. */
export type KnownNames = Map<string, string>;

export function admissionRowsOf(
  { request, allowed, code, reasons }: ObservedResponse,
  protectors: number,
  names: KnownNames,
): AdmissionTableRow[] {
  const rows: AdmissionTableRow[] = [];
  const pod = record(request.oldObject);
  const options = record(request.options);
  const isEviction = request.subResource === "eviction";
  for (const reason of reasons) {
    const row = (allowed ? BY_REASON : BY_CAUSE)[reason];
    if (row !== undefined) rows.push(row);
    if (reason === "Forced") rows.push("force-delete annotation");
  }
  if (reasons.length > 1 && allowed) rows.push("several protectors, all agree");
  if (protectors > 1 && reasons.length > 0 && !allowed) rows.push("several protectors, one denies");
  const isNode = record(request.resource).resource === "nodes";
  if (isNode) rows.push("deletion of a node");
  else if (request.operation === "UPDATE") rows.push(changeRow(request));
  else if (isEviction) rows.push(...evictionRows(request, code));
  else rows.push(...deletionRows(request, pod, options, names));
  if (request.dryRun === true) rows.push("dry run");
  if (CONTROLLERS.some((user) => user === record(request.userInfo).username))
    rows.push("namespace controller, garbage collector, scheduler, taint eviction");
  if (request.namespace === OWN_NAMESPACE) rows.push("the project's own pods");
  else if (!isNode && request.operation !== "UPDATE" && allowed && reasons.length === 0 && isLiving(pod))
    rows.push("no protector");
  return rows;
}

function changeRow({ oldObject, object, subResource }: Json): AdmissionTableRow {
  const isClosing = closesGate(record(oldObject), record(object));
  if (subResource === "status") return `status write that ${isClosing ? "closes a gate" : "ends a pod"}`;
  const restarts = restartsContainer(record(oldObject), record(object));
  return restarts ? "change in place that restarts containers" : "change in place that restarts nothing";
}

function evictionRows(request: Json, code: number): AdmissionTableRow[] {
  if (code === 404) return ["eviction of a pod that does not exist"];
  if (code === 409) return ["eviction with another UID"];
  const isBeta = record(request.object).apiVersion === "policy/v1beta1";
  return [isBeta ? "eviction policy/v1beta1" : "eviction policy/v1"];
}

function deletionRows(request: Json, pod: Json, options: Json, names: KnownNames): AdmissionTableRow[] {
  const rows: AdmissionTableRow[] = [];
  const { name, uid, deletionTimestamp } = metadataOf(pod);
  const before = names.get(String(name));
  names.set(String(name), String(uid));
  if (before !== undefined && before !== uid) rows.push("same name, other UID");
  if (request.name === "") rows.push("deletecollection");
  if (deletionTimestamp !== undefined) return [...rows, "deletionTimestamp already set"];
  const { phase } = record(pod.status);
  if (phase === "Failed" || phase === "Succeeded") rows.push("finished");
  else if (phase === "Pending") rows.push("pending");
  else if (options.gracePeriodSeconds === 0) rows.push("gracePeriodSeconds 0 on a live pod");
  return rows;
}

function isLiving(pod: Json): boolean {
  const { deletionTimestamp, annotations } = metadataOf(pod);
  const isForced = record(annotations)[FORCE_ANNOTATION] !== undefined;
  return deletionTimestamp === undefined && record(pod.status).phase === "Running" && !isForced;
}
