import type { Ports } from "../../runtime/clock.ts";
import { type Transport, TransportError } from "../client/transport.ts";
import { type Collection, collectionPath } from "./collection.ts";
import type { ParsedObject } from "./object-parser.ts";
import { parseListPage, type RawPage, tokenAhead } from "./raw-object.ts";
import { failureOfResponse, WatchFailure } from "./watch-failure.ts";

/** How often one call starts over before it fails and leaves the pace to the caller's backoff. */
const MAX_STARTS = 3;
/** A page that takes longer would not fit into the server's own request timeout of 60 s either. */
const PAGE_TIMEOUT_MS = 30_000;
const MAX_PAGE_SIZE = 10_000;

export interface Lister<T> {
  readonly name: string;
  readonly transport: Transport;
  readonly ports: Pick<Ports, "clock" | "timers">;
  readonly collection: Collection;
  readonly parse: (raw: unknown) => ParsedObject<T>;
  /** What to hold for an object that `parse` refused, if anything. */
  readonly fallback: (key: string, uid: string) => T | undefined;
  /** Called whenever the server has said something. */
  readonly contact: () => void;
}

/** A complete list: all objects at exactly `version`. */
export interface Listed<T> {
  readonly objects: Map<string, T>;
  readonly version: string;
  readonly requests: number;
  /**
   * Monotonic time at which it was asked for, when it was a quorum read: whatever was committed before is contained.
   * Undefined for a list that may be as old as a known position.
   */
  readonly quorumSentMs: number | undefined;
}

/**
 * Lists a collection in pages of one version (design 5.4, 8): a quorum read, or, with `notOlderThan`, a read at that version or
 * later. Never `resourceVersion=0`. When the pages' version changes or expires it starts over with larger pages, when a page is
 * too large with smaller ones. Throws {@link WatchFailure}: `ahead-of-server` when `notOlderThan` is newer than the server.
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

/** The page size to start over with, or undefined when starting over would not help. */
function nextLimit(error: unknown, limit: number, requests: number): number | undefined {
  if (error instanceof TransportError && error.tag === "oversized") {
    return limit > 1 ? Math.ceil(limit / 4) : undefined;
  }
  const torn =
    error instanceof WatchFailure &&
    // A first page that is expired is no torn list: asking again at once would not help.
    (error.tag === "inconsistent-pages" || (error.tag === "expired" && requests > 1));
  return torn ? Math.min(limit * 2, MAX_PAGE_SIZE) : undefined;
}

/** One page that was asked for. */
interface Asked {
  readonly body: Promise<string>;
  /** Where the list goes on, as soon as that is known. */
  token: string | undefined;
}

function firstPage(notOlderThan: string | undefined): Readonly<Record<string, string>> {
  if (notOlderThan !== undefined) return { resourceVersion: notOlderThan, resourceVersionMatch: "NotOlderThan" };
  return {};
}

class ListAttempt<T> {
  readonly #lister: Lister<T>;
  readonly #limit: number;
  readonly #ended = new AbortController();
  readonly #signal: AbortSignal;
  /** The page that is waited for. The pages before it are kept, and nothing of them is in memory but their objects. */
  #reading: Asked | undefined;
  /** The page after it, where that is asked for already. */
  #ahead: Asked | undefined;
  requests = 0;

  constructor(lister: Lister<T>, limit: number, signal: AbortSignal) {
    this.#lister = lister;
    this.#limit = limit;
    this.#signal = AbortSignal.any([signal, this.#ended.signal]);
  }

  async run(notOlderThan: string | undefined): Promise<Omit<Listed<T>, "requests">> {
    const objects = new Map<string, T>();
    const sentMs = this.#lister.ports.clock.monotonicMs();
    this.#reading = this.#ask(firstPage(notOlderThan));
    let version = "";
    try {
      while (this.#reading !== undefined) {
        const asked: Asked = this.#reading;
        this.#goOn(asked, asked.token);
        const body = await asked.body;
        this.#goOn(asked, asked.token ?? tokenAhead(body));
        const page = parseListPage(body);
        version ||= page.resourceVersion;
        if (asked.token !== undefined && asked.token !== page.continueToken)
          throw new WatchFailure("corrupt", `${this.#lister.name}: a list says twice where it goes on`);
        if (page.resourceVersion !== version) {
          const message = `${this.#lister.name}: the list changed from version ${version} to ${page.resourceVersion} between pages`;
          throw new WatchFailure("inconsistent-pages", message);
        }
        this.#keep(page, objects);
        this.#goOn(asked, page.continueToken);
        this.#reading = this.#ahead;
        this.#ahead = undefined;
      }
    } finally {
      // Nothing of a list that has failed is under way when it returns.
      this.#ended.abort();
      await Promise.allSettled([this.#reading?.body, this.#ahead?.body]);
    }
    return { objects, version, quorumSentMs: notOlderThan === undefined ? sentMs : undefined };
  }

  /** Asks for the page after the one that is read: the server makes it while this one arrives and is parsed. */
  #goOn(asked: Asked, token: string | undefined): void {
    asked.token = token;
    if (token !== undefined && asked === this.#reading) this.#ahead ??= this.#ask({ continue: token });
  }

  #ask(parameters: Readonly<Record<string, string>>): Asked {
    const onBodyBegins = (head: string): void => this.#goOn(asked, tokenAhead(head));
    const body = this.#fetch(parameters, onBodyBegins);
    // Whoever reads it hears of it; it may fail before that.
    body.catch(() => {});
    const asked: Asked = { body, token: undefined };
    return asked;
  }

  /** The body of one page. */
  async #fetch(parameters: Readonly<Record<string, string>>, onBodyBegins: (head: string) => void): Promise<string> {
    const { transport, collection, contact, name } = this.#lister;
    this.requests++;
    const response = await transport.request({
      method: "GET",
      path: collectionPath(collection, { limit: this.#limit, ...parameters }),
      timeoutMs: PAGE_TIMEOUT_MS,
      signal: this.#signal,
      ignoresManagedFields: true,
      onBodyBegins,
    });
    contact();
    if (response.status !== 200) throw failureOfResponse(response, `list ${name}`);
    return response.body;
  }

  #keep(page: RawPage, objects: Map<string, T>): void {
    for (const item of page.items) {
      const { owned, key, uid, object } = this.#lister.parse(item);
      if (!owned) continue;
      const kept = object ?? this.#lister.fallback(key, uid);
      if (kept !== undefined) objects.set(key, kept);
    }
  }
}
