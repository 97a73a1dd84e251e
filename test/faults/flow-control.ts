/** Priority and fairness (API) that leaves some service accounts nothing: each request is answered by 429 and `Retry-After: 1`. */

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
