/**
 * The stored backups of a cell: which chunk holds which protector, so that only changes are written, each chunk by one
 * merge patch. The leader of the cell's aggregators is the only writer.
 */
import { hash } from "node:crypto";
import type { ApiClient, CallOptions, WriteOptions } from "../../kube/client/api-client.ts";
import type { ApiFailure, ApiResult } from "../../kube/client/api-result.ts";
import { createConfigMap, listConfigMaps, mergeIntoConfigMap } from "../../kube/client/config-maps.ts";
import type { ConfigMap } from "../../schema/config-map.ts";
import {
  BACKUP_CELL_ANNOTATION,
  BACKUP_LABEL,
  type BackupContents,
  CHUNK_CHARACTERS,
  cellTag,
  chunkName,
  LONG_BACKUP_CHARACTERS,
  MAX_CHUNKS,
  readBackup,
  VERSIONS_KEY,
  versionsName,
} from "./backup-format.ts";

export interface BackupChunksOptions {
  readonly api: Pick<ApiClient, "get" | "create" | "patch">;
  readonly cellID: string;
  readonly namespace: string;
  readonly timeoutMs: number;
  /**
   * The cell is a whole cluster: backups that are stored there under other ids are its own, from before it was renamed.
   */
  readonly adopts?: boolean;
}

/** Where a backup is stored, and a digest of its text: the texts of 10,000 protectors would take some 10 MB. */
interface Stored {
  readonly chunk: number;
  readonly characters: number;
  readonly digest: string;
}

type Change = Record<string, string | null>;
/** Of one chunk, after a failed write; more than it has room for, and no longer than a request may be. */
const MOST_CHANGES = 5_000;

export class BackupChunks {
  readonly #options: BackupChunksOptions;
  /** By UID. */
  readonly #stored = new Map<string, Stored>();
  /** Characters in each chunk. */
  readonly #sizes: number[] = [];
  readonly #changes = new Map<number, Change>();
  /** The last version of each ConfigMap that this process has seen, by name. */
  readonly #seen = new Map<string, string>();
  #formerCells: ReadonlySet<string> = new Set();
  /** The names of adopted chunks, whose numbers follow on {@link MAX_CHUNKS}. */
  #adopted: readonly string[] = [];
  #versions = "{}";
  /** The UID of the ConfigMap of the versions; undefined while none is known. */
  #versionsUid: string | undefined;
  #isDoubtful = false;

  constructor(options: BackupChunksOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#stored.size;
  }

  /** Other ids whose backups the last read has found: this cluster had them before. */
  get formerCells(): ReadonlySet<string> {
    return this.#formerCells;
  }

  has(uid: string): boolean {
    return this.#stored.has(uid);
  }

  /** The store may differ from what this process knows: it is read again before anything is written. */
  get isInvalid(): boolean {
    return this.#isDoubtful;
  }

  invalidate(): void {
    this.#isDoubtful = true;
  }

