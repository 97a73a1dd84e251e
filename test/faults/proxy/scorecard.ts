/**
 * Which kinds of lists, watches and writes the proxies of the tests have seen answered by a real apiserver, or left
 * without an answer. `npm test` sums the files of all processes, and a row at zero fails it.
 */
import { appendFileSync } from "node:fs";
import { join } from "node:path";

type Kind = "list" | "watch" | "write";

/** What became of a request, in the words of the rows. */
interface Seen {
  readonly kind: Kind;
  readonly method: string;
  readonly query: URLSearchParams;
  /** 0: none. */
  readonly status: number;
  readonly end: "answered" | "lost before" | "lost after" | "unanswered" | "event" | "ended" | "cut";
  /** Of an event of a stream. */
  readonly type: string;
  /** The storage of the server was put back before. */
  readonly isRestored: boolean;
}

type Row = readonly [name: string, matches: (seen: Seen) => boolean];

const is = (kind: Kind, status: number) => (seen: Seen) =>
  seen.kind === kind && seen.end === "answered" && seen.status === status;
const failed = (seen: Seen): boolean => seen.kind === "list" && seen.end === "answered" && seen.status >= 500;
const ended = (kind: Kind, end: Seen["end"]) => (seen: Seen) => seen.kind === kind && seen.end === end;
const event = (type: string) => (seen: Seen) => seen.end === "event" && seen.type === type;
const wrote = (method: string) => (seen: Seen) =>
  seen.end === "answered" && seen.method === method && seen.status < 300;
const restored = (kind: Kind) => (seen: Seen) =>
  seen.kind === kind && seen.end === "answered" && seen.isRestored && seen.status < 300;
const listed = (test: (query: URLSearchParams) => boolean) => (seen: Seen) => is("list", 200)(seen) && test(seen.query);

const ROWS: readonly Row[] = [
  ["list: quorum read, first page", listed((query) => !query.has("resourceVersion") && !query.has("continue"))],
  ["list: a later page", listed((query) => query.has("continue"))],
  ["list: not older than a version", listed((query) => query.has("resourceVersion"))],
  ["list: quorum check", listed((query) => query.get("limit") === "1")],
  ["list: of one shard", listed((query) => query.has("shardSelector"))],
  ["list: of a restored server", restored("list")],
  ["list: 401", is("list", 401)],
  ["list: 404", is("list", 404)],
  ["list: 429", is("list", 429)],
  ["list: 5xx", failed],
  ["list: without an answer", ended("list", "unanswered")],
  ["list: lost before the server", ended("list", "lost before")],
  ["watch: from a version", (seen) => is("watch", 200)(seen) && seen.query.has("resourceVersion")],
  ["watch: of one shard", (seen) => is("watch", 200)(seen) && seen.query.has("shardSelector")],
  ["watch: of a restored server", restored("watch")],
  ["watch: 401", is("watch", 401)],
  ["watch: 404", is("watch", 404)],
  ["watch: 429", is("watch", 429)],
  ["watch: without an answer", ended("watch", "unanswered")],
  ["watch: ADDED", event("ADDED")],
  ["watch: MODIFIED", event("MODIFIED")],
  ["watch: DELETED", event("DELETED")],
  ["watch: BOOKMARK", event("BOOKMARK")],
  ["watch: ERROR 410, expired", event("ERROR 410")],
  ["watch: ended by the server", ended("watch", "ended")],
  ["watch: cut", ended("watch", "cut")],
  ["write: POST", wrote("POST")],
  ["write: PUT", wrote("PUT")],
  ["write: PATCH", wrote("PATCH")],
  ["write: to a restored server", restored("write")],
  ["write: 401", is("write", 401)],
  ["write: 404", is("write", 404)],
  ["write: 409", is("write", 409)],
  ["write: 429", is("write", 429)],
  ["write: lost before the server", ended("write", "lost before")],
  ["write: committed, the response lost", (seen) => ended("write", "lost after")(seen) && seen.status < 300],
  ["write: without an answer", ended("write", "unanswered")],
];

const counts = new Map(ROWS.map(([name]) => [name, 0]));

function note(seen: Seen): void {
  for (const [name, matches] of ROWS) if (matches(seen)) counts.set(name, (counts.get(name) ?? 0) + 1);
}

/** Adds the counts of this process, if anybody asks for them. */
export function writeScorecard(): void {
  const directory = process.env.PODSEIDON_SCORECARD;
  if (directory === undefined) return;
  appendFileSync(join(directory, `${process.pid}.ndjson`), `${JSON.stringify(Object.fromEntries(counts))}\n`);
  for (const name of counts.keys()) counts.set(name, 0);
}

/** One request that a proxy has seen, until its response or its connection has ended. */
export class Exchange {
  readonly #method: string;
  readonly #kind: Kind | undefined;
  readonly #query: URLSearchParams;
  readonly #isRestored: boolean;
  #isSent = false;
  #status = 0;
  #isOver = false;

  constructor(method: string, path: string, isRestored: boolean) {
    const [, query = ""] = path.split("?");
    this.#method = method;
    this.#query = new URLSearchParams(query);
    this.#kind = kindOf(method, path, this.#query);
    this.#isRestored = isRestored;
  }

  sent(): void {
    this.#isSent = true;
  }

  /** A proxy has answered in place of the server. */
  scripted(): void {
    this.#isOver = true;
  }

  answered(status: number): void {
    if (this.#isOver) return;
    this.#status = status;
    this.#note("answered");
    if (this.#kind !== "watch" || status !== 200) this.#isOver = true;
  }

  /** The server has answered, and nobody will learn it. */
  lost(status: number): void {
    this.#status = status;
    this.#note("lost after");
    this.#isOver = true;
  }

  /** A part of a stream. */
  streamed(text: string): void {
    if (this.#isOver || this.#kind !== "watch" || this.#status !== 200) return;
    for (const [, type = ""] of text.matchAll(/\{"type":"(ADDED|MODIFIED|DELETED|BOOKMARK)"/g))
      this.#note("event", type);
    if (text.includes('{"type":"ERROR"') && text.includes('"code":410')) this.#note("event", "ERROR 410");
    if (!/(^|\n)0\r\n\r\n$/.test(text)) return;
    this.#note("ended");
    this.#isOver = true;
  }

  closed(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#note(this.#status === 200 ? "cut" : this.#isSent ? "unanswered" : "lost before");
  }

  #note(end: Seen["end"], type = ""): void {
    if (this.#kind === undefined) return;
    const [method, query, status] = [this.#method, this.#query, this.#status];
    note({ kind: this.#kind, method, query, status, end, type, isRestored: this.#isRestored });
  }
}

/** Undefined for the read of one object. */
function kindOf(method: string, path: string, query: URLSearchParams): Kind | undefined {
  if (method !== "GET") return "write";
  if (query.has("watch")) return "watch";
  const [pathname = ""] = path.split("?");
  const [, rest = ""] = /^\/(?:api\/[^/]+|apis\/[^/]+\/[^/]+)\/(.+)$/.exec(pathname) ?? [];
  const words = rest.split("/").length;
  const isNamespaced = rest.startsWith("namespaces/");
  return words === (isNamespaced ? 3 : 1) ? "list" : undefined;
}
