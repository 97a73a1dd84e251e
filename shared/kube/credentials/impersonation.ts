/**
 * Impersonation by a kubeconfig, like in client-go: `as`, `as-uid`, `as-groups` and `as-user-extra` of the user become
 * headers of each request. Loaded only for a kubeconfig that impersonates.
 */
import * as v from "valibot";
import { AccessError, type CredentialSource } from "./cluster-access.ts";
import type { SelectedContext } from "./kubeconfig-file.ts";

/** The characters of a header's value that an apiserver accepts. */
const value = v.pipe(v.string(), v.regex(/^[\x20-\x7e]+$/));
const Impersonation = v.looseObject({
  as: v.nullish(value),
  "as-uid": v.nullish(value),
  "as-groups": v.nullish(v.array(value)),
  "as-user-extra": v.nullish(v.record(v.string(), v.array(value))),
});

/** The credentials of `source` with the headers of the impersonated user. Throws {@link AccessError}. */
export function impersonated(
  source: CredentialSource,
  path: string,
  { user, name }: Pick<SelectedContext, "user" | "name">,
): CredentialSource {
  const parsed = v.safeParse(Impersonation, user);
  if (!parsed.success) {
    const fields = Object.keys(v.flatten(parsed.issues).nested ?? {}).join(", ");
    throw new AccessError(
      "malformed",
      `${path}: context "${name}" impersonates by values that are no text (${fields})`,
    );
  }
  const { as, "as-uid": uid, "as-groups": groups, "as-user-extra": extra } = parsed.output;
  if (!as) {
    const message = `${path}: context "${name}" names groups, a UID or extra fields to impersonate, but no user`;
    throw new AccessError("malformed", `${message}; add as: USERNAME`);
  }
  const impersonation: Record<string, string | readonly string[]> = { "Impersonate-User": as };
  if (uid) impersonation["Impersonate-Uid"] = uid;
  if (groups?.length) impersonation["Impersonate-Group"] = groups;
  for (const [key, values] of Object.entries(extra ?? {})) {
    impersonation[`Impersonate-Extra-${encodeURIComponent(key.toLowerCase())}`] = values;
  }
  return {
    current: async (nowMs) => ({ ...(await source.current(nowMs)), impersonation }),
    rejected: (used) => source.rejected(used),
  };
}
