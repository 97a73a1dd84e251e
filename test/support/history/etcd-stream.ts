/**
 * Every version of the objects below a key, from etcd's own watch: in order, none left out, whatever becomes of the
 * apiserver meanwhile.
 */
import { setTimeout as delay } from "node:timers/promises";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";

/**
 * etcd tells this often how far a quiet stream has come, as Kubernetes asks for. It tells the watches of the apiserver
 * as well, so that a much shorter time keeps a machine busy.
 */
export const PROGRESS_FLAGS = { "watch-progress-notify-interval": "5s" };
const RETRY_MS = 20;

interface StoredVersion {
  readonly history: number;
  readonly revision: number;
  /** The key below the prefix. */
  readonly key: string;
  /** Undefined: deleted. */
  readonly value: unknown;
}

interface StreamEvents {
  version(version: StoredVersion): void;
  /** A new history has begun, with what the one before had up to this revision. */
  replaced(history: number, inherits: number): void;
  /** Something is missing from the record. */
  failed(error: Error): void;
}

export class EtcdStream implements AsyncDisposable {
  readonly #cluster: Cluster;
  readonly #prefix: string;
  readonly #events: StreamEvents;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  /** Everything up to here was told: the history, and its revision. */
  readonly #position: Float64Array;
  /** The present history was told of. */
  #hasBegun = true;

  constructor(cluster: Cluster, prefix: string, position: Float64Array, events: StreamEvents) {
    this.#cluster = cluster;
    this.#prefix = prefix;
    this.#position = position;
    this.#events = events;
    this.#running = this.#run().catch((cause: unknown) =>
      events.failed(new Error(`the record of ${prefix} in ${cluster.name} ended`, { cause })),
    );
  }

  /** What was told of the cluster; everything that is stored later has a later revision. */
  get position(): { readonly history: number; readonly revision: number } {
    const [history = 0, revision = 0] = this.#position;
    return { history, revision };
  }

  /** Resolves when everything that is stored now was told. */
  async catchUp(): Promise<void> {
    const revision = Number(await this.#cluster.etcd.revision());
    const history = this.#cluster.etcdHistory;
    await this.#cluster.waitFor(`${this.#prefix} to be told up to ${revision}`, async () => {
      const told = this.position;
      return told.history > history || (told.history === history && told.revision >= revision);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const history = this.#cluster.etcdHistory;
      if (history !== this.position.history) {
        // In this order: another thread reads the history first, and may only take too early a moment.
        this.#position[1] = 0;
        this.#position[0] = history;
        this.#hasBegun = false;
      }
      try {
        for await (const told of this.#cluster.etcd.watch(this.#prefix, this.position.revision + 1, this.#stop.signal))
          if (this.#tell(history, told) === "compacted") break;
      } catch (error) {
        if (error instanceof IncompleteRecord) throw error;
      }
      if (!this.#stop.signal.aborted) await delay(RETRY_MS);
    }
  }

  #tell(history: number, told: unknown): "compacted" | "told" {
    const compacted = Number(field(told, "compact_revision") ?? 0);
    if (compacted > 0) {
      // What the present history has compacted, an earlier one has told.
      if (this.#hasBegun) throw new IncompleteRecord(`up to ${compacted} was compacted before it was told`);
      this.#reached(compacted);
      return "compacted";
    }
    // The revision of a creation is that of the server, which has yet to tell what it has.
    if (field(told, "created") === true) return "told";
    if (!this.#hasBegun) this.#events.replaced(history, this.position.revision);
    this.#hasBegun = true;
    const events = items(told, "events");
    for (const event of events) this.#tellEvent(history, event);
    if (events.length === 0) this.#reached(Number(field(told, "header", "revision") ?? 0));
    return "told";
  }

  #tellEvent(history: number, event: unknown): void {
    const entry = field(event, "kv");
    const revision = Number(field(entry, "mod_revision"));
    const key = Buffer.from(String(field(entry, "key")), "base64")
      .toString("utf8")
      .slice(this.#prefix.length);
    const value = field(event, "type") === "DELETE" ? undefined : parse(String(field(entry, "value")));
    this.#events.version({ history, revision, key, value });
    this.#reached(revision);
  }

  #reached(revision: number): void {
    this.#position[1] = Math.max(this.position.revision, revision);
  }
}

class IncompleteRecord extends Error {}

function parse(value: string): unknown {
  const text = Buffer.from(value, "base64").toString("utf8");
  if (!text.startsWith("{")) throw new IncompleteRecord("an object is not stored as JSON (--storage-media-type)");
  return JSON.parse(text);
}
