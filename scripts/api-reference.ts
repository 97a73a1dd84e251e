/** docs/api.md: every field of PodProtector from the CRD's schema, and every label and annotation. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import * as names from "../shared/schema/annotations.ts";
import { podProtectorCrd } from "../shared/schema/crd.ts";
import { root } from "./root.ts";

const Schema = v.looseObject({
  type: v.optional(v.string()),
  format: v.optional(v.string()),
  description: v.optional(v.string()),
  enum: v.optional(v.array(v.string())),
  minimum: v.optional(v.number()),
  required: v.optional(v.array(v.string()), []),
  properties: v.optional(v.record(v.string(), v.unknown())),
  items: v.optional(v.unknown()),
  additionalProperties: v.optional(v.unknown()),
});
type Schema = v.InferOutput<typeof Schema>;

const Crd = v.looseObject({
  spec: v.looseObject({
    versions: v.tuple([v.looseObject({ schema: v.looseObject({ openAPIV3Schema: v.unknown() }) })]),
  }),
});

function read(raw: unknown): Schema {
  return v.parse(Schema, raw);
}

/** The object in a field, or in its list; undefined for a plain value. */
function objectOf(schema: Schema): Schema | undefined {
  const inner = schema.items === undefined ? schema : read(schema.items);
  return inner.properties === undefined ? undefined : inner;
}

function typeText(schema: Schema): string {
  if (schema.items !== undefined) return `list of ${typeText(read(schema.items))}`;
  if (schema.properties !== undefined) return "object";
  if (schema.additionalProperties !== undefined) return "map of string";
  if (schema.enum !== undefined) return schema.enum.map((one) => `\`${one}\``).join(", ");
  const least = schema.minimum === undefined ? "" : `, at least ${schema.minimum}`;
  return `${schema.format ?? schema.type ?? "any"}${least}`;
}

/** A table for an object, followed by the tables of the objects in it. */
function section(path: string, schema: Schema): string {
  const fields = Object.entries(schema.properties ?? {}).map(([name, raw]) => [name, read(raw)] as const);
  const rows = fields.map(([name, field]) => {
    const needed = schema.required.includes(name) ? " (required)" : "";
    return `| \`${name}\` | ${typeText(field)}${needed} | ${escaped(field.description ?? "")} |\n`;
  });
  const inner = fields.flatMap(([name, field]) => {
    const object = objectOf(field);
    return object === undefined ? [] : [section(`${path}.${name}${field.items === undefined ? "" : "[]"}`, object)];
  });
  const text = schema.description === undefined ? "" : `${schema.description}\n\n`;
  const head = "| field | type | meaning |\n| --- | --- | --- |\n";
  return `## \`${path}\`\n\n${text}${head}${rows.join("")}\n${inner.join("")}`;
}

function escaped(text: string): string {
  return text.replaceAll("|", "\\|").replaceAll("\n", " ");
}

/**
 * The objects on which a name is used, and its meaning. For other names, the comment in annotations.ts is the meaning.
 */
