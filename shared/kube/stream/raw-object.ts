import { WatchFailure } from "./watch-failure.ts";

/** An object of any kind as far as the list-watch itself looks into it; the rest is the caller's `parse`. */
export interface RawObject {
  readonly metadata: {
    readonly namespace?: string;
    readonly name?: string;
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly annotations?: Readonly<Record<string, unknown>>;
  };
}

const EVENT_TYPES = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"] as const;
export type EventType = (typeof EVENT_TYPES)[number];

export interface RawEvent {
  readonly type: EventType;
  readonly object: unknown;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isEventType(value: unknown): value is EventType {
  return EVENT_TYPES.some((type) => type === value);
}

const isText = (value: unknown): boolean => value === undefined || typeof value === "string";

/** Checked by hand and not by a schema: this runs for every object of every stream. */
export function isRawObject(value: unknown): value is RawObject {
  if (!isRecord(value) || !isRecord(value.metadata)) return false;
  const { namespace, name, uid, resourceVersion } = value.metadata;
  return isText(namespace) && isText(name) && isText(uid) && isText(resourceVersion);
}

/** `namespace/name`, or `name`. */
export function keyOfRaw(object: RawObject): string {
  const { namespace, name } = object.metadata;
  return namespace ? `${namespace}/${name ?? ""}` : (name ?? "");
}

/** One line of a watch. Throws a `corrupt` WatchFailure for what no apiserver sends. */
export function parseWatchLine(line: string): RawEvent {
  const value = parseOrCorrupt(line, "a watch line");
  if (!isRecord(value) || !isEventType(value.type)) {
    throw new WatchFailure("corrupt", "a watch line is no watch event");
  }
  return { type: value.type, object: value.object };
}

export interface RawPage {
  readonly resourceVersion: string;
  readonly continueToken: string | undefined;
  readonly items: readonly unknown[];
}

/** One page of a list. Throws a `corrupt` WatchFailure for a body that is no list. */
export function parseListPage(body: string): RawPage {
  const value = parseOrCorrupt(body, "a list");
  if (!isRecord(value) || !isRecord(value.metadata)) throw new WatchFailure("corrupt", "a list has no metadata");
  const { resourceVersion, continue: token } = value.metadata;
  // A list without objects may say `items: null`.
  const items: unknown = value.items ?? [];
  if (typeof resourceVersion !== "string" || resourceVersion === "" || !isText(token) || !Array.isArray(items)) {
    throw new WatchFailure("corrupt", "a list has no resourceVersion or no items");
  }
  return { resourceVersion, continueToken: typeof token === "string" && token !== "" ? token : undefined, items };
}

/** Where the server writes a list's metadata first, as it does for all but custom resources. */
const LIST_HEAD = /^\{"kind":"\w+","apiVersion":"[\w.\-/]+","metadata":(\{[^{}]*\}),"items":\[/;
/** A token is some hundred characters. */
const MAX_HEAD = 4096;

/** The continue token of a list that is not parsed yet, where it can be told from its head; what it says is to be checked. */
export function tokenAhead(body: string): string | undefined {
  const metadata = LIST_HEAD.exec(body.slice(0, MAX_HEAD))?.[1];
  const token = /"continue":"([\w=+/-]+)"/.exec(metadata ?? "")?.[1];
  return token;
}

/** JSON, or a `corrupt` WatchFailure that repeats nothing of the text. */
export function parseOrCorrupt(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's message quotes the text, which may hold a Secret's data: it is left out.
    throw new WatchFailure("corrupt", `${what} is not JSON`);
  }
}
