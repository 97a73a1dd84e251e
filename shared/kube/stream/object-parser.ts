import { isRawObject, keyOfRaw } from "./raw-object.ts";
import { WatchFailure } from "./watch-failure.ts";

/** One object of a list or stream, checked and trimmed. `object` is undefined when the caller's `parse` refused it or it is not owned. */
export interface ParsedObject<T> {
  /** False when it is of another shard: nothing of it is held, not its last known state either. */
  readonly owned: boolean;
  readonly key: string;
  readonly uid: string;
  readonly version: string;
  readonly object: T | undefined;
}

/**
 * Makes the step from raw JSON to the caller's type. An object without metadata is corruption (throws); one that `parse`
 * refuses is reported and comes back without `object`, so that one odd object never stops a stream (design S13).
 */
export function objectParser<T>(
  options: {
    readonly parse: (raw: unknown) => T;
    readonly keyOf: (object: T) => string;
    readonly owns?: (uid: string) => boolean;
  },
  report: (key: string, error: Error) => void,
): (raw: unknown) => ParsedObject<T> {
  return (raw) => {
    if (!isRawObject(raw)) throw new WatchFailure("corrupt", "an object has no metadata");
    const { uid = "", resourceVersion = "" } = raw.metadata;
    const version = resourceVersion;
    if (options.owns?.(uid) === false) return { owned: false, key: keyOfRaw(raw), uid, version, object: undefined };
    try {
      const object = options.parse(raw);
      return { owned: true, key: options.keyOf(object), uid, version, object };
    } catch (error) {
      const key = keyOfRaw(raw);
      report(key, error instanceof Error ? error : new Error(String(error)));
      return { owned: true, key, uid, version, object: undefined };
    }
  };
}
