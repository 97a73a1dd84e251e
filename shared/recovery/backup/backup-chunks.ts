/**
 * The copies as they are stored in the cell (design 7): which chunk has which, so that only what changed is written, a chunk by one
 * merge patch. One writer: the leader of the cell's aggregators.
 */
import { hash } from "node:crypto";
import type { ApiClient, CallOptions } from "../../kube/client/api-client.ts";
import type { ApiFailure, ApiResult } from "../../kube/client/api-result.ts";
import { listConfigMaps } from "../../kube/client/config-maps.ts";
import { type ConfigMap, configMapPath, parseConfigMap } from "../../schema/config-map.ts";
import {
  type BackupContents,
  CHUNK_CHARACTERS,
  COPY_LABEL,
  cellTag,
  chunkName,
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
}

interface Stored {
  readonly chunk: number;
  readonly characters: number;
  readonly digest: string;
}

type Change = Record<string, string | null>;

export class BackupChunks {
  readonly #options: BackupChunksOptions;
  /** By UID. */
  readonly #stored = new Map<string, Stored>();
  /** Characters in each chunk. */
  readonly #sizes: number[] = [];
  readonly #changes = new Map<number, Change>();
  #versions = "{}";
  #isDoubtful = false;

  constructor(options: BackupChunksOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#stored.size;
  }

  has(uid: string): boolean {
    return this.#stored.has(uid);
  }

  /** What is stored may be something else than what is known of it: it has to be read again before anything is written. */
  get isDoubtful(): boolean {
    return this.#isDoubtful;
  }

  doubt(): void {
    this.#isDoubtful = true;
  }

  /** Learns what is stored, and forgets what was known and wanted before; to be called before anything else, again until it succeeds. */
  async read(signal: AbortSignal): Promise<ApiFailure | { readonly kind: "ok"; readonly object: BackupContents }> {
    const { api, namespace, cellID } = this.#options;
    const selector = `${COPY_LABEL}=${cellTag(cellID)}`;
    const before = this.#isDoubtful;
    // Whoever doubts while it is read is right to do so.
    this.#isDoubtful = false;
    const result = await listConfigMaps(api, namespace, selector, { ...this.#call(), signal });
    if (result.kind !== "ok") {
      this.#isDoubtful ||= before;
      return result;
    }
    this.#stored.clear();
    this.#sizes.length = 0;
    this.#changes.clear();
    for (const { metadata, data } of result.object) {
      const chunk = this.#chunkOf(metadata.name);
      if (chunk === undefined) continue;
      for (const [uid, text] of Object.entries(data ?? {})) {
        // A process that ended between two writes has left it in two chunks: one that nobody knows of would outlive its release.
        const other = this.#stored.get(uid)?.chunk;
        if (other !== undefined && other !== chunk) this.#change(other, uid, null);
        this.#note(uid, chunk, text);
      }
    }
    const copies = readBackup(result.object);
    this.#versions = JSON.stringify(Object.fromEntries(copies.versions.map(({ core, version }) => [core, version])));
    return { kind: "ok", object: copies };
  }

  /** Wants this text stored under the UID. True when that is a change; false when it is there already, or when there is no room. */
  put(uid: string, text: string): boolean {
    const before = this.#stored.get(uid);
    if (before?.digest === digestOf(text)) return false;
    let chunk = before?.chunk;
    const fits = chunk !== undefined && this.#room(chunk) + (before?.characters ?? 0) >= text.length;
    if (!fits) {
      if (chunk !== undefined) this.remove(uid);
      chunk = this.#chunkFor(text.length);
      if (chunk === undefined) return false;
    }
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

  /** Writes what has changed; what could not be written stays to be written. Returns the number of chunks, or the first failure. */
  async flush(signal: AbortSignal): Promise<number | ApiFailure> {
    let written = 0;
    for (const [chunk, data] of [...this.#changes]) {
      this.#changes.delete(chunk);
      const result = await this.#write(chunkName(this.#options.cellID, chunk), data, signal);
      if (result.kind !== "ok") {
        this.#changes.set(chunk, { ...data, ...this.#changes.get(chunk) });
        return result;
      }
      // Only a restore of the cell, or a leader that was on its way out, can have left anything else.
      if (!this.#isAsKnown(chunk, result.object.data ?? {})) this.doubt();
      written++;
    }
    return written;
  }

  /** Writes the highest version seen of each core, when that is news. */
  async putVersions(
    versions: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<ApiFailure | { readonly kind: "ok" }> {
    const text = JSON.stringify(versions);
    if (text === this.#versions) return { kind: "ok" };
    const result = await this.#write(versionsName(this.#options.cellID), { [VERSIONS_KEY]: text }, signal);
    if (result.kind === "ok") this.#versions = text;
    return result;
  }

  async #write(name: string, data: Change, signal: AbortSignal): Promise<ApiResult<ConfigMap>> {
    const { api, namespace, cellID } = this.#options;
    const call = { ...this.#call(), signal, fieldManager: "podseidon-aggregator" };
    const path = configMapPath(namespace, name);
    const patched = await api.patch(path, "application/merge-patch+json", { data }, parseConfigMap, call);
    if (patched.kind !== "gone") return patched;
    const kept = Object.fromEntries(Object.entries(data).filter(([, text]) => text !== null));
    const labels = { [COPY_LABEL]: cellTag(cellID) };
    const metadata = { name, namespace, labels, annotations: { [`${COPY_LABEL}-of-cell`]: cellID } };
    const body = { apiVersion: "v1", kind: "ConfigMap", metadata, data: kept };
    return await api.create(configMapPath(namespace), body, parseConfigMap, call);
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
    for (let chunk = 0; chunk < MAX_CHUNKS; chunk++) if (this.#room(chunk) >= characters) return chunk;
    return undefined;
  }

  #chunkOf(name: string): number | undefined {
    for (let chunk = 0; chunk < MAX_CHUNKS; chunk++) if (chunkName(this.#options.cellID, chunk) === name) return chunk;
    return undefined;
  }

  #call(): CallOptions {
    return { timeoutMs: this.#options.timeoutMs };
  }
}

/** A text of that length is compared by this: the texts of 10,000 protectors would be some 10 MB. */
function digestOf(text: string): string {
  return hash("sha256", text, "hex").slice(0, 16);
}
