/** Which protectors one cell holds copies of, as its storage has them, and since when. */
import { BACKUP_LABEL, VERSIONS_KEY } from "../../../shared/recovery/backup/backup-format.ts";
import type { Etcd, Json } from "../apiserver/etcd.ts";
import { metadataOf, record } from "../apiserver/objects.ts";
import { OWN_NAMESPACE } from "../judge/admission-rows.ts";

export interface StoredCopy {
  readonly spec: Json;
  /** Since when there has been a copy with this selector, without a gap. */
  readonly sinceMs: number;
}

const PREFIX = `configmaps/${OWN_NAMESPACE}/`;

export class StoredCopies {
  readonly #etcd: Etcd;
  readonly #nowMs: () => number;
  /** By UID. */
  #copies = new Map<string, StoredCopy>();

  constructor(etcd: Etcd, nowMs: () => number) {
    this.#etcd = etcd;
    this.#nowMs = nowMs;
    etcd.observe(({ key }) => {
      if (key.startsWith(PREFIX)) this.refresh();
    });
  }

  get(uid: string): StoredCopy | undefined {
    return this.#copies.get(uid);
  }

  uids(): Iterable<string> {
    return this.#copies.keys();
  }

  /** After a restore, too. Returns the UIDs that have a copy now and had none before. */
  refresh(): string[] {
    const before = this.#copies;
    this.#copies = new Map();
    for (const { value } of this.#etcd.range(PREFIX)) {
      if (record(metadataOf(value).labels)[BACKUP_LABEL] === undefined) continue;
      for (const [uid, text] of Object.entries(record(value.data))) {
        if (uid === VERSIONS_KEY) continue;
        const spec = record(record(record(JSON.parse(String(text))).object).spec);
        const known = before.get(uid);
        const isSame = known !== undefined && selectorOf(known.spec) === selectorOf(spec);
        this.#copies.set(uid, { spec, sinceMs: isSame ? known.sinceMs : this.#nowMs() });
      }
    }
    return [...this.#copies.keys()].filter((uid) => !before.has(uid));
  }
}

/** Whom a protector of this spec covers, as a text that can be compared. */
export function selectorOf(spec: Json): string {
  return JSON.stringify(spec.selector);
}
