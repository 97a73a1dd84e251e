/** The findings of `doctor` about the tokens that a worker cluster uses in its core. */
import { homeOf, readAccountToken } from "../../../shared/kube/credentials/account-token.ts";
import { parseKubeconfig } from "../../../shared/kube/credentials/kubeconfig-file.ts";
import { messageOf } from "../../../shared/runtime/errors.ts";
import { age } from "../invocation/output.ts";
import { type Finding, ok, ownCertificateFinding, problem, warning } from "./findings.ts";

const CHECK = "core token";
/** The Secrets of `join`, and the one that webhook and aggregator share. */
export const KUBECONFIG_SECRETS = ["podseidon-core-webhook", "podseidon-core-aggregator", "podseidon-core"];
/**
 * The share of a token's life below which the finding warns, as in the alert PodseidonCoreTokenExpiring: a component
 * renews its token long before.
 */
const SHARE_LEFT = 0.1;

/**
 * The finding about the kubeconfig in this Secret. `accepts` asks the core about a token; undefined for an unknown
 * result. `cell` is the cluster's, where its webhook configuration says it.
 */
export async function tokenFinding(
  secret: string,
  text: string,
  nowMs: number,
  accepts: (token: string) => Promise<boolean | undefined>,
  cell = "CELL",
): Promise<Finding> {
  let user: Awaited<ReturnType<typeof parseKubeconfig>>["user"];
  try {
    ({ user } = await parseKubeconfig(secret, undefined, text));
  } catch (error) {
    return problem(CHECK, messageOf(error), `make it by kubectl podseidon join ${cell}`);
  }
  const token = readAccountToken(user.token ?? "");
  const certificate = user["client-certificate-data"];
  if (certificate && !user.token)
    return ownCertificateFinding(CHECK, Buffer.from(certificate, "base64").toString("utf8"), nowMs);
  if (token === undefined)
    return ok(CHECK, `${secret} has no token with a time of expiry: podseidon does not renew it`);
  const home = homeOf(user);
  const advice =
    home === undefined
      ? `renew the Secret, or let the cluster join: kubectl podseidon join ${cell}`
      : `kubectl podseidon join ${home.cell} issues another one; see docs/runbooks/PodseidonCoreTokenExpiring.md`;
  const who = token.account?.name ?? secret;
  const leftMs = token.expiresMs - nowMs;
  if (leftMs <= 0) return problem(CHECK, `of ${who} expired ${age(-leftMs)} ago`, advice);
  if ((await accepts(user.token ?? "")) === false)
    return problem(CHECK, `the core rejects that of ${who}: its service-account key may be another one`, advice);
  const found = `of ${who} expires in ${age(leftMs)}`;
  if (leftMs < SHARE_LEFT * (token.expiresMs - token.issuedMs)) return warning(CHECK, found, advice);
  return ok(CHECK, home === undefined ? `${found}, and podseidon does not renew it` : `${found}, and renews itself`);
}
