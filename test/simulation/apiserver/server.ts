/**
 * A kube-apiserver for the simulation: get, list (pages of one version), watch with lag and bookmarks,
 * compare-and-swap, status subresources, finalizers, and admission of pod disruptions before they commit. `contract/`
 * holds the model to the real one.
 */
import type { Ports } from "../../../shared/runtime/clock.ts";
import type { AdmissionChain } from "./admission.ts";
import type { Etcd, EtcdObject, Json } from "./etcd.ts";
import {
  asListItem,
  asObject,
  jsonOf,
  matchesLabels,
  matchesNode,
  metadataOf,
  record,
  replaced,
  text,
} from "./objects.ts";
import { jsonPatch, mergePatch, strategicMerge } from "./patches.ts";
import { type DeletionHabits, deletePod, deletePods, evictPod } from "./pod-deletion.ts";
import { creationOf, takesPod, updatePod } from "./pod-update.ts";
import { keyOf, parsePath, prefixOf, type RequestTarget, type SimulatedResource } from "./resources.ts";
import {
  alreadyExists,
  conflict,
  expired,
  failedTest,
  failure,
  immutableUid,
  notFound,
  ok,
  type SimulatedResponse,
  tooLarge,
} from "./responses.ts";
import { isShardSelector, shardMatcher } from "./shards.ts";
import { type WatchCache, WatchCaches } from "./watch-cache.ts";
import { type WatchSink, watchStream } from "./watch-stream.ts";

export interface ServerRequest {
  readonly method: string;
  readonly path: string;
  readonly body: Json | undefined;
  readonly contentType: string;
  readonly user: string;
}

export interface ServerSettings {
  /** Lag of a watch cache behind etcd, drawn for each batch of changes. */
  watchLagMs(): number;
  /** How long an allowed disruption takes to commit; undefined: it never commits. */
  commitDelayMs(): number | undefined;
  /** The next disruption that is allowed never commits. */
  abandonNext?(): void;
  /** Most objects in one page; 0: no limit but the request's. */
  pageObjects(): number;
  /** Whether a list with a resourceVersion comes from a cache that is only as new as it has to be. */
  servesStaleList(): boolean;
  /** kube-apiserver's `--request-timeout`: no request commits later. */
  readonly requestTimeoutMs: number;
  /** The largest object that etcd accepts. */
  objectLimitBytes(): number;
  /** What kube-apiserver does around a deletion; absent: nothing of it. */
  readonly deletion?: DeletionHabits | undefined;
  /** The UID of the object that is created as number `count`; by default the UID ends with the number. */
  uidOf?(count: number): string;
}

interface Page {
  readonly revision: number;
  readonly items: readonly EtcdObject[];
}

const NO_QUERY = new URLSearchParams();

/** Every part of a pod but its status goes through admission. */
function isUpdateOfPod({ resource, subresource }: RequestTarget): boolean {
  return resource.plural === "pods" && (subresource === undefined || subresource === "resize");
}

/** The patched object; undefined when a test of a JSON patch fails. */
function merge(contentType: string, target: Json, patch: Json): Json | undefined {
  if (contentType === "application/json-patch+json") return jsonPatch(target, patch);
  return record(mergeOf(contentType)(target, patch));
}

function mergeOf(contentType: string): (target: unknown, patch: unknown) => unknown {
  return contentType === "application/strategic-merge-patch+json" ? strategicMerge : mergePatch;
}

/** When (monotonic) a read was answered, and when the response arrived. */
export interface PodRead {
  readonly answeredMs: number;
  readonly arrivedMs: number;
}

export class ApiServer {
  readonly etcd: Etcd;
  readonly ports: Ports;
  readonly settings: ServerSettings;
  admission: AdmissionChain | undefined;
  /** The last read of each pod that a webhook has received, by key in etcd. */
  readonly podReads = new Map<string, PodRead>();
  /** Called at each write of a status. */
  statusWritten: ((user: string, key: string, status: number) => void) | undefined;
  readonly #caches: WatchCaches;
  readonly #pages = new Map<string, Page>();
  /** The last response to a list that only asks for a version. It is reused until something changes. */
  readonly #positions = new WeakMap<RequestTarget, { readonly page: Page; readonly response: SimulatedResponse }>();
  /** Kinds that are not installed now. */
  readonly #unserved = new Set<string>();
  #tokens = 0;
  #uids = 0;
  readonly name: string;