export const MEANINGS: Readonly<Record<string, readonly [where: string, meaning: string]>> = {
  CLUSTER_BUDGETS_LABEL: [
    "XPodDisruptionBudgets",
    "`true` on one in the core that the generator made for those of worker clusters",
  ],
  CLUSTER_BUDGETS_ANNOTATION: [
    "XPodDisruptionBudgets",
    "on one made for those of worker clusters: its name there, and what each of them asks for; the strictest counts",
  ],
  PROTECT_LABEL: ["workload, label", "`true`: the generator keeps a protector for it; `false`: it keeps none"],
  PROTECT_ANNOTATION: [
    "workload or budget",
    "`true` asks for protection, `false` does not; it overrides the label. `adopted`: written by the generator",
  ],
  MIN_AVAILABLE_ANNOTATION: [
    "workload",
    "how many of its pods stay available, a count or a percentage, instead of what its strategy says",
  ],
  MAX_UNAVAILABLE_ANNOTATION: [
    "workload",
    "how many of its pods may be unavailable, a count or a percentage, instead of what its strategy says",
  ],
  SOURCE_NAME_LABEL: ["protector, label", "the workload's name"],
  SOURCE_GROUP_LABEL: ["protector, label", "the workload's API group"],
  SOURCE_KIND_LABEL: ["protector, label", "the workload's kind"],
  SOURCE_RESOURCE_LABEL: ["protector, label", "the workload's resource"],
  GENERATOR_FINALIZER: ["protector and workload, finalizer", "holds both until the protector is released"],
  DERIVATION_ANNOTATION: ["protector", "how its numbers were derived, for people"],
  REFRESHED_GENERATION_ANNOTATION: [
    "webhook configuration",
    "written by an aggregator after the webhooks changed, so that each kube-apiserver reads them once more",
  ],
  RELEASED_ANNOTATION: [
    "protector",
    "any value: releases the protector of a vanished workload (`kubectl podseidon release`)",
  ],
  RESTORED_ANNOTATION: ["protector", "it was restored from a backup; its first counts are not trusted alone"],
  REMOVE_CELL_ONCE_ANNOTATION: [
    "protector",
    "comma-separated cells that the generator takes out of the status, once (`kubectl podseidon remove-cell`)",
  ],
  SUSPENSION_CHANGED_BY_ANNOTATION: [
    "protector",
    "who suspended or resumed it last, and when, as `kubectl podseidon` says",
  ],
  FORCE_DELETE_ANNOTATION: [
    "pod",
    "any value: its deletion is allowed whatever the count; it uses quota and is audited",
  ],
  EXPECTED_PODS_ANNOTATION: [
    "budget",
    "how many pods there should be: a number, or who counts them: `core`, the workloads of the core cluster, or " +
      "`cells`, those of all cells",
  ],
  SUSPEND_CELLS_ANNOTATION: [
    "XPodDisruptionBudget",
    "the cells in which its `spec.suspend` holds, comma-separated; all without it",
  ],
  NO_PROTECT_ANNOTATION: ["pod", "OpenKruise's: `true` exempts it from protectors of PodUnavailableBudgets"],
  MIN_RUNNING_ANNOTATION: [
    "workload",
    "how many of its pods stay in phase Running, Ready or not: a count, or a percentage of the replicas; a second " +
      "protector, with `healthCriterion: Running`",
  ],
  HEALTH_CRITERION_ANNOTATION: [
    "pod or eviction",
    "`Available`, `Ready`, `Running` or `Scheduled`: which count is compared with `minAvailable` for this request, " +
      "where `spec.allowedHealthCriteria` or a permission allows it",
  ],
  VOIDED_ANNOTATION: ["pod", "written by an aggregator to void a reservation that was not used (`--void-after`)"],
  COUNTED_CONDITION: ["pod, readiness gate and condition", "the pod is counted (KEP-580)"],
  COUNTED_GATE: [
    "protector (annotation), namespace (label)",
    "`enabled` or `disabled`: whether new pods get the counted gate",
  ],
  UPDATE_TRIGGER_ANNOTATION: ["the dummy pod", "when it was last patched"],
  UPDATE_TRIGGER_COUNTER_ANNOTATION: ["the dummy pod", "how often it was patched"],
  UPDATE_TRIGGER_LINEAGE_ANNOTATION: ["the dummy pod", "the first count of each process, which shows a restore"],
  PRE_ACTIVITY_PREFIX: ["pod, prefix of annotations", "each holds the pod's disruption back until it is removed"],
  PENDING_DISRUPTION_ANNOTATION: [
    "pod",
    "written by the webhook on a pod that is held back by a pre-activity: a client asked to delete it",
  ],
  ENFORCEMENT_ANNOTATION: [
    "workload or budget",
    "`Enforce`, `Warn` or `Off`: `spec.enforcement` of its protector, before what its namespace or the generator says",
  ],
  ENFORCEMENT_LABEL: [
    "namespace of a core, label",
    "`Enforce`, `Warn` or `Off`: what its workloads and budgets have that say nothing, before `--enforcement`",
  ],
  ENFORCED_NAMESPACE_LABEL: [
    "namespace, label",
    "`true`: a webhook configuration may ask about such namespaces alone; an aggregator with `--mark-namespaces` " +
      "writes it",
  ],
  ROTATE_CA_ANNOTATION: [
    "Secret `podseidon-webhook-ca`",
    "asks for a new CA for the webhook's certificate; removed when the CA exists",
  ],
};

/** The constants of annotations.ts for users: names with a group, except those of the project's own pods. */
export function documentedNames(): readonly string[] {
  return Object.entries(names)
    .filter(([key, value]) => value.includes("/") && !["MIRROR_POD_ANNOTATION", "PART_OF_LABEL"].includes(key))
    .map(([key]) => key);
}

/** The comment of the constant, for names without an entry in MEANINGS. */
function commentOf(key: string): readonly [string, string] {
  const source = readFileSync(join(root, "shared/schema/annotations.ts"), "utf8");
  const text = new RegExp(`/\\*\\* ((?:(?!\\*/)[\\s\\S])*) \\*/\\nexport const ${key}\\b`).exec(source)?.[1] ?? "";
  return ["", text.replaceAll(/\s*\n \* /g, " ").replace(/ \(design [^)]*\)/, "")];
}

function namesTable(): string {
  const values = new Map<string, unknown>(Object.entries(names));
  const rows = documentedNames().map((key) => {
    const [where, meaning] = MEANINGS[key] ?? commentOf(key);
    return `| \`${String(values.get(key))}\` | ${where} | ${escaped(meaning)} |\n`;
  });
  return `## Labels, annotations and finalizers\n\n| name | on | meaning |\n| --- | --- | --- |\n${rows.join("")}`;
}

export function apiReference(): string {
  const schema = read(v.parse(Crd, podProtectorCrd()).spec.versions[0].schema.openAPIV3Schema);
  const part = (name: string): string => section(name, read(schema.properties?.[name]));
  const kind = `\`PodProtector\`, \`${names.GROUP}/${names.VERSION}\``;
  return `<!-- Made by \`npm run generate\` from shared/schema. -->

# API reference

${kind}, short name \`ppr\`, namespaced.
An object of upstream podseidon is valid here. All fields that this project adds are optional.

${part("spec")}${part("status")}${namesTable()}`;
}
