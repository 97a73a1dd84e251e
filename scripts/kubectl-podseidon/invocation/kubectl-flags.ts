/**
 * The flags of kubectl that change what a kubeconfig says, with the meaning that they have there (`ConfigFlags` of
 * k8s.io/cli-runtime). Those for servers and credentials without a kubeconfig are left out: the plugin talks to several
 * clusters.
 */
import * as v from "valibot";
import { CommandError } from "./errors.ts";
import type { Flag, GivenFlags } from "./flag.ts";
import { parseDuration } from "./output.ts";

export const KUBECTL_FLAGS = {
  cluster: { type: "string", value: "NAME", help: "The kubeconfig's cluster, in place of that of --context." },
  user: { type: "string", value: "NAME", help: "The kubeconfig's user, in place of that of --context." },
  as: { type: "string", value: "USERNAME", help: "The user to impersonate, in every cluster that is asked." },
  "as-uid": { type: "string", value: "UID", help: "The UID to impersonate." },
  "as-group": { type: "string", multiple: true, value: "GROUP", help: "A group to impersonate; can be repeated." },
  "request-timeout": {
    type: "string",
    value: "TIME",
    help: "How long one request may take, as 90s or 2m. Default: 35s.",
  },
} as const satisfies Record<string, Flag>;

/** Flags of kubectl that are for one cluster, or for kubectl alone. */
const SINGLE = ["server", "token", "certificate-authority", "client-certificate", "client-key", "tls-server-name"];
export const FOREIGN_FLAGS: Readonly<Record<string, Pick<Flag, "type">>> = {
  ...Object.fromEntries([...SINGLE, "username", "password"].map((name) => [name, { type: "string" }])),
  "insecure-skip-tls-verify": { type: "boolean" },
};

/** What to do in place of a flag of kubectl that the plugin lacks; empty for any other error of the command line. */
export function foreignFlagAdvice(error: string): string {
  const [, name = ""] = /^Unknown option '--([\w-]+)/.exec(error) ?? [];
  if (!Object.hasOwn(FOREIGN_FLAGS, name)) return "";
  return ": a command may ask several clusters, so write it into a kubeconfig (kubectl config), and name its --context";
}

/** For printed commands. */
export const IMPERSONATION_FLAGS = ["as", "as-uid", "as-group"] as const;
export const PLACE_FLAGS = ["cluster", "user"] as const;

export interface KubectlOverrides {
  /** As the fields of a kubeconfig's user. Replaces an impersonation by the kubeconfig. */
  readonly as: Readonly<Record<string, unknown>> | undefined;
  readonly place: { readonly cluster: string | undefined; readonly user: string | undefined };
  readonly timeoutMs: number | undefined;
}

/** `isPlace`: for the context of the cluster that has the pods. A core of another context has a user of its own. */
export function overridesOf(context: GivenFlags, isPlace: boolean): KubectlOverrides {
  const [as, uid, groups] = [context.text("as"), context.text("as-uid"), context.texts("as-group")];
  if (as === undefined && (uid !== undefined || groups.length > 0))
    throw new CommandError("--as-uid and --as-group need --as: a user to impersonate");
  return {
    as: as === undefined ? undefined : { as, "as-uid": uid, "as-groups": groups },
    place: isPlace
      ? { cluster: context.text("cluster"), user: context.text("user") }
      : { cluster: undefined, user: undefined },
    timeoutMs: timeoutOf(context.text("request-timeout")),
  };
}

const DAY_MS = 86_400_000;

/** Like kubectl: a number is in seconds, and 0 is as without the flag. */
function timeoutOf(text: string | undefined): number | undefined {
  if (text === undefined || /^0[smhd]?$/.test(text)) return undefined;
  const ms = parseDuration(/^\d+$/.test(text) ? `${text}s` : text);
  if (ms === undefined) throw new CommandError(`--request-timeout ${text}: write it as 90s or 2m`);
  return Math.min(ms, DAY_MS);
}

const Contexts = v.looseObject({
  contexts: v.array(v.looseObject({ name: v.string(), context: v.optional(v.looseObject({}), {}) })),
});

/** The kubeconfig with this cluster and user in the context of this name. */
export function withPlace(text: string, name: string, { cluster, user }: KubectlOverrides["place"]): string {
  if (cluster === undefined && user === undefined) return text;
  const given = { ...(cluster === undefined ? {} : { cluster }), ...(user === undefined ? {} : { user }) };
  const config = v.parse(Contexts, JSON.parse(text));
  const contexts = config.contexts.map((one) =>
    one.name === name ? { ...one, context: { ...one.context, ...given } } : one,
  );
  return JSON.stringify({ ...config, contexts });
}