  constructor(name: string, etcd: Etcd, ports: Ports, settings: ServerSettings) {
    this.name = name;
    this.etcd = etcd;
    this.ports = ports;
    this.settings = settings;
    this.#caches = new WatchCaches(etcd, ports.timers, () => settings.watchLagMs());
  }

  /**
   * After a restart of the server or a restore of etcd: caches are read again; watches and continuations of lists end.
   */
  reset(): void {
    this.#caches.reset();
    this.#pages.clear();
  }

  /** Compacts etcd. Lists from before can no longer be continued. */
  compact(revision: number): void {
    this.etcd.compact(revision);
    for (const [token, page] of this.#pages) if (page.revision <= revision) this.#pages.delete(token);
  }

  /** Whether this kind is installed from here on. Its watches end when it is not. */
  setServed(plural: string, isServed: boolean): void {
    if (isServed) this.#unserved.delete(plural);
    else this.#unserved.add(plural);
    this.#caches.reset(plural);
  }

  isServed({ resource }: RequestTarget): boolean {
    return !this.#unserved.has(resource.plural);
  }

  async handle(request: ServerRequest): Promise<SimulatedResponse> {
    const target = parsePath(request.path);
    if (target === undefined || !this.isServed(target))
      return failure(404, "NotFound", "the server could not find the requested resource");
    switch (request.method) {
      case "GET":
        return target.name === undefined ? await this.#list(target) : this.#get(target, target.name);
      case "POST":
        return target.subresource === "eviction"
          ? await evictPod(this, target, request)
          : this.#create(target, await this.#mutated(target, request));
      case "PUT":
        if (isUpdateOfPod(target)) return await updatePod(this, target, request);
        return this.#told(request, target, this.#update(target, target.name ?? "", request.body ?? {}));
      case "PATCH":
        if (isUpdateOfPod(target) || takesPod(target, request)) return await updatePod(this, target, request);
        return this.#patch(target, target.name ?? "", request);
      case "DELETE":
        if (target.resource.plural === "pods" && target.name === undefined)
          return await deletePods(this, target, request);
        return target.resource.plural === "pods"
          ? await deletePod(this, target, request)
          : this.#delete(target, target.name ?? "", request.body);
      default:
        return failure(405, "MethodNotAllowed", request.method);
    }
  }

  /** Opens a watch that writes lines to `sink`. Returns the function that ends it. */
  watch(target: RequestTarget, sink: WatchSink): () => void {
    return watchStream({ cache: this.#caches.of(target), etcd: this.etcd, ports: this.ports, target, sink });
  }

  /** The watch caches of pod shards, by shard selector. */
  podShards(): ReadonlyMap<string, WatchCache> {
    return this.#caches.shards("pods");
  }

  /** The object as the watch cache of its resource has it. */
  cached(target: RequestTarget, key: string): EtcdObject | undefined {
    return this.#caches.of({ resource: target.resource, query: NO_QUERY }).get(key);
  }

  #told({ user }: ServerRequest, target: RequestTarget, response: SimulatedResponse): SimulatedResponse {
    if (target.subresource === "status")
      this.statusWritten?.(user, keyOf(target.resource, target.namespace, target.name ?? ""), response.status);
    return response;
  }

  #get(target: RequestTarget, name: string): SimulatedResponse {
    const stored = this.etcd.get(keyOf(target.resource, target.namespace, name));
    return stored === undefined ? notFound(name, target.resource) : ok(asObject(target.resource, stored));
  }

  async #list(target: RequestTarget): Promise<SimulatedResponse> {
    const { query, resource } = target;
    const prefix = prefixOf(resource, target.namespace);
    const shard = query.get("shardSelector");
    if (shard !== null && !isShardSelector(shard)) return failure(500, "", `invalid shard selector: ${shard}`);
    const token = query.get("continue");
    let page: Page | undefined;
    if (token !== null) {
      page = this.#pages.get(token);
      this.#pages.delete(token);
      if (page === undefined) return expired();
    } else {
      const wanted = query.get("resourceVersion");
      const cache = this.#caches.of(target);
      if (wanted === null || wanted === "") {
        this.#caches.requestProgress(resource.plural);
        page = { revision: this.etcd.revision, items: this.etcd.range(prefix) };
        if (query.get("limit") === "1") return this.#position(target, page);
      } else {
        if (!(await cache.reached(Number(wanted), 3000))) return tooLarge();
        page = (this.settings.servesStaleList() ? cache.oldest(Number(wanted), prefix) : undefined) ?? {
          revision: cache.revision,
          items: cache.range(prefix),
        };
      }
    }
    return this.#answer(target, page, token === null);
  }

