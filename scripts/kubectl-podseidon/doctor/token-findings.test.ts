import { expect, test } from "vitest";
import { extensionsOf } from "../../../shared/kube/credentials/account-token.ts";
import { tokenFinding } from "./token-findings.ts";

const HOUR_MS = 3_600_000;
const NOW_MS = 1_000_000 * HOUR_MS;
const extensions = extensionsOf({ cell: "worker-2", namespace: "podseidon-system", secret: "podseidon-core-webhook" });

/** A kubeconfig whose token has ten hours, of which these are left. */
function kubeconfig(hoursLeft: number, more: object = { extensions }): string {
  const exp = (NOW_MS + hoursLeft * HOUR_MS) / 1000;
  const owner = { namespace: "podseidon-system", serviceaccount: { name: "podseidon-webhook.worker-2", uid: "u" } };
  const claims = { iat: exp - 36_000, exp, "kubernetes.io": owner };
  const token = `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.s3cr3t`;
  return JSON.stringify({
    "current-context": "core",
    contexts: [{ name: "core", context: { cluster: "core", user: "u" } }],
    clusters: [{ name: "core", cluster: { server: "https://core:6443" } }],
    users: [{ name: "u", user: { token, ...more } }],
  });
}

test.each<[string, string, string, RegExp, RegExp]>([
  ["that renews itself", kubeconfig(5), "ok", /of podseidon-webhook.worker-2 expires in 5h, and renews itself/, /^$/],
  ["that nobody renewed", kubeconfig(0.9), "warning", /expires in 54m/, /join worker-2 issues another/],
  ["that has expired", kubeconfig(-1), "problem", /expired 60m ago/, /join worker-2/],
  ["of a kubeconfig made by hand", kubeconfig(5, {}), "ok", /podseidon does not renew it/, /^$/],
  ["that is no JWT", kubeconfig(5, { token: "abc" }), "ok", /no token with a time of expiry/, /^$/],
  ["of no kubeconfig", "a: [s3cr3t", "problem", /not YAML/, /join/],
])("a token %s", async (_, text, level, found, advice) => {
  const finding = await tokenFinding("podseidon-core-webhook", text, NOW_MS, async () => undefined);
  expect(finding).toMatchObject({ level, found: expect.stringMatching(found), advice: expect.stringMatching(advice) });
  expect(JSON.stringify(finding)).not.toContain("s3cr3t");
});

test.each([
  [true, "ok"],
  [false, "problem"],
])("a token of which the core says %s, whatever it says itself", async (isAccepted, level) => {
  const asked: string[] = [];
  const accepts = async (token: string): Promise<boolean> => asked.push(token) > 0 && isAccepted;
  expect(await tokenFinding("podseidon-core-webhook", kubeconfig(5), NOW_MS, accepts)).toMatchObject({ level });
  expect(asked).toEqual([expect.stringMatching(/^e30\./)]);
});
