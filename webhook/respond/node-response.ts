/** The response to the deletion of a node (docs/design.md#node-deletion): which protectors deny, and for which pods. */
import { namespacedName } from "../../shared/schema/podprotector.ts";
import type { DeniedPods, JointVerdict } from "../reserve/decide-all.ts";
import { idOf, isBusy } from "../reserve/verdict.ts";
import type { AdmissionResponse, DenyStatus } from "./admission-response.ts";
import type { DenialContext } from "./denial-outlook.ts";
import { adviceOn, denied, explain, MAX_LISTED, MAX_NAMED, named, nameOf, RETRY_AFTER_SECONDS } from "./deny-status.ts";
import { told } from "./not-enforced.ts";
import { failed, suspensionWarning } from "./responses.ts";

export function responseToNode(node: string, verdict: JointVerdict, context: DenialContext): AdmissionResponse {
  switch (verdict.kind) {
    case "allowed":
      return allowed(node, verdict, context);
    case "denied": {
      const denials = verdict.denied.map(({ denial }) => denial);
      return denied(denyStatusOf(node, verdict.denied, context), denials, verdict.rollBack);
    }
    case "failed":
      return failed(verdict.tag, verdict.message);
    case "abandoned":
      return { ...failed("deadline", "the caller disconnected"), outcome: "abandoned" };
  }
}

function allowed(
  node: string,
  { decisions: all, unenforced }: Extract<JointVerdict, { kind: "allowed" }>,
  context: DenialContext,
): AdmissionResponse {
  const decisions = [...new Map(all.map((one) => [idOf(one.protector), one])).values()];
  if (decisions.length === 0) return { outcome: "unprotected" };
  const reasons = all.map((one) => `${idOf(one.protector)}=${one.decision.decision.reason}`);
  const decision = [...new Set(reasons)].slice(0, MAX_LISTED).join(",");
  const suspended = decisions.filter((one) => one.decision.decision.reason === "Suspended").slice(0, MAX_LISTED);
  const warnings = suspended.map((one) => suspensionWarning(one, `the pods of node ${node}`));
  const names = suspended.map(({ protector }) => namespacedName(protector)).join(",");
  const response: AdmissionResponse = {
    ...{ outcome: "allowed", decisions },
    auditAnnotations: { decision, ...(warnings.length > 0 && { suspended: names }) },
    ...(warnings.length > 0 && { warnings }),
  };
  if (unenforced === undefined) return response;
  const denials = unenforced.slice(0, MAX_LISTED).map(({ denial }) => denial);
  return told(response, denials, denyStatusOf(node, unenforced, context).message);
}

/** The pods of the node are not known, so the webhook can't tell which pods its deletion would end. */
export function responseToUnknownPods(node: string, why: string): AdmissionResponse {
  const message =
    `node ${node} may not be deleted now: its pods can't be listed, so ` +
    `it is not known which of them are protected: ${why}`;
  const denial: DenyStatus = {
    code: 503,
    reason: "ServiceUnavailable",
    message,
    details: { name: node, kind: "nodes", causes: [{ reason: "PodsUnknown", message: why }] },
  };
  return { outcome: "denied", denial, message };
}

function denyStatusOf(node: string, denied: readonly DeniedPods[], context: DenialContext): DenyStatus {
  const denials = denied.map(({ denial }) => denial);
  const causes = denied.slice(0, MAX_LISTED).map(({ denial, pods }) => {
    const names = pods.map(({ namespace, name }) => `${namespace}/${name}`);
    const { namespace, name } = denial.protector;
    return {
      reason: "DisruptionBudget",
      message: `${nameOf(denial.protector, context)} ${explain(denial, context)} (on this node: ${named(names)})`,
      field: `podprotectors.podseidon.kubewharf.io/${namespace}/${name}`,
    };
  });
  const reasons = causes.slice(0, MAX_NAMED).map(({ message }) => message);
  if (denied.length > MAX_NAMED) reasons.push(`${denied.length - MAX_NAMED} more protectors deny as well`);
  const isPassing = denials.every(isBusy);
  // A drain leaves the pods of DaemonSets, which stay Ready until some 50 s after the kubelet has stopped.
  const drained = "drain the node first (and stop its kubelet, where pods of DaemonSets are left)";
  const advice = isPassing ? adviceOn(denials, context) : `${drained}, or ${adviceOn(denials, context)}`;
  return {
    code: 429,
    reason: "TooManyRequests",
    message: `node ${node} may not be deleted now, because its pods go with it: ${reasons.join("; ")}; ${advice}`,
    details: {
      ...{ name: node, kind: "nodes", causes },
      ...(isPassing ? { retryAfterSeconds: RETRY_AFTER_SECONDS } : {}),
    },
  };
}
