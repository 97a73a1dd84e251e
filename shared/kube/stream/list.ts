/**
 * One complete list of a collection. Read beside it: `watch.ts` (one watch), `raw-object.ts` (the JSON of both),
 * `watch-failure.ts` (why they fail). `informer/reflector.ts` repeats them for ever.
 */
import { type Ports, sleep } from "../../runtime/clock.ts";
import { withQuery } from "../client/api-path.ts";
import { isOversized, isTimeout, type Transport } from "../client/transport.ts";
import { type ParsedObject, parseListPage, type RawPage, tokenAhead } from "./raw-object.ts";
import { failureOfResponse, retryDelayMs, WatchFailure } from "./watch-failure.ts";

/** How often one call starts again before it fails and leaves the pace to the caller's backoff. */
const MAX_STARTS = 3;
/** A slower page would not fit into the server's own request timeout of 60 s either. */
const PAGE_TIMEOUT_MS = 30_000;
const MAX_PAGE_SIZE = 10_000;
/** As in client-go. Meanwhile the token may expire, after which the list starts again. */
const MAX_PUT_OFF = 10;
const PUT_OFF_MS = 1_000;
/** A restore of the server could pass unnoticed in a longer pause. kube-apiserver asks for 8 s at most. */
const MAX_PUT_OFF_MS = 10_000;

interface Collection {
  /** Path without query, for example `/api/v1/pods`. */
  readonly path: string;
  /** Sent with every list and watch. */
  readonly query: Readonly<Record<string, string>>;
  /** Of its objects: answers of another kind are corrupt. */
  readonly kind?: string | undefined;
}

export interface Lister<T> {
  readonly name: string;
  readonly transport: Transport;
  readonly ports: Ports;
  readonly collection: Collection;
  readonly parse: (raw: unknown) => ParsedObject<T>;
  /** The object to keep, if any, instead of one that `parse` rejected. */
  readonly fallback: (key: string, uid: string, raw: unknown) => T | undefined;
  /** Called whenever the server sends something. */
  readonly contact: () => void;
  /** A list of more objects, or of more pages, fails. */
  readonly maxObjects?: number | undefined;
}

/** A complete list: all objects at exactly `version`. */
export interface Listed<T> {
  readonly objects: Map<string, T>;
  /** By key: the versions in the list of objects that `parse` rejected, in whose place others are kept. */
  readonly rejected: ReadonlyMap<string, string>;
  readonly version: string;
  readonly requests: number;
  /**
   * Monotonic time of the request, when it was a quorum read: the list contains everything committed before. Undefined
   * for a list that may be as old as a known position.
   */
  readonly quorumSentMs: number | undefined;
}

/**
 * Lists a collection in pages of one version: by a quorum read, or, with `notOlderThan`, at that version or later.
 * Never `resourceVersion=0`. When the version of the pages changes or expires, the list starts again with larger pages.
 * A page that is too large for a response is requested again in smaller pages: a user may create objects of megabytes,
 * and the other pages stay large. When a page began but did not arrive in time, this page and all later ones become
 * smaller: a slow network would never carry a large one. A later page that a busy server rejects (429) is requested
 * again, too: one of hundreds always is, and the list would never complete. Rejects with WatchFailure,
 * MalformedResponse or TransportError; `ahead-of-server` means that `notOlderThan` is newer than the server.
 */
export async function listAll<T>(
  lister: Lister<T>,
  pageSize: number,
  notOlderThan: string | undefined,
  signal: AbortSignal,
): Promise<Listed<T>> {
  let limit = pageSize;
  let requests = 0;
  for (let start = 1; ; start++) {
    const attempt = new ListAttempt(lister, limit, signal);
    try {
      const listed = await attempt.run(notOlderThan);
      return { ...listed, requests: requests + attempt.requests };
    } catch (error) {
      requests += attempt.requests;
      const next = nextLimit(error, limit, attempt.requests);
      if (next === undefined || start === MAX_STARTS || signal.aborted) throw error;
      limit = next;
    }
  }
}

