/**
 * The CustomResourceDefinition of PodProtector, made from its valibot schema (design 4). `npm run generate` writes it to `crds/`.
 * A structural schema without defaults, so that an object of upstream comes back as it was.
 */
import { GROUP, KIND, PLURAL, VERSION } from "./annotations.ts";
import { PodProtector } from "./podprotector.ts";
import { type ApiHints, type SchemaNode, unpipe } from "./schema-node.ts";

type Json = string | number | boolean | readonly Json[] | { readonly [key: string]: Json | undefined };
type JsonObject = { readonly [key: string]: Json | undefined };

const TYPES: Readonly<Record<string, string>> = { string: "string", boolean: "boolean", number: "integer" };

function hintsOf(actions: readonly SchemaNode[]): ApiHints {
  return Object.assign({}, ...actions.map(({ metadata }) => metadata ?? {}));
}

function bounds(hints: ApiHints): JsonObject {
  const { format, pattern, minLength, maxLength, minItems, maxItems, minimum } = hints;
  return { format, enum: hints.enum, pattern, minLength, maxLength, minItems, maxItems, minimum };
}

function extensions({ listType, listMapKeys, mapType, rules }: ApiHints): JsonObject {
  return {
    "x-kubernetes-list-type": listType,
    "x-kubernetes-list-map-keys": listMapKeys,
    "x-kubernetes-map-type": mapType,
    "x-kubernetes-validations": rules?.map(({ rule, message, fieldPath }) => ({ rule, message, fieldPath })),
  };
}

function shape(base: SchemaNode): JsonObject {
  if (base.entries !== undefined) return objectShape(base.entries);
  if (base.type === "array" && base.item !== undefined) return { type: "array", items: openApi(base.item) };
  if (base.type === "record" && base.value !== undefined) {
    return { type: "object", additionalProperties: openApi(base.value) };
  }
  const type = TYPES[base.type];
  if (type === undefined) throw new Error(`schema type ${base.type} has no counterpart in a CRD`);
  return { type };
}

function objectShape(entries: Readonly<Record<string, SchemaNode>>): JsonObject {
  const required = Object.keys(entries).filter((key) => entries[key]?.type !== "optional");
  return {
    type: "object",
    required: required.length > 0 ? required : undefined,
    properties: Object.fromEntries(Object.entries(entries).map(([key, node]) => [key, openApi(node)])),
  };
}

/** A valibot schema as a structural schema. */
function openApi(node: SchemaNode, outer: ApiHints = {}, nullable?: true): JsonObject {
  const { base, actions } = unpipe(node);
  const hints = { ...hintsOf(actions), ...outer };
  if (base.wrapped !== undefined) return openApi(base.wrapped, hints, base.type === "nullable" ? true : nullable);
  return { description: hints.description, nullable, ...shape(base), ...bounds(hints), ...extensions(hints) };
}

interface Column {
  readonly name: string;
  readonly type: "string" | "integer" | "date";
  readonly jsonPath: string;
  readonly description: string;
  /** 1: only with `-o wide`. */
  readonly priority?: 1;
}

const COLUMNS: readonly Column[] = [
  {
    name: "Required",
    type: "integer",
    jsonPath: ".spec.minAvailable",
    description: "Number of pods that are kept available.",
  },
  {
    name: "Available",
    type: "integer",
    jsonPath: ".status.summary.aggregatedAvailableReplicas",
    description: "Number of pods that are available, as counted.",
  },
  {
    name: "Estimated",
    type: "integer",
    jsonPath: ".status.summary.estimatedAvailableReplicas",
    description: "Number of available pods after what has been admitted since they were counted.",
  },
  {
    name: "Allowed",
    type: "integer",
    jsonPath: ".status.summary.disruptionsAllowed",
    description: "Number of available pods that may be disrupted now.",
  },
  {
    name: "Health",
    type: "string",
    jsonPath: '.status.conditions[?(@.type=="Healthy")].reason',
    description: "Whether enough pods are available, and if not, why.",
  },
  {
    name: "Total",
    type: "integer",
    jsonPath: ".status.summary.totalReplicas",
    description: "Number of pods that are neither terminating nor finished.",
    priority: 1,
  },
  {
    name: "Ready",
    type: "integer",
    jsonPath: ".status.summary.aggregatedReady",
    description: "Number of pods that are ready.",
    priority: 1,
  },
  {
    name: "Bucket lag",
    type: "integer",
    jsonPath: ".status.summary.maxLatencyMillis",
    description: "Milliseconds since the last pod event of the slowest cell that has outstanding admissions.",
    priority: 1,
  },
  {
    name: "Stale",
    type: "string",
    jsonPath: '.status.conditions[?(@.type=="CellStale")].status',
    description: "Whether some cell contributes nothing, or may be dead.",
    priority: 1,
  },
  {
    name: "Impossible",
    type: "string",
    jsonPath: '.status.conditions[?(@.type=="DisruptionImpossible")].status',
    description: "Whether as many pods are promised as there are, so that none can ever be disrupted.",
    priority: 1,
  },
  { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp", description: "Time since the creation." },
];

const KIND_PROPERTIES: JsonObject = {
  apiVersion: {
    type: "string",
    description: "Version of the schema of this object, podseidon.kubewharf.io/v1alpha1.",
  },
  kind: { type: "string", description: "Kind of this object, PodProtector." },
  metadata: { type: "object" },
};

/** Returns the CustomResourceDefinition as plain data, keys in the order in which they are to be read. */
export function podProtectorCrd(): JsonObject {
  const { spec, status } = PodProtector.entries;
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${PLURAL}.${GROUP}` },
    spec: {
      group: GROUP,
      names: { kind: KIND, listKind: `${KIND}List`, plural: PLURAL, singular: KIND.toLowerCase(), shortNames: ["ppr"] },
      scope: "Namespaced",
      versions: [
        {
          name: VERSION,
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: COLUMNS.map((column) => ({ ...column })),
          schema: {
            openAPIV3Schema: {
              type: "object",
              description: "Keeps a number of the selected pods available: admission refuses what would leave fewer.",
              required: ["spec"],
              properties: { ...KIND_PROPERTIES, spec: openApi(spec), status: openApi(status) },
            },
          },
        },
      ],
    },
  };
}
