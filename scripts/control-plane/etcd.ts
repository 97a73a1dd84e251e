import { cpSync } from "node:fs";
import { type ApiserverClient, field, items } from "./api-client.ts";
import type { ManagedProcess } from "./managed-process.ts";

/** Reads and changes a cluster's etcd behind the apiserver's back, through etcd's HTTP gateway; copies its data. */
export class EtcdClient {
  readonly #client: ApiserverClient;

  constructor(client: ApiserverClient) {
    this.#client = client;
  }

  /** The newest revision, which resourceVersions count. */
  async revision(): Promise<bigint> {
    const answer = await this.#post("/v3/kv/range", { key: encode("/"), limit: "1", keys_only: true });
    return BigInt(String(field(answer, "header", "revision")));
  }

  /** Forgets all states older than `revision`, by default the newest. Resolves with the revision. */
  async compact(revision?: bigint): Promise<bigint> {
    const target = revision ?? (await this.revision());
    await this.#post("/v3/kv/compaction", { revision: String(target), physical: true });
    return target;
  }

  /** The keys that begin with `prefix`; `/registry/pods/` and so on. */
  async keys(prefix: string): Promise<string[]> {
    const answer = await this.#post("/v3/kv/range", {
      key: encode(prefix),
      range_end: prefixEnd(prefix),
      keys_only: true,
    });
    return items(answer, "kvs").map((entry) => Buffer.from(String(field(entry, "key")), "base64").toString("utf8"));
  }

  /**
   * Erases the object at `key` (`/registry/deployments/NAMESPACE/NAME`) without admission, finalizers or
   * deletionTimestamp. Resolves with whether it existed.
   */
  async deleteKey(key: string): Promise<boolean> {
    const answer = await this.#post("/v3/kv/deleterange", { key: encode(key) });
    return field(answer, "deleted") === "1";
  }

  /** The stored form of the object at `key`; undefined without an object. */
  async value(key: string): Promise<Buffer | undefined> {
    const answer = await this.#post("/v3/kv/range", { key: encode(key) });
    const found = field(answer, "kvs", 0, "value");
    return typeof found === "string" ? Buffer.from(found, "base64") : undefined;
  }

  /**
   * Stores at most 128 entries in one transaction, without admission and validation. A running apiserver sees them in
   * its watch.
   */
  async putAll(entries: readonly (readonly [key: string, value: Buffer])[]): Promise<void> {
    const success = entries.map(([key, value]) => ({
      request_put: { key: encode(key), value: value.toString("base64") },
    }));
    await this.#post("/v3/kv/txn", { success });
  }

  /**
   * etcd's watch events of the keys with this `prefix`, from a revision on, until `signal` or the end of the
   * connection.
   */
  async *watch(prefix: string, from: number, signal: AbortSignal): AsyncGenerator<unknown> {
    const range = { key: encode(prefix), range_end: prefixEnd(prefix) };
    const creation = { ...range, start_revision: String(from), progress_notify: true };
    const response = await this.#client.stream("/v3/watch", { create_request: creation }, signal);
    let rest = "";
    for await (const chunk of response.setEncoding("utf8")) {
      const lines = `${rest}${String(chunk)}`.split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) yield field(JSON.parse(line), "result");
    }
  }

  /** Raises or ends the alarm of an etcd whose quota is used up: it answers reads, and refuses writes. */
  async outOfSpace(on: boolean): Promise<void> {
    const status = await this.#post("/v3/maintenance/status", {});
    const memberID = field(status, "header", "member_id");
    await this.#post("/v3/maintenance/alarm", { action: on ? "ACTIVATE" : "DEACTIVATE", memberID, alarm: "NOSPACE" });
  }

  get url(): string {
    return this.#client.url;
  }

  close(): void {
    this.#client.close();
  }

  async #post(path: string, body: unknown): Promise<unknown> {
    return await this.#client.call("POST", path, body);
  }
}

function encode(text: string): string {
  return Buffer.from(text, "utf8").toString("base64");
}

/** The first key after all that begin with `prefix`: its last octet plus one. */
function prefixEnd(prefix: string): string {
  const end = Buffer.from(prefix, "utf8");
  end[end.length - 1] = (end.at(-1) ?? 0) + 1;
  return end.toString("base64");
}

export interface EtcdSnapshot {
  readonly directory: string;
}

/** Copies etcd's data on disk; etcd is frozen meanwhile. */
export function copyEtcdData(etcd: ManagedProcess, data: string, directory: string): EtcdSnapshot {
  // A process that is frozen between two writes leaves the same data as a crash, from which etcd recovers.
  etcd.freeze();
  try {
    cpSync(data, directory, { recursive: true });
  } finally {
    etcd.thaw();
  }
  return { directory };
}
