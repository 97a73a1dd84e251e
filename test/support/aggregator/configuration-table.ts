/** A cluster that is a table of webhook configurations, with the ConfigMaps of the published authorities. */
import { LAST_APPLIED } from "../../../controllers/aggregator/webhook-configuration/field-ownership.ts";
import { PUBLISHED_CONFIG_MAP, PUBLISHED_KEY, TRUSTED_CONFIG_MAP } from "../../../shared/certificates/ca-bundle.ts";
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import { JSON_TYPE, ScriptedStream } from "../kube/scripted-transport.ts";

const RECORD = { name: "podseidon-registration", namespace: "podseidon-system", uid: "record", resourceVersion: "1" };

interface StoredConfiguration {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    resourceVersion: string;
    generation: number;
    annotations: Record<string, string>;
  };
  readonly webhooks: StoredWebhook[];
}

interface StoredWebhook {
  readonly name: string;
  failurePolicy?: string;
  clientConfig: { caBundle?: string; service?: unknown; url?: string };
}

/** Webhook configurations by plural and name, and the acknowledgements that the publisher got. */
export class ConfigurationTable implements Transport {
  readonly configurations = new Map<string, StoredConfiguration>();
  readonly acknowledgements: unknown[] = [];
  published: string;
  /** What the keeper's record says, by kind. */
  record: Record<string, string> = {};
  /** Whether it answers 403 to each write of a webhook configuration. */
  isRefusing = false;
  /** Whether the watches show no change. */
  isSilent = false;
  /** Whether calls about the keeper's record get no answer. */
  isRecordAway = false;
  /** Whether they are denied. */
  isRecordDenied = false;
  readonly #streams: { readonly of: string; readonly stream: ScriptedStream }[] = [];
  #version = 100;
  #uids = 0;

  constructor(published = "") {
    this.published = published;
  }

