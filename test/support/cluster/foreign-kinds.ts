/**
 * Kinds and objects of other projects: cert-manager and the Prometheus operator, whose kinds the manifests' components
 * use, and OpenKruise.
 */
export const FOREIGN_KINDS = [
  ["cert-manager.io", "v1", "Issuer"],
  ["cert-manager.io", "v1", "Certificate"],
  ["monitoring.coreos.com", "v1", "ServiceMonitor"],
  ["monitoring.coreos.com", "v1", "PrometheusRule"],
] as const;

/** A CRD that accepts any content. */
export function foreignCrd(group: string, version: string, kind: string): unknown {
  const singular = kind.toLowerCase();
  const schema = { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${singular}s.${group}` },
    spec: {
      group,
      scope: "Namespaced",
      names: { kind, singular, plural: `${singular}s`, listKind: `${kind}List` },
      versions: [{ name: version, served: true, storage: true, schema }],
    },
  };
}

export const KRUISE_MANAGER = "kruise-controller-manager";
/** The objects of OpenKruise's chart that a step of the migration from PodUnavailableBudget changes. */
export const KRUISE_OBJECTS = [
  { apiVersion: "v1", kind: "Namespace", metadata: { name: "kruise-system" } },
  {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: KRUISE_MANAGER, namespace: "kruise-system" },
    spec: {
      replicas: 0,
      selector: { matchLabels: { "control-plane": "controller-manager" } },
      template: {
        metadata: { labels: { "control-plane": "controller-manager" } },
        spec: {
          containers: [
            { name: "manager", image: "openkruise/kruise-manager:v1.8.0", args: ["--enable-leader-election"] },
          ],
        },
      },
    },
  },
];
