/**
 * Backups as an aggregator stores them in its cell: ConfigMaps ("chunks") with one key for each protector's UID, and
 * one ConfigMap with the highest resourceVersion that the cell has seen of each core.
 */
import { hash } from "node:crypto";
import * as v from "valibot";
import { valueCounter } from "../../runtime/json-values.ts";
import { GROUP } from "../../schema/annotations.ts";
import { checker } from "../../schema/check.ts";
import type { ConfigMap } from "../../schema/config-map.ts";
import { type PodProtector, parsePodProtector } from "../../schema/podprotector.ts";

/** On each ConfigMap of a backup; its value is {@link cellTag}. */
export const BACKUP_LABEL = `${GROUP}/copy`;
/** On each of them: the id of the cell that wrote it. */
export const BACKUP_CELL_ANNOTATION = `${BACKUP_LABEL}-of-cell`;
/** The key of the versions in the ConfigMap {@link versionsName}. */
export const VERSIONS_KEY = "versions";

/** Characters of backups in one ConfigMap, far below the apiserver's 1 MiB. */
export const CHUNK_CHARACTERS = 256 * 1024;
/** A protector whose backup would take more is stored without its history. */
export const MAX_BACKUP_CHARACTERS = 64 * 1024;
/** Chunks of one cell; a protector that does not fit has no backup. */
export const MAX_CHUNKS = 256;
/**
 * A longer backup takes room in half of the chunks alone: a few hundred protectors with selectors of a thousand values,
 * which one tenant can ask for, must not leave the others without backups.
 */
export const LONG_BACKUP_CHARACTERS = 8 * 1024;
/** JSON values that are read: 120 for each protector of the largest core. Each may take some 35 bytes. */
const MAX_VALUES = 6_000_000;

/** A cell's id in names and label values. */
export function cellTag(cellID: string): string {
  return hash("sha256", cellID, "hex").slice(0, 12);
}

export function chunkName(cellID: string, chunk: number): string {
  return `podseidon-copy-${cellTag(cellID)}-${chunk}`;
}

export function versionsName(cellID: string): string {
  return `podseidon-copy-${cellTag(cellID)}-versions`;
}

/** A protector of this core. */
export interface ProtectorBackup {
  readonly core: string;
  readonly object: PodProtector;
  /** A restored core lacks this protector: it was not deleted, even if it was made by hand. */
  readonly isLost?: boolean;
}

/** The backups of one cell, or of all cells in one cluster. */
export interface BackupContents {
  readonly protectors: readonly ProtectorBackup[];
  /** The highest version of each core, for each cell. */
  readonly versions: readonly { readonly core: string; readonly version: string }[];
  /** Keys that can't be read, each as `CONFIGMAP/KEY`. */
  readonly unreadable: readonly string[];
}

const Envelope = checker(v.looseObject({ core: v.string(), object: v.unknown(), isLost: v.optional(v.boolean()) }));
const Versions = checker(v.record(v.string(), v.string()));

const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";

/**
 * The text of a backup: identity, spec and the reservations of this cell. Nothing in it changes by itself, so that an
 * unchanged protector is written once. Without the reservations where it would have more than `most` characters.
 */
export function encodeBackup(
  core: string,
  protector: PodProtector,
  cellID: string,
  isLost = false,
  most = MAX_BACKUP_CHARACTERS,
): string {
  const { namespace, name, uid, labels, annotations, finalizers, ownerReferences, creationTimestamp } =
    protector.metadata;
  const { [LAST_APPLIED]: _, ...kept } = annotations ?? {};
  const metadata = {
    namespace,
    name,
    uid,
    resourceVersion: "0",
    creationTimestamp,
    labels,
    annotations: kept,
    finalizers,
    ownerReferences,
  };
  const cells = (protector.status?.cells ?? [])
    .filter((cell) => cell.cellID === cellID && (cell.admissionHistory?.buckets?.length ?? 0) > 0)
    .map(({ admissionHistory }) => ({ cellID, admissionHistory }));
  const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
  const bare = { metadata, spec: protector.spec };
  const whole = cells.length === 0 ? bare : { ...bare, status: { cells, summary } };
  const envelope = isLost ? { core, isLost } : { core };
  const text = JSON.stringify({ ...envelope, object: whole });
  return text.length <= most ? text : JSON.stringify({ ...envelope, object: bare });
}

/** Reads what {@link encodeBackup} wrote. Throws `SchemaError` or `SyntaxError`. */
export function decodeBackup(text: string): ProtectorBackup {
  const { core, object, isLost } = Envelope(JSON.parse(text));
  return { core, object: parsePodProtector(object), ...(isLost === true ? { isLost } : {}) };
}

/** Reads these ConfigMaps. Keys that are unreadable, or one too many, are named and left out. */
export function readBackup(maps: Iterable<ConfigMap>): BackupContents {
  let values = 0;
  const protectors: ProtectorBackup[] = [];
  const versions: { core: string; version: string }[] = [];
  const unreadable: string[] = [];
  for (const { metadata, data } of maps) {
    for (const [key, text] of Object.entries(data ?? {})) {
      try {
        values += valueCounter()(Buffer.from(text));
        if (values > MAX_VALUES) unreadable.push(`${metadata.name}/${key}`);
        else if (key !== VERSIONS_KEY) protectors.push(decodeBackup(text));
        else for (const [core, version] of Object.entries(Versions(JSON.parse(text)))) versions.push({ core, version });
      } catch {
        unreadable.push(`${metadata.name}/${key}`);
      }
    }
  }
  return { protectors, versions, unreadable };
}
