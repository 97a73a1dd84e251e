/** API discovery: which resources a cluster serves now, and which of them have a scale subresource. */
import * as v from "valibot";
import type { ApiClient, CallOptions } from "../../../shared/kube/client/api-client.ts";
import type { ApiFailure } from "../../../shared/kube/client/api-result.ts";
import { checker } from "../../../shared/schema/check.ts";
import { groupVersionPath } from "./protection-source.ts";

interface ServedResource {
  /** The plural, as in paths. */
  readonly resource: string;
  readonly kind: string;
  readonly hasScale: boolean;
  readonly isNamespaced: boolean;
}

export type DiscoveryResult =
  /** Empty `resources` where the group or version is not served. */
  | { readonly kind: "ok"; readonly resources: readonly ServedResource[] }
  | { readonly kind: "failed"; readonly failure: ApiFailure };

const Resource = v.looseObject({ name: v.string(), kind: v.string(), namespaced: v.optional(v.boolean()) });
const parseResourceList = checker(v.looseObject({ resources: v.optional(v.array(Resource), []) }));

/** The resources of one group and version. Nothing is cached. */
export async function discover(
  api: ApiClient,
  group: string,
  version: string,
  options: CallOptions,
): Promise<DiscoveryResult> {
  const result = await api.get(groupVersionPath({ group, version }), parseResourceList, options);
  if (result.kind === "gone" || (result.kind === "unavailable" && result.status === 404)) {
    return { kind: "ok", resources: [] };
  }
  if (result.kind !== "ok") return { kind: "failed", failure: result };
  const all = result.object.resources ?? [];
  const names = new Set(all.map(({ name }) => name));
  const resources = all
    .filter(({ name }) => !name.includes("/"))
    .map(({ name, kind, namespaced }) => ({
      ...{ resource: name, kind, isNamespaced: namespaced !== false },
      hasScale: names.has(`${name}/scale`),
    }));
  return { kind: "ok", resources };
}
