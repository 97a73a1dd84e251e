/**
 * Priority and fairness that allows some service accounts nothing: each request gets a 429 with `Retry-After: 1`. A
 * priority level without seats still serves one request at a time, so {@link holdSeat} keeps one in progress.
 */
import { request } from "node:https";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";

const API = "flowcontrol.apiserver.k8s.io/v1";
const NAME = "nothing";

/** Deleting this object ends the throttling. */
export const REFUSAL = `/apis/${API}/flowschemas/${NAME}`;

/** The manifests. The name `*` means all accounts of the namespace. */
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

/** The account of {@link holdSeat}. The throttled accounts have to include it. */
const HOLDER = { namespace: "default", name: "seat-holder" };
/** Every account may send this request, so the server reads its body, which never ends. */
const PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/**
 * Keeps a request without an end in progress at `url`, and sends it again when the server gives up, until it is
 * disposed of. `begun` resolves when the first one is in progress.
 */
export async function holdSeat(
  cluster: Cluster,
  url = cluster.url,
): Promise<Disposable & { readonly begun: Promise<void> }> {
  await cluster.apply([{ apiVersion: "v1", kind: "ServiceAccount", metadata: HOLDER }]);
  const token = await cluster.serviceAccountToken(HOLDER.namespace, HOLDER.name);
  const headers = {
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
    "content-length": "100",
    // The server says so when it begins to read the body.
    expect: "100-continue",
  };
  const begun = Promise.withResolvers<void>();
  const ending = new AbortController();
  const hold = (): void => {
    if (ending.signal.aborted) return;
    const ca = cluster.identity.certificateAuthorityPem;
    const sent = request(new URL(PATH, url), { method: "POST", headers, ca, agent: false, signal: ending.signal });
    // Both events occur when the server responds or closes the connection; "close" is the last one.
    sent.on("response", (response) => {
      response.resume();
      sent.destroy();
    });
    sent.on("continue", begun.resolve);
    sent.on("error", () => {});
    sent.on("close", () => setImmediate(hold));
    sent.write("{");
  };
  hold();
  return { [Symbol.dispose]: () => ending.abort(), begun: begun.promise };
}
