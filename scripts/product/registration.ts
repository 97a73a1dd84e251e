/** The registration of the webhook in a cell, as in the manifests (design 6), for a webhook that is reached by URL. */

export interface RegistrationOptions {
  readonly cell: string;
  /** `https://HOST:PORT`. */
  readonly url: string;
  readonly caPem: string;
  readonly failurePolicy?: "Fail" | "Ignore";
  readonly timeoutSeconds?: number;
}

/** A ValidatingWebhookConfiguration and a MutatingWebhookConfiguration. */
export function registrations(options: RegistrationOptions): readonly unknown[] {
  const common = {
    admissionReviewVersions: ["v1"],
    sideEffects: "NoneOnDryRun",
    matchPolicy: "Equivalent",
    failurePolicy: options.failurePolicy ?? "Fail",
    timeoutSeconds: options.timeoutSeconds ?? 10,
  };
  const client = (path: string): unknown => ({
    url: `${options.url}/webhook/${options.cell}${path}`,
    caBundle: Buffer.from(options.caPem).toString("base64"),
  });
  const pods = {
    apiGroups: [""],
    apiVersions: ["v1"],
    operations: ["DELETE"],
    resources: ["pods"],
    scope: "Namespaced",
  };
  const evictions = {
    apiGroups: [""],
    apiVersions: ["v1"],
    operations: ["CREATE"],
    resources: ["pods/eviction"],
    scope: "Namespaced",
  };
  const changes = { ...pods, operations: ["UPDATE"], resources: ["pods", "pods/resize"] };
  return [
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: "podseidon" },
      webhooks: [
        { name: "pods.podseidon.kubewharf.io", ...common, clientConfig: client(""), rules: [pods, evictions, changes] },
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
