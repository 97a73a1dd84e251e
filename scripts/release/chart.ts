/**
 * The Helm chart, generated from the kustomize overlays: each object once, with the list of the overlays that contain
 * exactly this object. So the chart renders the same as `kubectl kustomize`, without a second description of the
 * project.
 */
import { dump, loadAll } from "js-yaml";
import * as v from "valibot";
import type { ArchivedFile } from "./archive.ts";

const STEPS = ["ignore", "dry-run", "enforced-namespaces", "fail"] as const;
/** Each with its overlay of a step. */
const MODES = [
  ["core", "core"],
  ["single-cluster", "single-cluster"],
  ["cell", "worker"],
] as const;

export interface ChartVariant {
  /** The name in the template: `MODE/STEP`. */
  readonly name: string;
  readonly overlay: string;
  readonly mode: (typeof MODES)[number][0];
  readonly step: (typeof STEPS)[number];
}

export const VARIANTS: readonly ChartVariant[] = STEPS.flatMap((step, index) =>
  MODES.map(([mode, overlay]) => {
    return { name: `${mode}/${step}`, overlay: `overlays/rollout/${index + 1}-${step}/${overlay}`, mode, step };
  }),
);

/** Placeholder in rendered objects that a value of the chart replaces. Valid as a cell's id and in a path. */
export const CHART_CELL = "podseidon-chart-cell-id";
/** The id of the overlay `single-cluster`. */
const SINGLE_CLUSTER_ID = "default";
const SYSTEM = "podseidon-system";
const IMAGE_LINE = /^(\s*(?:- )?image:) podseidon$/gm;
/** An object with this annotation stays when the chart is uninstalled. */
export const KEEP = "helm.sh/resource-policy";
const Manifest = v.looseObject({ kind: v.string(), metadata: v.optional(v.looseObject({}), {}) });

export interface ChartOptions {
  readonly version: string;
  readonly image: { readonly name: string; readonly digest: string };
  /** The objects of a variant, whose cell is {@link CHART_CELL}, as YAML. */
  readonly render: (variant: ChartVariant) => string;
}

/** The files of the chart's archive. */
export function chartFiles({ version, image, render }: ChartOptions): readonly ArchivedFile[] {
  const variantsOf = new Map<string, string[]>();
  for (const variant of VARIANTS) {
    for (const object of loadAll(render(variant))) {
      const text = dump(kept(v.parse(Manifest, object)), { lineWidth: -1, noRefs: true });
      variantsOf.set(text, [...(variantsOf.get(text) ?? []), variant.name]);
    }
  }
  const objects = [...variantsOf].map(([text, names]) => {
    const list = names.map((name) => JSON.stringify(name)).join(" ");
    return `{{- if has (include "podseidon.variant" .) (list ${list}) }}\n---\n${template(text)}{{- end }}\n`;
  });
  const file = (path: string, text: string): ArchivedFile => ({ path: `podseidon/${path}`, bytes: Buffer.from(text) });
  return [
    file("Chart.yaml", chartYaml(version)),
    file("values.yaml", valuesYaml(image.name)),
    file("values.schema.json", `${JSON.stringify(SCHEMA, null, 2)}\n`),
    file("templates/_helpers.tpl", helpers(image.digest)),
    file("templates/same-cluster.yaml", SAME_CLUSTER),
    file("templates/podseidon.yaml", objects.join("")),
  ];
}

/**
 * The deletion of the CRD would delete all protectors, so the CRD outlives the chart. (Helm never upgrades objects in
 * `crds`, and would install them in a cell, too.)
 */
function kept(object: v.InferOutput<typeof Manifest>): unknown {
  if (object.kind !== "CustomResourceDefinition") return object;
  return { ...object, metadata: { ...object.metadata, annotations: { [KEEP]: "keep" } } };
}

function template(text: string): string {
  return text
    .replaceAll("{{", '{{ "{{" }}')
    .replaceAll(IMAGE_LINE, '$1 {{ include "podseidon.image" . | quote }}')
    .replaceAll(`\n  id: ${CHART_CELL}\n`, "\n  id: {{ .Values.cell.id | quote }}\n")
    .replaceAll(CHART_CELL, "{{ .Values.cell.id }}");
}

function chartYaml(version: string): string {
  return dump({
    ...{ apiVersion: "v2", name: "podseidon", type: "application", version, appVersion: version },
    ...{ description: "A safety net against lost pod capacity, for one cluster or many", kubeVersion: ">=1.30.0-0" },
  });
}

const valuesYaml = (repository: string): string => `# This cluster has protectors and pods
# (single-cluster), protectors (core) or pods (cell).
mode: single-cluster
# The step of the roll-out: ignore, dry-run, enforced-namespaces, fail.
step: fail
image:
  repository: ${repository}
  # Without a digest and a tag it is the image of this release, also after helm upgrade --reuse-values.
  digest: ""
  # A digest wins over it.
  tag: ""
cell:
  # The id of a cell, another one in each cluster, and never changed later. Only for mode cell, and required there.
  id: ""
`;

const helpers = (digest: string): string => `{{- define "podseidon.variant" -}}
{{ .Values.mode }}/{{ .Values.step }}
{{- end }}
{{- define "podseidon.image" -}}
{{- with .Values.image }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else if .tag }}:{{ .tag }}{{ else }}@${digest}{{ end }}{{ end }}
{{- end }}
`;

/**
 * `helm upgrade` with some values forgets the others: a cell would become a cluster with a core of its own, without any
 * protector, and let all its pods go. (`helm template`, and so Argo CD, finds nothing here, and asks for every value.)
 */
const SAME_CLUSTER = `{{- $id := ternary .Values.cell.id "${SINGLE_CLUSTER_ID}" (eq .Values.mode "cell") }}
{{- $forgets := "helm upgrade forgets values that it is not given, without --reset-then-reuse-values" }}
{{- $would := printf "which mode %s would end: %s (docs/release.md#helm)" .Values.mode $forgets }}
{{- with lookup "v1" "ConfigMap" "${SYSTEM}" "podseidon-cell" }}
{{- $is := get (.data | default dict) "id" | toString }}
{{- if or (eq $.Values.mode "core") (ne $is $id) }}
{{- fail (printf "this cluster has pods as cell %s, %s" $is $would) }}
{{- end }}
{{- else }}
{{- if and (ne .Values.mode "core") (lookup "apps/v1" "Deployment" "${SYSTEM}" "podseidon-generator") }}
{{- fail (printf "this cluster is a core, %s" $would) }}
{{- end }}
{{- end }}
`;

const ID = "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$";
const SCHEMA = {
  $schema: "http://json-schema.org/draft-07/schema#",
  type: "object",
  additionalProperties: false,
  required: ["mode", "step", "image", "cell"],
  properties: {
    // Helm sets this value in every chart.
    global: { type: "object" },
    mode: { enum: ["single-cluster", "core", "cell"] },
    step: { enum: STEPS },
    image: {
      type: "object",
      additionalProperties: false,
      required: ["repository"],
      properties: {
        repository: { type: "string", minLength: 1 },
        digest: { type: "string", pattern: "^(sha256:[0-9a-f]{64})?$" },
        tag: { type: "string" },
      },
    },
    cell: { type: "object", additionalProperties: false, properties: { id: { type: "string" } } },
  },
  if: { properties: { mode: { const: "cell" } } },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON schema
  then: { properties: { cell: { required: ["id"], properties: { id: { pattern: ID } } } } },
  else: { properties: { cell: { properties: { id: { maxLength: 0 } } } } },
};