  /**
   * Reads the stored backups, in place of those that this process knows, and drops unwritten changes. To be called
   * before everything else, until it succeeds.
   */
  async read(signal: AbortSignal): Promise<ApiFailure | { readonly kind: "ok"; readonly object: BackupContents }> {
    const { api, namespace, cellID, adopts = false } = this.#options;
    const before = this.#isDoubtful;
    // An `invalidate` during the read must last.
    this.#isDoubtful = false;
    const result = await listConfigMaps(api, namespace, BACKUP_LABEL, { ...this.#call(), signal });
    if (result.kind !== "ok") {
      this.#isDoubtful ||= before;
      return result;
    }
    this.#stored.clear();
    this.#sizes.length = 0;
    this.#changes.clear();
    this.#seen.clear();
    const writers = result.object.map(({ metadata }) => metadata.annotations?.[BACKUP_CELL_ANNOTATION] ?? cellID);
    this.#formerCells = new Set(writers.filter((id) => id !== cellID));
    const isOwn = ({ metadata }: ConfigMap): boolean => metadata.labels?.[BACKUP_LABEL] === cellTag(cellID);
    const own = result.object.filter(isOwn);
    const former = adopts ? result.object.filter((map) => !isOwn(map)) : [];
    const maps = [...former, ...own];
    const numbers = this.#numbersOf(maps);
    for (const { metadata, data } of maps) {
      const chunk = numbers.get(metadata.name);
      if (chunk === undefined) continue;
      this.#seen.set(metadata.name, metadata.resourceVersion);
      for (const [uid, text] of Object.entries(data ?? {})) {
        if (uid === VERSIONS_KEY) {
          // The versions under a former id would never change again: after the core has moved, each replica that starts
          // would take it for restored.
          this.#change(chunk, uid, null);
          continue;
        }
        // A process that ended between two writes left the protector in two chunks. An unknown second copy would
        // outlive the release.
        const other = this.#stored.get(uid)?.chunk;
        if (other !== undefined && other !== chunk) this.#change(other, uid, null);
        this.#note(uid, chunk, text);
      }
    }
    this.#versionsUid = own.find(({ metadata }) => metadata.name === versionsName(cellID))?.metadata.uid;
    const { versions } = readBackup(own);
    this.#versions = JSON.stringify(Object.fromEntries(versions.map(({ core, version }) => [core, version])));
    return { kind: "ok", object: readBackup(maps) };
  }

  /**
   * Wants this text stored under the UID. True when that is a change, false when it is stored already or there is no
   * room.
   */
  put(uid: string, text: string): boolean {
    const before = this.#stored.get(uid);
    if (before?.digest === digestOf(text)) return false;
    const fits = before !== undefined && this.#room(before.chunk) + before.characters >= text.length;
    if (!fits) this.remove(uid);
    const chunk = fits ? before.chunk : this.#chunkFor(text.length);
    if (chunk === undefined) return false;
    this.#note(uid, chunk, text);
    this.#change(chunk, uid, text);
    return true;
  }

  remove(uid: string): void {
    const before = this.#stored.get(uid);
    if (before === undefined) return;
    this.#stored.delete(uid);
    this.#sizes[before.chunk] = (this.#sizes[before.chunk] ?? 0) - before.characters;
    this.#change(before.chunk, uid, null);
  }

  /**
   * Writes the changes; those of a failed write remain. Returns the number of chunks, or the first failure. A chunk
   * that differs from what this process last saw stays unchanged, and makes the store invalid.
   */
  async flush(signal: AbortSignal): Promise<number | ApiFailure> {
    let written = 0;
    for (const [chunk, data] of [...this.#changes]) {
      this.#changes.delete(chunk);
      const name = this.#nameOf(chunk);
      const result = await this.#writeChunk(name, data, signal);
      if (result.kind !== "ok") {
        const left = { ...data, ...this.#changes.get(chunk) };
        this.#changes.set(chunk, left);
        // A read forgets the protectors that came and went meanwhile.
        if (Object.keys(left).length > MOST_CHANGES) this.invalidate();
        if (result.kind !== "conflict") return result;
        this.invalidate();
        return written;
      }
      this.#seen.set(name, result.object.metadata.resourceVersion);
      // Only a restore of the cell's etcd or an earlier leader's last write can have stored anything else.
      if (!this.#isAsKnown(chunk, result.object.data ?? {})) this.invalidate();
      written++;
    }
    return written;
  }

  /** Writes the highest version of each core, if that is news. */
  async putVersions(
    versions: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<ApiFailure | { readonly kind: "ok" }> {
    const text = JSON.stringify(versions);
    if (text === this.#versions) return { kind: "ok" };
    const { api, cellID } = this.#options;
    const metadata = this.#metadata(versionsName(cellID));
    const result = await mergeIntoConfigMap(api, metadata, { [VERSIONS_KEY]: text }, this.#write(signal));
    if (result.kind !== "ok") return result;
    this.#versions = text;
    // The ConfigMap was deleted meanwhile, probably with all backups. Only this write notices: it comes twice a minute,
    // and the others only with a change.
    const { uid } = result.object.metadata;
    if (this.#versionsUid !== undefined && this.#versionsUid !== uid) this.invalidate();
    this.#versionsUid = uid;
    return result;
  }

  /**
   * A write without a response may still arrive, after later writes, and bring back the backup of a released protector.
   * So each write has the version that was last seen as precondition, or creates a chunk that was never seen.
   */
  async #writeChunk(name: string, data: Change, signal: AbortSignal): Promise<ApiResult<ConfigMap>> {
    const { api } = this.#options;
    const metadata = this.#metadata(name);
    const resourceVersion = this.#seen.get(name);
    const call = this.#write(signal);
    if (resourceVersion !== undefined)
      return await mergeIntoConfigMap(api, { ...metadata, resourceVersion }, data, call);
    const created = await createConfigMap(api, metadata, data, call);
    // The chunk exists without its label, so that no list has shown it.
    if (created.kind === "conflict") await mergeIntoConfigMap(api, metadata, {}, call);
    return created;
  }

  #metadata(name: string) {
    const { namespace, cellID } = this.#options;
    const labels = { [BACKUP_LABEL]: cellTag(cellID) };
    return { name, namespace, labels, annotations: { [BACKUP_CELL_ANNOTATION]: cellID } };
  }

  #isAsKnown(chunk: number, data: Readonly<Record<string, string>>): boolean {
    const wanted = this.#changes.get(chunk) ?? {};
    for (const uid in data) if (this.#stored.get(uid)?.chunk !== chunk && !(uid in wanted)) return false;
    for (const [uid, stored] of this.#stored)
      if (stored.chunk === chunk && !(uid in data) && !(uid in wanted)) return false;
    return true;
  }

  #note(uid: string, chunk: number, text: string): void {
    const before = this.#stored.get(uid);
    if (before !== undefined) this.#sizes[before.chunk] = (this.#sizes[before.chunk] ?? 0) - before.characters;
    this.#stored.set(uid, { chunk, characters: text.length, digest: digestOf(text) });
    this.#sizes[chunk] = (this.#sizes[chunk] ?? 0) + text.length;
  }

  #change(chunk: number, uid: string, text: string | null): void {
    const change = this.#changes.get(chunk) ?? {};
    change[uid] = text;
    this.#changes.set(chunk, change);
  }

  #room(chunk: number): number {
    return CHUNK_CHARACTERS - (this.#sizes[chunk] ?? 0);
  }

  #chunkFor(characters: number): number | undefined {
    const chunks = characters > LONG_BACKUP_CHARACTERS ? MAX_CHUNKS / 2 : MAX_CHUNKS;
    for (let chunk = 0; chunk < chunks; chunk++) if (this.#room(chunk) >= characters) return chunk;
    return undefined;
  }

  /**
   * The number of each chunk by its name. A write to an adopted chunk adds the label of this cell, and keeps the name.
   */
  #numbersOf(maps: readonly ConfigMap[]): ReadonlyMap<string, number> {
    const { cellID } = this.#options;
    const own = Array.from({ length: MAX_CHUNKS }, (_, chunk) => chunkName(cellID, chunk));
    const known = new Set([...own, versionsName(cellID)]);
    this.#adopted = maps.map(({ metadata }) => metadata.name).filter((name) => !known.has(name));
    return new Map([...own, ...this.#adopted].map((name, chunk) => [name, chunk]));
  }

  #nameOf(chunk: number): string {
    return this.#adopted[chunk - MAX_CHUNKS] ?? chunkName(this.#options.cellID, chunk);
  }

  #call(): CallOptions {
    return { timeoutMs: this.#options.timeoutMs };
  }

  #write(signal: AbortSignal): WriteOptions {
    return { ...this.#call(), signal, fieldManager: "podseidon-aggregator" };
  }
}

function digestOf(text: string): string {
  return hash("sha256", text, "hex").slice(0, 16);
}