  #position(target: RequestTarget, page: Page): SimulatedResponse {
    const known = this.#positions.get(target);
    if (known?.page.items === page.items && known.page.revision === page.revision) return known.response;
    const response = this.#answer(target, page, true);
    this.#positions.set(target, { page, response });
    return response;
  }

  /** As many items of `page` as the client asked for. The rest is kept for the next page. */
  #answer({ query, resource }: RequestTarget, { revision, items: all }: Page, isFirst: boolean): SimulatedResponse {
    const selector = query.get("labelSelector");
    const shard = query.get("shardSelector");
    const isInShard = shardMatcher(shard);
    const field = query.get("fieldSelector");
    const isFiltered = isFirst && (selector !== null || shard !== null || field !== null);
    const isWanted = (value: Json): boolean =>
      matchesLabels(value, selector) && isInShard(value) && matchesNode(value, field);
    const found = isFiltered ? all.filter(({ value }) => isWanted(value)) : all;
    const asked = Number(query.get("limit") ?? 0) || found.length;
    // A server may return fewer items than the client asked for.
    const most = asked > 1 && query.has("limit") ? this.settings.pageObjects() : 0;
    const limit = most > 0 ? Math.min(asked, most) : asked;
    const items = found.slice(0, limit);
    const rest = found.slice(limit);
    const metadata: Record<string, unknown> = { resourceVersion: String(revision) };
    if (shard !== null) metadata.shardInfo = { selector: shard };
    if (rest.length > 0) {
      const next = `t${++this.#tokens}`;
      this.#pages.set(next, { revision, items: rest });
      metadata.continue = next;
      // The server does not count what a selector leaves.
      if (selector === null) metadata.remainingItemCount = rest.length;
    }
    return ok({
      kind: `${resource.kind}List`,
      apiVersion: "v1",
      metadata,
      items: items.map((one) => asListItem(resource, one)),
    });
  }

  /** The body of a creation, after the mutating webhooks. */
  #mutated(target: RequestTarget, request: ServerRequest): Json | Promise<Json> {
    const { body = {} } = request;
    const mutatePod = this.admission?.mutatePod;
    if (mutatePod === undefined || target.resource.plural !== "pods") return body;
    return mutatePod(creationOf(this, target, request));
  }

  #create(target: RequestTarget, body: Json): SimulatedResponse {
    const given = metadataOf(body);
    const name = text(given.name) ?? "";
    const namespace = target.namespace;
    const key = keyOf(target.resource, namespace, name);
    if (target.query.get("dryRun") === "All")
      return this.etcd.get(key) === undefined ? ok(body, 201) : alreadyExists(name);
    const metadata = {
      ...given,
      ...(namespace === undefined ? {} : { namespace }),
      uid: this.#nextUid(),
      creationTimestamp: new Date(this.ports.clock.nowMs()).toISOString(),
      generation: 1,
    };
    return this.#store(target.resource, key, name, { ...body, metadata }, 0, 201);
  }

  #nextUid(): string {
    const count = ++this.#uids;
    return this.settings.uidOf?.(count) ?? `${this.name}-uid-${count}`;
  }

  #update(target: RequestTarget, name: string, body: Json): SimulatedResponse {
    const key = keyOf(target.resource, target.namespace, name);
    const before = this.etcd.get(key);
    if (before === undefined) return notFound(name, target.resource);
    const meta = metadataOf(body);
    const version = text(meta.resourceVersion);
    if (version !== undefined && version !== String(before.revision)) return conflict(name);
    const uid = text(meta.uid);
    if (uid !== undefined && uid !== metadataOf(before.value).uid) return conflict(name);
    return this.#replace(target, key, name, before, replaced(target.resource, before.value, body, target.subresource));
  }

  #patch(target: RequestTarget, name: string, { body: patch = {}, contentType }: ServerRequest): SimulatedResponse {
    const key = keyOf(target.resource, target.namespace, name);
    const before = this.etcd.get(key);
    if (before === undefined) return notFound(name, target.resource);
    const wanted = metadataOf(patch);
    const version = text(wanted.resourceVersion);
    if (version !== undefined && version !== String(before.revision)) return conflict(name);
    const uid = text(wanted.uid);
    if (uid !== undefined && uid !== metadataOf(before.value).uid)
      return target.resource.plural === "pods" ? immutableUid(name) : conflict(name);
    const merged = merge(contentType, asObject(target.resource, before), patch);
    if (merged === undefined) return failedTest();
    const next = replaced(target.resource, before.value, merged, target.subresource);
    return this.#replace(target, key, name, before, next);
  }

  #replace(target: RequestTarget, key: string, name: string, before: EtcdObject, value: Json): SimulatedResponse {
    const finalizers = metadataOf(value).finalizers;
    const released = !Array.isArray(finalizers) || finalizers.length === 0;
    if (metadataOf(value).deletionTimestamp !== undefined && released && target.resource.plural !== "pods") {
      this.etcd.delete(key, before.revision);
      return ok(asObject(target.resource, { ...before, value }));
    }
    // A write that changes nothing gets no new version.
    if (jsonOf(value) === jsonOf(before.value)) return ok(asObject(target.resource, before));
    return this.#store(target.resource, key, name, value, before.revision, 200);
  }

  #store(
    resource: SimulatedResource,
    key: string,
    name: string,
    value: Json,
    expected: number,
    code: number,
  ): SimulatedResponse {
    const size = jsonOf(value).length;
    // kube-apiserver passes etcd's error on as it is.
    if (size > this.settings.objectLimitBytes()) return failure(500, "", "etcdserver: request is too large");
    const written = this.etcd.put(key, value, expected);
    if (written.kind === "ok") return ok(asObject(resource, written.stored), code);
    return expected === 0 ? alreadyExists(name) : conflict(name);
  }

  #delete(target: RequestTarget, name: string, options: Json | undefined): SimulatedResponse {
    const key = keyOf(target.resource, target.namespace, name);
    const before = this.etcd.get(key);
    if (before === undefined) return notFound(name, target.resource);
    const { uid, resourceVersion } = record(record(options).preconditions);
    if (uid !== undefined && uid !== metadataOf(before.value).uid) return conflict(name);
    if (resourceVersion !== undefined && resourceVersion !== String(before.revision)) return conflict(name);
    const finalizers = metadataOf(before.value).finalizers;
    if (Array.isArray(finalizers) && finalizers.length > 0) {
      const given = metadataOf(before.value);
      if (given.deletionTimestamp !== undefined) return ok(asObject(target.resource, before));
      const metadata = {
        ...given,
        generation: Number(given.generation ?? 1) + 1,
        deletionTimestamp: new Date(this.ports.clock.nowMs()).toISOString(),
      };
      const marked = this.etcd.put(key, { ...before.value, metadata }, before.revision);
      return marked.kind === "ok" ? ok(asObject(target.resource, marked.stored)) : conflict(name);
    }
    this.etcd.delete(key, before.revision);
    return ok({ kind: "Status", status: "Success" });
  }
}