  put(path: string): void {
    const name = path.split("/")[1] ?? "";
    const metadata = { name, uid: this.#uid(name), resourceVersion: this.#next(), generation: 1, annotations: {} };
    this.configurations.set(path, {
      metadata,
      webhooks: [
        { name: "one", clientConfig: { service: { name: "w", path: "/webhook/cell" } } },
        { name: "two", clientConfig: { url: "https://w:8443/webhook/cell/mutate" } },
      ],
    });
    this.#notify("ADDED", path);
  }

  remove(path: string): void {
    this.#notify("DELETED", path);
    this.configurations.delete(path);
  }

  /** Changes each webhook, as anybody with the permission can. */
  alter(path: string, change: (webhook: StoredWebhook) => void): void {
    const found = this.configurations.get(path);
    if (found === undefined) throw new Error(`there is no ${path}`);
    found.webhooks.forEach(change);
    found.metadata.resourceVersion = this.#next();
    found.metadata.generation++;
    this.#notify("MODIFIED", path);
  }

  /** As `kubectl apply` of an object that was applied before. */
  apply(path: string, failurePolicy: string): void {
    const annotations = this.configurations.get(path)?.metadata.annotations ?? {};
    const applied = JSON.parse(annotations[LAST_APPLIED] ?? "");
    for (const webhook of applied.webhooks) webhook.failurePolicy = failurePolicy;
    annotations[LAST_APPLIED] = JSON.stringify(applied);
    this.alter(path, (webhook) => {
      webhook.failurePolicy = failurePolicy;
    });
  }

  bundles(path: string): (string | undefined)[] {
    return (this.configurations.get(path)?.webhooks ?? []).map(({ clientConfig }) => clientConfig.caBundle);
  }

  async request({ method, path, body = "" }: ApiRequest): Promise<ApiResponse> {
    const [where = "", query] = path.split("?");
    if (where.endsWith(PUBLISHED_CONFIG_MAP)) return answer({ data: { [PUBLISHED_KEY]: this.published } });
    if (where.endsWith(TRUSTED_CONFIG_MAP)) {
      this.acknowledgements.push(JSON.parse(body));
      return answer({});
    }
    if (where.endsWith("/podseidon-registration")) {
      if (this.isRecordAway) return { status: 503, headers: {}, body: "{}" };
      if (this.isRecordDenied) return { status: 403, headers: {}, body: JSON.stringify({ reason: "Forbidden" }) };
      if (method === "PATCH") Object.assign(this.record, JSON.parse(body).data);
      return answer({ metadata: RECORD, data: this.record });
    }
    const plural = where.split("/").at(-1) ?? "";
    if (method !== "GET" && this.isRefusing) {
      return { status: 403, headers: {}, body: JSON.stringify({ reason: "Forbidden" }) };
    }
    if (method === "POST" || method === "PUT") return this.#store(where, query, JSON.parse(body));
    if (method === "GET" && query === undefined) {
      const found = this.configurations.get(where.split("/").slice(-2).join("/"));
      return found === undefined ? { status: 404, headers: {}, body: "{}" } : answer(found);
    }
    if (method === "GET") {
      const found = this.configurations.get(`${plural}/${nameIn(query)}`);
      const items = found === undefined ? [] : [found];
      return answer({ metadata: { resourceVersion: String(this.#version) }, items });
    }
    const key = where.split("/").slice(-2).join("/");
    const found = this.configurations.get(key);
    if (found === undefined) throw new Error(`there is no ${key}`);
    const patch = JSON.parse(body);
    const { uid = found.metadata.uid } = patch.metadata ?? {};
    if (uid !== found.metadata.uid) return { status: 409, headers: {}, body: JSON.stringify({ reason: "Conflict" }) };
    if (!Array.isArray(patch)) Object.assign(found.metadata.annotations, patch.metadata.annotations);
    else found.metadata.generation++;
    for (const { op, path: pointer, value } of Array.isArray(patch) ? patch : []) {
      const index = /^\/webhooks\/(\d+)\/clientConfig$/.exec(pointer)?.[1];
      const webhook = found.webhooks[Number(index)];
      if (op === "replace" && webhook !== undefined) webhook.clientConfig = value;
    }
    found.metadata.resourceVersion = this.#next();
    this.#notify("MODIFIED", key);
    return answer(found);
  }

  async stream({ path, signal }: ApiRequest): Promise<ApiStream> {
    const [where = "", query] = path.split("?");
    const stream = new ScriptedStream();
    this.#streams.push({ of: `${where.split("/").at(-1)}/${nameIn(query)}`, stream });
    return { status: 200, headers: JSON_TYPE, chunks: stream.read(signal), close: () => {} };
  }

  close(): void {}

  #store(where: string, query: string | undefined, body: StoredConfiguration): ApiResponse {
    const { name } = body.metadata;
    const plural = where.split("/").find((part) => part.endsWith("webhookconfigurations")) ?? "";
    const key = `${plural}/${name}`;
    const before = this.configurations.get(key)?.metadata;
    const uid = before?.uid ?? this.#uid(name);
    const generation = (before?.generation ?? 0) + 1;
    const metadata = { ...body.metadata, uid, resourceVersion: this.#next(), generation };
    const stored = { ...body, metadata };
    if (new URLSearchParams(query).has("dryRun")) return answer(stored);
    this.configurations.set(key, stored);
    this.#notify(before === undefined ? "ADDED" : "MODIFIED", key);
    return answer(stored);
  }

  #uid(name: string): string {
    return `uid-${name}-${++this.#uids}`;
  }

  #next(): string {
    return String(++this.#version);
  }

  #notify(type: string, path: string): void {
    const object = structuredClone(this.configurations.get(path));
    for (const { of, stream } of this.#streams) if (of === path && !this.isSilent) stream.event(type, object);
  }
}

function nameIn(query: string | undefined): string {
  return new URLSearchParams(query).get("fieldSelector")?.replace("metadata.name=", "") ?? "";
}

function answer(body: unknown): ApiResponse {
  return { status: 200, headers: {}, body: JSON.stringify(body) };
}