/** As {@link listAll}, but by a quorum read when the server has not reached `notOlderThan`: only that tells why. */
export async function listNotOlderThan<T>(
  lister: Lister<T>,
  pageSize: number,
  notOlderThan: string | undefined,
  signal: AbortSignal,
): Promise<Listed<T>> {
  try {
    return await listAll(lister, pageSize, notOlderThan, signal);
  } catch (error) {
    const isBehind = error instanceof WatchFailure && error.tag === "ahead-of-server";
    if (notOlderThan === undefined || !isBehind) throw error;
    return await listAll(lister, pageSize, undefined, signal);
  }
}

/** Returns the page size to start again with, or undefined when another start would not help. */
function nextLimit(error: unknown, limit: number, requests: number): number | undefined {
  const isTorn =
    error instanceof WatchFailure &&
    // When the first page is expired, the list is not torn, and the same request would fail again.
    (error.tag === "inconsistent-pages" || (error.tag === "expired" && requests > 1));
  return isTorn ? Math.min(limit * 2, MAX_PAGE_SIZE) : undefined;
}

/** What a page is asked for with. */
interface Asked {
  readonly limit: number;
  readonly continue?: string;
  readonly resourceVersion?: string;
  readonly resourceVersionMatch?: string;
}

/** One requested page. */
interface PageRequest {
  readonly asked: Asked;
  /** Aborts it alone. */
  readonly stop: AbortController;
  readonly body: Promise<string>;
  /** The continue token, as soon as it is known. */
  token: string | undefined;
  hasBegun: boolean;
  /** How often the server has rejected this page with 429. */
  readonly putOff: number;
}

/** The first page costs nothing, so the caller's backoff repeats it. */
function isPutOff({ asked, putOff }: PageRequest, error: unknown): error is WatchFailure {
  if (!(error instanceof WatchFailure) || error.tag !== "throttled" || asked.continue === undefined) return false;
  return putOff < MAX_PUT_OFF && (error.retryAfterMs ?? 0) <= MAX_PUT_OFF_MS;
}

function firstPage(notOlderThan: string | undefined): Omit<Asked, "limit"> {
  if (notOlderThan !== undefined) return { resourceVersion: notOlderThan, resourceVersionMatch: "NotOlderThan" };
  return {};
}

class ListAttempt<T> {
  readonly #lister: Lister<T>;
  #limit: number;
  readonly #rejected = new Map<string, string>();
  readonly #ended = new AbortController();
  readonly #signal: AbortSignal;
  /** The page that the list waits for. Of earlier pages only the parsed objects are in memory. */
  #reading: PageRequest | undefined;
  /** The page after it, when it is requested already. */
  #ahead: PageRequest | undefined;
  requests = 0;

  constructor(lister: Lister<T>, limit: number, signal: AbortSignal) {
    this.#lister = lister;
    this.#limit = limit;
    this.#signal = AbortSignal.any([signal, this.#ended.signal]);
  }

