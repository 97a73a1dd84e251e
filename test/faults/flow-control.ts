/**
 * Priority and fairness (API) that leaves some service accounts nothing: each request is answered by 429 and
 * `Retry-After: 1`. A level of no seats still serves one request at a time, when no other is under way; {@link
 * holdSeat} is that other one.
 */
import { request } from "node:https";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";

const API = "flowcontrol.apiserver.k8s.io/v1";
const NAME = "nothing";

/** What ends it, when it is deleted. */
export const REFUSAL = `/apis/${API}/flowschemas/${NAME}`;

/** The manifests; `*` as the name is all accounts of the namespace. */
export function refuseAccounts(accounts: readonly { readonly name: string; readonly namespace: string }[]): unknown[] {
  const limited = {
    nominalConcurrencyShares: 0,
    lendablePercent: 0,
    borrowingLimitPercent: 0,
    limitResponse: { type: "Reject" },
  };
  const everything = { apiGroups: ["*"], resources: ["*"], verbs: ["*"], namespaces: ["*"], clusterScope: true };
  return [
    {
      apiVersion: API,
      kind: "PriorityLevelConfiguration",
      metadata: { name: NAME },
      spec: { type: "Limited", limited },
    },
    {
      apiVersion: API,
      kind: "FlowSchema",
      metadata: { name: NAME },
      spec: {
        matchingPrecedence: 2,
        priorityLevelConfiguration: { name: NAME },
        rules: [
          {
            subjects: accounts.map((serviceAccount) => ({ kind: "ServiceAccount", serviceAccount })),
            resourceRules: [everything],
          },
        ],
      },
    },
  ];
}

/** Whom {@link holdSeat} is for the server; the accounts that are refused have to include it. */
const HOLDER = { namespace: "default", name: "seat-holder" };
/** Everybody may ask it, so that the request is on its way to being read when it stops. */
const PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/**
 * Keeps a request under way whose body never ends, again whenever the server gives up on it, until it is disposed of.
 */
export async function holdSeat(cluster: Cluster): Promise<Disposable> {
  await cluster.apply([{ apiVersion: "v1", kind: "ServiceAccount", metadata: HOLDER }]);
  const token = await cluster.serviceAccountToken(HOLDER.namespace, HOLDER.name);
  const headers = {
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
    "content-length": "100",
  };
  const ending = new AbortController();
  const hold = (): void => {
    if (ending.signal.aborted) return;
    const ca = cluster.identity.certificateAuthorityPem;
    const sent = request(new URL(PATH, cluster.url), {
      method: "POST",
      headers,
      ca,
      agent: false,
      signal: ending.signal,
    });
    // Both come where the server answers and where it goes away; the close comes last.
    sent.on("response", (response) => {
      response.resume();
      sent.destroy();
    });
    sent.on("error", () => {});
    sent.on("close", () => setImmediate(hold));
    sent.write("{");
  };
  hold();
  return { [Symbol.dispose]: () => ending.abort() };
}
