import * as v from "valibot";
import { checker, isRecord } from "../../schema/check.ts";
import { ConfigMap, parseConfigMap } from "../../schema/config-map.ts";
import type { ApiClient, CallOptions, WriteOptions } from "./api-client.ts";
import { configMapPath, withQuery } from "./api-path.ts";
import type { ApiFailure, ApiResult } from "./api-result.ts";

const Page = checker(
  v.looseObject({
    // A proxy may mix up responses, and a list of another kind may be empty.
    kind: v.optional(v.picklist(["ConfigMapList"])),
    metadata: v.looseObject({ continue: v.optional(v.string()) }),
    items: v.array(ConfigMap),
  }),
);
/** ConfigMaps of one page: they may be large. */
const PAGE_SIZE = 10;
/** No selector of a cell selects more pages. A list of more fails: its rest is unknown. */
const MAX_PAGES = 100;
/**
 * The most characters that a cell stores: 256 ConfigMaps of backups with 256 Ki each, and what {@link TEXT_CHARACTERS}
 * adds for 50,000 texts in the largest core. A cell that is taken over may serve more.
 */
const MAX_CHARACTERS = 96 * 1024 * 1024;
/** What a text counts beside its characters: an empty one takes memory, too, and time to read. */
const TEXT_CHARACTERS = 512;

/** Keeps only the fields that this project reads: a cell that is taken over may serve megabytes in the others. */
function keptOf({ metadata, data }: ConfigMap): ConfigMap {
  const { name, uid, resourceVersion, creationTimestamp, labels, annotations } = metadata;
  return { metadata: { name, uid, resourceVersion, creationTimestamp, labels, annotations }, data };
}

function charactersOf(value: unknown): number {
  if (!isRecord(value)) return TEXT_CHARACTERS + (typeof value === "string" ? value.length : 0);
  let characters = 0;
  for (const key in value) characters += key.length + charactersOf(value[key]);
  return characters;
}

/**
 * Lists all ConfigMaps of a namespace with these labels, by quorum reads. `times` is how many times the limits they may
 * have.
 */
export async function listConfigMaps(
  api: Pick<ApiClient, "get">,
  namespace: string,
  labelSelector: string,
  options: CallOptions,
  times = 1,
): Promise<{ readonly kind: "ok"; readonly object: readonly ConfigMap[] } | ApiFailure> {
  const found: ConfigMap[] = [];
  let token: string | undefined;
  let characters = 0;
  for (let page = 0; page < MAX_PAGES * times; page++) {
    const query = { labelSelector, limit: PAGE_SIZE, continue: token };
    const result = await api.get(withQuery(configMapPath(namespace), query), Page, options);
    if (result.kind !== "ok") return result;
    for (const item of result.object.items) {
      const kept = keptOf(item);
      characters += charactersOf(kept);
      if (characters > MAX_CHARACTERS * times)
        return { kind: "rejected", status: 200, message: `more than ${MAX_CHARACTERS * times} characters` };
      found.push(kept);
    }
    token = result.object.metadata.continue;
    if (token === undefined || token === "") return { kind: "ok", object: found };
  }
  return { kind: "rejected", status: 200, message: `more than ${MAX_PAGES * times} pages` };
}

interface ConfigMapMetadata {
  readonly namespace: string;
  readonly name: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  /** If it is given and the ConfigMap has another one, the result is `conflict`. */
  readonly resourceVersion?: string | undefined;
}

/**
 * Merges `data` into a ConfigMap; null removes a key. Creates a missing ConfigMap. Without its labels, which somebody
 * may have taken off, no list would show it.
 */
export async function mergeIntoConfigMap(
  api: Pick<ApiClient, "patch" | "create">,
  { resourceVersion, ...metadata }: ConfigMapMetadata,
  data: Readonly<Record<string, string | null>>,
  options: WriteOptions,
): Promise<ApiResult<ConfigMap>> {
  const { namespace, name, labels, annotations } = metadata;
  const path = configMapPath(namespace, name);
  const patch = { metadata: { resourceVersion, labels, annotations }, data };
  const patched = await api.patch(path, "application/merge-patch+json", patch, parseConfigMap, options);
  return patched.kind === "gone" ? await createConfigMap(api, metadata, data, options) : patched;
}

/** The result is `conflict` if a ConfigMap of this name exists. A key that is null is left out. */
export async function createConfigMap(
  api: Pick<ApiClient, "create">,
  metadata: Omit<ConfigMapMetadata, "resourceVersion">,
  data: Readonly<Record<string, string | null>>,
  options: WriteOptions,
): Promise<ApiResult<ConfigMap>> {
  const present = Object.fromEntries(Object.entries(data).filter(([, text]) => text !== null));
  const body = { apiVersion: "v1", kind: "ConfigMap", metadata, data: present };
  return await api.create(configMapPath(metadata.namespace), body, parseConfigMap, options);
}
