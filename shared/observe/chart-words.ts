/**
 * The words of charts, so that the plugin's dashboard, the report of the demo and Grafana's dashboard
 * (`manifests/monitoring/dashboard.json`) use the same ones.
 */
export const CHART_WORDS = {
  capacity: "Available pods against the promise",
  missing: "Pods missing from promises",
  answers: "Deletions and evictions by answer",
  available: "available",
  promised: "promised",
  reserved: "reserved",
  allowed: "allowed",
  denied: "denied",
  busy: "told to retry in a second",
} as const;
