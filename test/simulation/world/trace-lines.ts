/** Changes of stored objects as one short line each, for traces. */
import { Ledger } from "../../../shared/decide/ledger/ledger.ts";
import { parsePodProtector } from "../../../shared/schema/podprotector.ts";
import type { EtcdChange, EtcdObject, Json } from "../apiserver/etcd.ts";
import { metadataOf, record } from "../apiserver/objects.ts";

/** For example `web-3 uid@1071 Running ready`. */
export function podLine({ key, revision, before, after }: EtcdChange): string {
  const name = key.split("/").slice(2).join("/");
  const uid = String(metadataOf(after?.value ?? before?.value ?? {}).uid);
  if (after === undefined) return `${name} ${uid}@${revision} gone`;
  const { phase, conditions } = record(after.value.status);
  const ready = (Array.isArray(conditions) ? conditions.map(record) : []).find(({ type }) => type === "Ready");
  const words = [
    String(phase),
    ready === undefined ? "" : `ready=${String(ready.status)}`,
    metadataOf(after.value).deletionTimestamp === undefined ? "" : "terminating",
  ];
  return `${name} ${uid}@${revision} ${words.filter((word) => word !== "").join(" ")}`;
}

/** For example `web@1185 min 39: cell-1 13@1098[uid-7 D1 paid]`. Cells that did not change are left out. */
export function protectorLine({ key, before, after, revision }: EtcdChange): string {
  const name = key.split("/")[2] ?? key;
  if (after === undefined) return `${name}@${revision} gone`;
  const old = new Map(before === undefined ? [] : cellsOf(before).map((text) => [text, true]));
  const changed = cellsOf(after).filter((text) => !old.has(text));
  const { minAvailable, minReadySeconds } = record(after.value.spec);
  const min = `min ${String(minAvailable)}${minReadySeconds ? `, ready ${String(minReadySeconds)} s` : ""}`;
  return `${name}@${revision} (${min}): ${changed.join("; ")}`;
}

function cellsOf({ value, revision }: EtcdObject): string[] {
  const metadata: Json = { ...metadataOf(value), resourceVersion: String(revision) };
  const { status } = parsePodProtector({ ...value, metadata });
  return (status?.cells ?? []).map(({ cellID, aggregation, admissionHistory }) => {
    const reservations = [...Ledger.parse(admissionHistory?.buckets).reservations()].map((one) => {
      const records = [...one.records].map(
        ([operation, { podResourceVersion, nonces, paid }]) =>
          `${operation[0]}@${podResourceVersion ?? "?"}${paid ? "" : " pin"} ${nonces.join("+")}`,
      );
      return `${one.uid ?? one.podName ?? "?"} w${one.weight} ${records.join(" ")}`;
    });
    const { availableReplicas, resourceVersion, maturityCutoff, epoch, hold } = aggregation ?? {};
    const marks = [
      maturityCutoff === undefined ? "" : ` mature ${maturityCutoff.slice(11, 19)}`,
      epoch ? ` epoch ${epoch}` : "",
      hold === undefined ? "" : ` hold ${hold}`,
    ];
    const count = `${availableReplicas ?? "-"}@${resourceVersion ?? "-"}${marks.join("")}`;
    return `${cellID} ${count} [${reservations.join(", ")}]`;
  });
}
