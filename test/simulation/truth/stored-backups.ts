/** The protectors that one cell holds backups of, as the cell's storage has them, and since when. */
import { BACKUP_LABEL, VERSIONS_KEY } from "../../../shared/recovery/backup/backup-format.ts";
import type { Etcd, Json } from "../apiserver/etcd.ts";
import { metadataOf, record } from "../apiserver/objects.ts";
import { OWN_NAMESPACE } from "../scenario/scenario.ts";
import { promisesPods } from "./stored-protectors.ts";

interface StoredBackup {
  readonly spec: Json;
  /** Since when there has been a backup that has this selector and promises pods, if it does now, without a gap. */
  readonly sinceMs: number;
}

const PREFIX = `configmaps/${OWN_NAMESPACE}/`;

export class StoredBackups {
  readonly #etcd: Etcd;
  readonly #nowMs: () => number;
  /** By UID. */
  #backups = new Map<string, StoredBackup>();

  constructor(etcd: Etcd, nowMs: () => number) {
    this.#etcd = etcd;
    this.#nowMs = nowMs;
    etcd.observe(({ key }) => {
      if (key.startsWith(PREFIX)) this.refresh();
    });
  }

  get(uid: string): StoredBackup | undefined {
    return this.#backups.get(uid);
  }

  uids(): Iterable<string> {
    return this.#backups.keys();
  }

  /** Reads the storage again, also after a restore. Returns the UIDs that have a backup now and had none before. */
  refresh(): string[] {
    const before = this.#backups;
    this.#backups = new Map();
    for (const { value } of this.#etcd.range(PREFIX)) {
      if (record(metadataOf(value).labels)[BACKUP_LABEL] === undefined) continue;
      for (const [uid, text] of Object.entries(record(value.data))) {
        if (uid === VERSIONS_KEY) continue;
        const spec = record(record(record(JSON.parse(String(text))).object).spec);
        const known = before.get(uid);
        const isSame = known !== undefined && covers(known.spec, spec);
        this.#backups.set(uid, { spec, sinceMs: isSame ? known.sinceMs : this.#nowMs() });
      }
    }
    return [...this.#backups.keys()].filter((uid) => !before.has(uid));
  }
}

/** Whoever has read the one also protects the pods of the other. */
export function covers(known: Json, now: Json): boolean {
  return selectorOf(known) === selectorOf(now) && (promisesPods(known) || !promisesPods(now));
}

/** The selector as a text that can be compared. */
export function selectorOf(spec: Json): string {
  return JSON.stringify(spec.selector);
}
