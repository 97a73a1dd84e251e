/** Writes the repair of a protector by a patch that does not conflict with writes of the status. */
import { isDeepStrictEqual } from "node:util";
import { about } from "../../../shared/kube/client/api-client.ts";
import { podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { type ObjectMeta, type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { type ApiCalls, updateProtector } from "./calls.ts";

interface PatchOperation {
  readonly op: "test" | "add" | "replace" | "remove";
  readonly path: string;
  readonly value?: unknown;
}

/** The complete message of kube-apiserver when a `test` fails, or when the path of another operation does not exist. */
const FAILED_TEST = "the server rejected our request due to an error in our request";
const UNPROCESSABLE = 422;

/**
 * Writes `wanted` in place of `present`. Webhooks and aggregators write the status all the time, so the precondition is
 * the generation instead of the version. The result is `conflict` if the spec has changed.
 */
export async function repairProtector(
  calls: ApiCalls<"update" | "patch">,
  present: PodProtector,
  wanted: PodProtector,
): Promise<ApiResult<PodProtector>> {
  const patch = repairPatch(present, wanted);
  if (patch === undefined) return await updateProtector(calls, wanted);
  const { namespace = "", name } = present.metadata;
  const path = podProtectorPath(namespace, name);
  const parse = about(namespace, name, parsePodProtector);
  const result = await calls.api.patch(path, "application/json-patch+json", patch, parse, calls);
  const isConflict =
    result.kind === "rejected" && result.status === UNPROCESSABLE && result.message.includes(FAILED_TEST);
  return isConflict ? { kind: "conflict", message: "its spec has changed" } : result;
}

/**
 * Undefined where the exact version has to be the precondition, because the patch would replace lists in the metadata.
 */
function repairPatch(present: PodProtector, wanted: PodProtector): PatchOperation[] | undefined {
  const [before, after] = [present.metadata, wanted.metadata];
  const { uid, generation, labels, annotations } = before;
  const lists = ({ finalizers, ownerReferences }: ObjectMeta): unknown => [finalizers, ownerReferences];
  if (generation === undefined || labels === undefined || annotations === undefined) return undefined;
  if (!isDeepStrictEqual(lists(before), lists(after))) return undefined;
  return [
    { op: "test", path: "/metadata/uid", value: uid },
    { op: "test", path: "/metadata/generation", value: generation },
    ...mapOperations("/metadata/labels", labels, after.labels ?? {}),
    ...mapOperations("/metadata/annotations", annotations, after.annotations ?? {}),
    ...(isDeepStrictEqual(present.spec, wanted.spec)
      ? []
      : [{ op: "replace", path: "/spec", value: wanted.spec } as const]),
  ];
}

type Texts = Readonly<Record<string, string>>;

function mapOperations(path: string, before: Texts, after: Texts): PatchOperation[] {
  const keyPath = (key: string): string => `${path}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`;
  const removed = Object.keys(before).filter((key) => !(key in after));
  const changed = Object.entries(after).filter(([key, text]) => before[key] !== text);
  return [
    ...removed.map((key) => ({ op: "remove", path: keyPath(key) }) as const),
    ...changed.map(([key, value]) => ({ op: "add", path: keyPath(key), value }) as const),
  ];
}
