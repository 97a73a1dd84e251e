/** The API calls that several steps have in common. */
import { type ApiClient, about, type CallOptions } from "../../../shared/kube/client/api-client.ts";
import { podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { GENERATOR_FINALIZER, GROUP, KIND, VERSION } from "../../../shared/schema/annotations.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";

export interface ApiCalls<Method extends keyof ApiClient> extends CallOptions {
  readonly api: Pick<ApiClient, Method>;
}

/** Replaces the stored protector. The result is `conflict` if the protector has changed since it was read. */
export async function updateProtector(
  calls: ApiCalls<"update">,
  protector: PodProtector,
): Promise<ApiResult<PodProtector>> {
  const { namespace = "", name } = protector.metadata;
  const body = { ...protector, apiVersion: `${GROUP}/${VERSION}`, kind: KIND };
  const parse = about(namespace, name, parsePodProtector);
  return await calls.api.update(podProtectorPath(namespace, name), body, parse, calls);
}

export function withoutFinalizer(protector: PodProtector): PodProtector {
  const { metadata } = protector;
  const finalizers = (metadata.finalizers ?? []).filter((finalizer) => finalizer !== GENERATOR_FINALIZER);
  return { ...protector, metadata: { ...metadata, finalizers } };
}
