/**
 * The webhook configurations of a cell, like in the manifests (docs/design.md#webhook-configuration), for a webhook
 * with a URL.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import { isRecord } from "../../shared/schema/check.ts";
import { root } from "../root.ts";

/** Webhooks whose match conditions select requests; taken from the manifests. */
const SHIPPED = ["nodes", "statuses"].map((name) => `${name}.podseidon.kubewharf.io`);

export interface RegistrationOptions {
  readonly cell: string;
  /** `https://HOST:PORT`. */
  readonly url: string;
  readonly caPem: string;
  readonly timeoutSeconds?: number;
}

const rule = (operation: string, ...resources: readonly string[]): unknown => {
  return { apiGroups: [""], apiVersions: ["v1"], operations: [operation], resources, scope: "Namespaced" };
};

/** The webhook configuration of the counted gate, as in `manifests/components/counted-gate`. */
export function gateRegistration({ cell, url, caPem }: RegistrationOptions): unknown {
  const webhook = (name: string, path: string, operator: "In" | "NotIn", values: readonly string[]): unknown => ({
    name: `${name}.gate.podseidon.kubewharf.io`,
    admissionReviewVersions: ["v1"],
    matchPolicy: "Equivalent",
    sideEffects: "None",
    failurePolicy: "Ignore",
    // A second in the manifests; a busy machine must not fail a test.
    timeoutSeconds: 10,
    clientConfig: { url: `${url}/webhook/${cell}${path}`, caBundle: Buffer.from(caPem).toString("base64") },
    namespaceSelector: { matchExpressions: [{ key: "podseidon.kubewharf.io/counted-gate", operator, values }] },
    rules: [rule("CREATE", "pods")],
  });
  return {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "MutatingWebhookConfiguration",
    metadata: { name: "podseidon-gate" },
    webhooks: [
      webhook("protector", "/gate", "NotIn", ["enabled", "disabled"]),
      webhook("namespace", "/gate/all", "In", ["enabled"]),
    ],
  };
}

function shippedWebhooks(change: Readonly<Record<string, unknown>>): readonly unknown[] {
  const file = readFileSync(join(root, "manifests/base/webhook-configuration/webhook-configuration.yaml"), "utf8");
  const webhooks = loadAll(file).flatMap((one) => (isRecord(one) && Array.isArray(one.webhooks) ? one.webhooks : []));
  return webhooks
    .filter((one) => isRecord(one) && SHIPPED.includes(String(one.name)))
    .map((one) => ({ ...one, ...change }));
}

/** A ValidatingWebhookConfiguration and a MutatingWebhookConfiguration. */
export function registrations(options: RegistrationOptions): readonly unknown[] {
  const common = {
    admissionReviewVersions: ["v1"],
    sideEffects: "NoneOnDryRun",
    matchPolicy: "Equivalent",
    failurePolicy: "Fail",
    timeoutSeconds: options.timeoutSeconds ?? 10,
  };
  const client = (path: string): unknown => ({
    url: `${options.url}/webhook/${options.cell}${path}`,
    caBundle: Buffer.from(options.caPem).toString("base64"),
  });
  const evictions = rule("CREATE", "pods/eviction");
  const rules = [rule("DELETE", "pods"), evictions, rule("UPDATE", "pods", "pods/resize")];
  return [
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: "podseidon" },
      webhooks: [
        { name: "pods.podseidon.kubewharf.io", ...common, clientConfig: client(""), rules },
        ...shippedWebhooks({ ...common, clientConfig: client(""), namespaceSelector: {} }),
      ],
    },
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "MutatingWebhookConfiguration",
      metadata: { name: "podseidon" },
      webhooks: [
        { name: "bind.podseidon.kubewharf.io", ...common, clientConfig: client("/mutate"), rules: [evictions] },
      ],
    },
  ];
}