  async run(notOlderThan: string | undefined): Promise<Omit<Listed<T>, "requests">> {
    const objects = new Map<string, T>();
    const sentMs = this.#lister.ports.clock.monotonicMs();
    this.#reading = this.#request({ limit: this.#limit, ...firstPage(notOlderThan) });
    let version = "";
    try {
      while (this.#reading !== undefined) {
        const reading: PageRequest = this.#reading;
        this.#requestNext(reading, reading.token);
        const body = await reading.body.catch((error: unknown) =>
          isPutOff(reading, error) ? this.#later(reading, error) : this.#smaller(reading, error),
        );
        if (body === undefined) continue;
        this.#requestNext(reading, reading.token ?? tokenAhead(body));
        const page = parseListPage(body, this.#lister.collection.kind);
        version ||= page.resourceVersion;
        this.#check(page, reading, version);
        const most = this.#lister.maxObjects ?? Number.POSITIVE_INFINITY;
        if (objects.size + page.items.length > most || this.requests > most)
          throw new WatchFailure("oversized", `list ${this.#lister.name}: more than ${most} objects or pages`);
        this.#keep(page, objects);
        this.#requestNext(reading, page.continueToken);
        this.#reading = this.#ahead;
        this.#ahead = undefined;
      }
    } finally {
      // No request of a failed list outlives this call.
      this.#ended.abort();
      await Promise.allSettled([this.#reading?.body, this.#ahead?.body]);
    }
    return {
      objects,
      rejected: this.#rejected,
      version,
      quorumSentMs: notOlderThan === undefined ? sentMs : undefined,
    };
  }

  /** Asks for a smaller page in place of one that is too large, or too slow. Throws any other error. */
  #smaller({ asked, hasBegun }: PageRequest, error: unknown): undefined {
    const isSlow = hasBegun && isTimeout(error);
    if ((!isOversized(error) && !isSlow) || asked.limit === 1) throw error;
    const limit = Math.ceil(asked.limit / 4);
    if (isSlow) this.#limit = limit;
    // The page ahead continues at the end of the larger page, which is given up.
    this.#ahead?.stop.abort();
    this.#ahead = undefined;
    this.#reading = this.#request({ ...asked, limit });
  }

  /** Asks for the same page when the server wants it. */
  async #later({ asked, putOff }: PageRequest, failure: WatchFailure): Promise<undefined> {
    const { ports } = this.#lister;
    await sleep(ports, retryDelayMs(PUT_OFF_MS, failure, ports.random), this.#signal);
    if (this.#signal.aborted) throw failure;
    this.#reading = this.#request(asked, putOff + 1);
  }

  #check({ continueToken, resourceVersion }: RawPage, { token, asked }: PageRequest, version: string): void {
    const { name } = this.#lister;
    if (token !== undefined && token !== continueToken)
      throw new WatchFailure("corrupt", `${name}: a list says twice where it goes on`);
    // A caching proxy that ignores the query serves the same page for ever.
    if (asked.continue === (continueToken ?? ""))
      throw new WatchFailure("corrupt", `${name}: a page of a list goes on where it began`);
    if (resourceVersion === version) return;
    const message = `${name}: the list changed from version ${version} to ${resourceVersion} between pages`;
    throw new WatchFailure("inconsistent-pages", message);
  }

  /** Requests the page after the one that is read: the server prepares it while this one arrives and is parsed. */
  #requestNext(reading: PageRequest, token: string | undefined): void {
    reading.token = token;
    // Behind a page that was made smaller the pages grow again.
    const limit = Math.min(this.#limit, reading.asked.limit * 4);
    if (token !== undefined && reading === this.#reading) this.#ahead ??= this.#request({ limit, continue: token });
  }

  #request(asked: Asked, putOff = 0): PageRequest {
    const stop = new AbortController();
    const onBodyBegins = (head: string): void => {
      request.hasBegun = true;
      this.#requestNext(request, tokenAhead(head));
    };
    const body = this.#fetch(asked, AbortSignal.any([this.#signal, stop.signal]), onBodyBegins);
    // It may fail before its reader awaits it.
    body.catch(() => {});
    const request: PageRequest = { asked, stop, body, token: undefined, hasBegun: false, putOff };
    return request;
  }

  /** Resolves with the body of one page. */
  async #fetch(asked: Asked, signal: AbortSignal, onBodyBegins: (head: string) => void): Promise<string> {
    const { transport, collection, contact, name } = this.#lister;
    this.requests++;
    const response = await transport.request({
      method: "GET",
      path: withQuery(collection.path, { ...collection.query, ...asked }),
      timeoutMs: PAGE_TIMEOUT_MS,
      signal,
      ignoresManagedFields: true,
      isList: true,
      onBodyBegins,
    });
    contact();
    if (response.status !== 200) throw failureOfResponse(response, `list ${name}`);
    return response.body;
  }

  #keep(page: RawPage, objects: Map<string, T>): void {
    for (const item of page.items) {
      const { owned, key, uid, version, object } = this.#lister.parse(item);
      if (!owned) continue;
      if (object === undefined) this.#rejected.set(key, version);
      const kept = object ?? this.#lister.fallback(key, uid, item);
      if (kept !== undefined) objects.set(key, kept);
    }
  }
}
