/** Asks a core about a token of one of its cells. The token alone does not show whether the core's key verifies it. */
import { corePath } from "../../../shared/kube/client/api-path.ts";
import { readAccountToken } from "../../../shared/kube/credentials/account-token.ts";
import { valueAt } from "../../../shared/schema/check.ts";
import { CALL_TIMEOUT_MS, type ClusterClient } from "./cluster.ts";

const OPTIONS = { timeoutMs: CALL_TIMEOUT_MS };

/** Undefined where the cluster gives no answer, or lacks the Secret of the token, which may belong to another core. */
export async function acceptsToken(
  core: ClusterClient,
  namespace: string,
  token: string,
): Promise<boolean | undefined> {
  const bound = readAccountToken(token)?.boundTo;
  if (bound === undefined) return undefined;
  const uidOf = (raw: unknown): unknown => valueAt(raw, "metadata", "uid");
  const found = await core.api.get(corePath("secrets", namespace, bound.name), uidOf, OPTIONS);
  if (found.kind !== "ok" || found.object !== bound.uid) return undefined;
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token } };
  const answer = (raw: unknown): boolean => valueAt(raw, "status", "authenticated") === true;
  const result = await core.api.create("/apis/authentication.k8s.io/v1/tokenreviews", review, answer, OPTIONS);
  return result.kind === "ok" ? result.object : undefined;
}
