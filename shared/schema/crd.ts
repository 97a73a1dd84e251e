/**
 * The CustomResourceDefinition of PodProtector, generated from its schema (`podprotector.ts`) and the table of its
 * fields (`crd-fields.ts`). `npm run generate` writes it to `crds/`. The structural schema's only default is for a
 * field that every upstream object has, so that the apiserver returns an upstream object unchanged.
 */
import { GROUP, KIND, PLURAL, VERSION } from "./annotations.ts";
import { CRD_FIELDS, type CrdField } from "./crd-fields.ts";
import { PodProtector } from "./podprotector.ts";
import { type SchemaNode, unpipe } from "./schema-node.ts";

type Json = string | number | boolean | readonly Json[] | { readonly [key: string]: Json | undefined };
type JsonObject = { readonly [key: string]: Json | undefined };

/** Type and format of a field, from its valibot schema. */
function shape(base: SchemaNode, actions: readonly SchemaNode[], path: string): JsonObject {
  if (base.entries !== undefined) return objectShape(base.entries, path);
  if (base.type === "array" && base.item !== undefined)
    return { type: "array", items: openApi(base.item, `${path}[]`) };
  if (base.type === "record" && base.value !== undefined) {
    return { type: "object", additionalProperties: openApi(base.value, `${path}{}`) };
  }
  if (base.type === "number") return integerShape(actions);
  if (base.type !== "string" && base.type !== "boolean") throw new Error(`a CRD has no type for ${base.type}`);
  return { type: base.type };
}

function objectShape(entries: Readonly<Record<string, SchemaNode>>, path: string): JsonObject {
  const required = Object.keys(entries).filter((key) => !["optional", "nullish"].includes(entries[key]?.type ?? ""));
  return {
    type: "object",
    required: required.length > 0 ? required : undefined,
    properties: Object.fromEntries(
      Object.entries(entries).map(([key, node]) => [key, openApi(node, `${path}.${key}`)]),
    ),
  };
}

/** Numbers with an upper bound are int32. A lower bound other than int32's own is 0. */
function integerShape(actions: readonly SchemaNode[]): JsonObject {
  const has = (type: string, requirement?: number): boolean =>
    actions.some((action) => action.type === type && (requirement === undefined || action.requirement === requirement));
  return {
    type: "integer",
    format: has("max_value") ? "int32" : "int64",
    minimum: has("min_value", 0) ? 0 : undefined,
  };
}

function fieldAt(path: string): Partial<CrdField> {
  const field = CRD_FIELDS[path];
  return typeof field === "string" ? { description: field } : (field ?? {});
}

/** A valibot schema as a structural schema. */
function openApi(node: SchemaNode, path: string, nullable?: true): JsonObject {
  const { base, actions } = unpipe(node);
  if (base.wrapped !== undefined) return openApi(base.wrapped, path, base.type === "nullish" ? true : nullable);
  const { description, ...rest } = fieldAt(path);
  return { description, nullable, ...shape(base, actions, path), ...rest };
}

/**
 * A column of `kubectl get`; priority 1 shows it only with `-o wide`. By default, the column of a field has the field's
 * description.
 */
function column(name: string, type: string, path: string, priority?: 1, description = fieldAt(path).description) {
  return { name, type, jsonPath: `.${path}`, description, priority };
}

function condition(type: string, field: string): string {
  return `status.conditions[?(@.type=="${type}")].${field}`;
}

const IMPOSSIBLE = "Whether as many pods are promised as there are, so that none can ever be disrupted.";
const SUSPENDED = "True while every disruption is allowed; empty where it never was.";
const HEALTH = "Whether enough pods are available, and if not, why.";

const COLUMNS: readonly JsonObject[] = [
  column("Required", "integer", "spec.minAvailable", undefined, "Number of pods that are kept available."),
  column("Available", "integer", "status.summary.aggregatedAvailableReplicas"),
  column("Estimated", "integer", "status.summary.estimatedAvailableReplicas"),
  column("Allowed", "integer", "status.summary.disruptionsAllowed"),
  column("Health", "string", condition("Healthy", "reason"), undefined, HEALTH),
  column("Suspended", "string", condition("Suspended", "status"), undefined, SUSPENDED),
  column("Enforcement", "string", "spec.enforcement", 1, "Warn or Off where denials are not enforced."),
  column("Total", "integer", "status.summary.totalReplicas", 1),
  column("Ready", "integer", "status.summary.aggregatedReady", 1),
  column("Bucket lag", "integer", "status.summary.maxLatencyMillis", 1),
  column(
    "Stale",
    "string",
    condition("CellStale", "status"),
    1,
    "Whether some cell contributes nothing, or may be dead.",
  ),
  column("Impossible", "string", condition("DisruptionImpossible", "status"), 1, IMPOSSIBLE),
  column("Age", "date", "metadata.creationTimestamp", undefined, "Time since the creation."),
];

const KIND_PROPERTIES: JsonObject = {
  apiVersion: { type: "string", description: "Version of the schema of this object, podseidon.kubewharf.io/v1alpha1." },
  kind: { type: "string", description: "Kind of this object, PodProtector." },
  metadata: { type: "object" },
};

/** Returns the CustomResourceDefinition as plain data, with keys in a readable order. */
export function podProtectorCrd(): JsonObject {
  const { spec, status } = PodProtector.entries;
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    // With this label, a downgrade can exclude the CRD (docs/operations.md#upgrade).
    metadata: { name: `${PLURAL}.${GROUP}`, labels: { "app.kubernetes.io/component": "crd" } },
    spec: {
      group: GROUP,
      names: {
        ...{ kind: KIND, listKind: `${KIND}List`, plural: PLURAL, singular: KIND.toLowerCase(), shortNames: ["ppr"] },
        categories: ["podseidon"],
      },
      scope: "Namespaced",
      versions: [
        {
          name: VERSION,
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: COLUMNS,
          schema: {
            openAPIV3Schema: {
              type: "object",
              description: "Keeps a number of the selected pods available: admission refuses what would leave fewer.",
              required: ["spec"],
              properties: { ...KIND_PROPERTIES, spec: openApi(spec, "spec"), status: openApi(status, "status") },
            },
          },
        },
      ],
    },
  };
}
