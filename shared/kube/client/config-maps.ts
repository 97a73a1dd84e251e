import * as v from "valibot";
import { checker } from "../../schema/check.ts";
import { ConfigMap, configMapPath } from "../../schema/config-map.ts";
import { collectionPath } from "../stream/collection.ts";
import type { ApiClient, CallOptions } from "./api-client.ts";
import type { ApiFailure } from "./api-result.ts";

const Page = checker(
  v.looseObject({ metadata: v.looseObject({ continue: v.optional(v.string()) }), items: v.array(ConfigMap) }),
);
/** ConfigMaps of one page: they may be large. */
const PAGE_SIZE = 10;
/** No selector of this project selects more. */
const MAX_PAGES = 100;

/** All ConfigMaps of a namespace with these labels, by quorum reads. */
export async function listConfigMaps(
  api: Pick<ApiClient, "get">,
  namespace: string,
  labelSelector: string,
  options: CallOptions,
): Promise<{ readonly kind: "ok"; readonly object: readonly ConfigMap[] } | ApiFailure> {
  const found: ConfigMap[] = [];
  let token: string | undefined;
  for (let page = 0; page < MAX_PAGES; page++) {
    const query = { labelSelector, limit: PAGE_SIZE, continue: token };
    const result = await api.get(collectionPath({ path: configMapPath(namespace), query: {} }, query), Page, options);
    if (result.kind !== "ok") return result;
    found.push(...result.object.items);
    token = result.object.metadata.continue;
    if (token === undefined || token === "") break;
  }
  return { kind: "ok", object: found };
}
