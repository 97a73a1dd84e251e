/** The raw JSON of lists and watches. Checked by hand and not by a schema, because every object passes here. */
import { toError } from "../../runtime/errors.ts";
import { isRecord } from "../../schema/check.ts";
import { MalformedResponse, parseJson } from "../client/api-result.ts";

/** An object of any kind. */
interface RawObject {
  readonly metadata: {
    readonly namespace?: string;
    readonly name?: string;
    readonly uid?: string;
    readonly resourceVersion?: string;
  };
}

const EVENT_TYPES = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"] as const;
export type EventType = (typeof EVENT_TYPES)[number];

function isEventType(value: unknown): value is EventType {
  return EVENT_TYPES.some((type) => type === value);
}

const isText = (value: unknown): boolean => value === undefined || typeof value === "string";

export function isRawObject(value: unknown): value is RawObject {
  if (!isRecord(value) || !isRecord(value.metadata)) return false;
  const { namespace, name, uid, resourceVersion } = value.metadata;
  return isText(namespace) && isText(name) && isText(uid) && isText(resourceVersion);
}

/** `namespace/name`, or `name`. */
function keyOfRaw(object: RawObject): string {
  const { namespace, name } = object.metadata;
  return namespace ? `${namespace}/${name ?? ""}` : (name ?? "");
}

/** One object of a list or stream, checked and trimmed. */
export interface ParsedObject<T> {
  /** False for an object of another shard: the reflector drops it, even its last known state. */
  readonly owned: boolean;
  readonly key: string;
  readonly uid: string;
  readonly version: string;
  /** Undefined when the caller's `parse` rejected the object and there is no stub, or the object is not owned. */
  readonly object: T | undefined;
}

/**
 * Returns a function from raw JSON to the caller's type. An object without metadata throws. An object that `parse`
 * rejects is reported and comes back as its stub or without `object`, so that one odd object never stops a stream.
 */
export function objectParser<T>(
  options: {
    readonly parse: (raw: unknown) => T;
    readonly stub?: (raw: unknown) => T | undefined;
    readonly keyOf?: (object: T) => string;
    readonly owns?: (uid: string) => boolean;
  },
  report: (key: string, error: Error) => void,
): (raw: unknown) => ParsedObject<T> {
  return (raw) => {
    if (!isRawObject(raw)) throw new MalformedResponse("an object has no metadata");
    const { uid = "", resourceVersion: version = "" } = raw.metadata;
    if (options.owns?.(uid) === false) return { owned: false, key: keyOfRaw(raw), uid, version, object: undefined };
    try {
      const object = options.parse(raw);
      return { owned: true, key: options.keyOf?.(object) ?? keyOfRaw(raw), uid, version, object };
    } catch (error) {
      const key = keyOfRaw(raw);
      report(key, toError(error));
      return { owned: true, key, uid, version, object: options.stub?.(raw) };
    }
  };
}

/** Parses one line of a watch. Throws {@link MalformedResponse}. */
export function parseWatchLine(line: string): { readonly type: EventType; readonly object: unknown } {
  const value = parseJson(line, "a watch line");
  if (!isRecord(value) || !isEventType(value.type)) throw new MalformedResponse("a watch line is no watch event");
  return { type: value.type, object: value.object };
}

export interface RawPage {
  readonly resourceVersion: string;
  readonly continueToken: string | undefined;
  readonly items: readonly unknown[];
  /** Of a first page: the objects of the whole list. Undefined where the server did not count what is left. */
  readonly total: number | undefined;
}

/** A proxy may mix up responses. Throws {@link MalformedResponse} for an object or list of another kind. */
export function checkKind(value: unknown, kind: string): void {
  if (isRecord(value) && value.kind !== undefined && value.kind !== kind)
    throw new MalformedResponse(`the answer is no ${kind}`);
}

/** Parses one page of a list, of objects of `kind` if it is known. Throws {@link MalformedResponse}. */
export function parseListPage(body: string, kind?: string): RawPage {
  const value = parseJson(body, "a list");
  if (!isRecord(value) || !isRecord(value.metadata)) throw new MalformedResponse("a list has no metadata");
  if (kind !== undefined) checkKind(value, `${kind}List`);
  const { resourceVersion, continue: token, remainingItemCount } = value.metadata;
  // A list without objects may say `items: null`. A single object, the answer to another request, has none.
  const items: unknown = value.items === null ? [] : value.items;
  if (typeof resourceVersion !== "string" || resourceVersion === "" || !isText(token) || !Array.isArray(items)) {
    throw new MalformedResponse("a list has no resourceVersion or no items");
  }
  const continueToken = typeof token === "string" && token !== "" ? token : undefined;
  const left = continueToken === undefined ? 0 : remainingItemCount;
  return {
    resourceVersion,
    continueToken,
    items,
    total: Number.isInteger(left) ? items.length + Number(left) : undefined,
  };
}

/** kube-apiserver writes the metadata of a list first, except for custom resources. */
const LIST_HEAD = /^\{"kind":"\w+","apiVersion":"[\w.\-/]+","metadata":(\{[^{}]*\}),"items":\[/;
/** A token has some hundred characters. */
const MAX_HEAD = 4096;

/** Returns the continue token from the head of an unparsed list, if possible. The caller checks it after parsing. */
export function tokenAhead(body: string): string | undefined {
  const metadata = LIST_HEAD.exec(body.slice(0, MAX_HEAD))?.[1];
  return /"continue":"([\w=+/-]+)"/.exec(metadata ?? "")?.[1];
}
