/** The finding of `doctor` about the level of podseidon's own requests in kube-apiserver's priority and fairness. */
import * as v from "valibot";
import type { ClusterClient } from "../invocation/cluster.ts";
import { type Finding, ok, warning } from "./findings.ts";

const API = "/apis/flowcontrol.apiserver.k8s.io/v1";
const CHECK = "flow control";
const NAME = "podseidon";
const OTHERWISE = "many deletions at once take the seats that the webhook's own requests wait for";

const Subject = v.looseObject({ group: v.optional(v.looseObject({ name: v.string() })) });
const FlowSchema = v.looseObject({
  spec: v.looseObject({
    priorityLevelConfiguration: v.looseObject({ name: v.string() }),
    rules: v.optional(v.array(v.looseObject({ subjects: v.array(Subject) })), []),
  }),
});

/** `system` is the namespace of the accounts. */
export async function flowControlFinding(cluster: Pick<ClusterClient, "find">, system: string): Promise<Finding> {
  const wrong = (what: string): Finding =>
    warning(
      CHECK,
      `${what}: ${OTHERWISE}`,
      `apply manifests/base/namespace/flow-control.yaml, with system:serviceaccounts:${system} as its group ` +
        "(docs/install.md#quotas-policies-and-other-webhooks)",
    );
  const schema = v.safeParse(FlowSchema, await cluster.find(`${API}/flowschemas/${NAME}`));
  if (!schema.success) return wrong(`there is no FlowSchema ${NAME}`);
  const { priorityLevelConfiguration: level, rules } = schema.output.spec;
  const accounts = `system:serviceaccounts:${system}`;
  if (!rules.some(({ subjects }) => subjects.some(({ group }) => group?.name === accounts)))
    return wrong(`the FlowSchema ${NAME} is not about the accounts of ${system}`);
  const path = `${API}/prioritylevelconfigurations/${level.name}`;
  if ((await cluster.find(path)) === undefined) return wrong(`there is no PriorityLevelConfiguration ${level.name}`);
  return ok(CHECK, `podseidon's requests have the level ${level.name}`);
}
