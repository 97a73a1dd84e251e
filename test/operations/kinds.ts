/**
 * The kinds of objects whose fields are changed: how an object begins, what reads it, and what else its track needs.
 * All objects of a row are in one namespace, so each has labels of its own.
 */
import { plan } from "../../controllers/generator/protectors/plan.ts";
import { plugins } from "../../controllers/generator/sources/plugins.ts";
import type { SourcePlugin } from "../../controllers/generator/sources/protection-source.ts";
import { strictestMinimum } from "../../shared/decide/minimum/budget-minimum.ts";
import {
  ADOPTED,
  COUNTED_GATE,
  DERIVATION_ANNOTATION,
  GENERATOR_FINALIZER,
  PROTECT_LABEL,
} from "../../shared/schema/annotations.ts";
import {
  ENFORCEMENTS,
  HEALTH_CRITERIA,
  PROTECTED_OPERATIONS,
  parsePodProtector,
} from "../../shared/schema/podprotector.ts";
import type { FieldPath, Reader } from "./fields-read.ts";
import type { Words } from "./values.ts";

export interface ObjectKind {
  /** In reports. */
  readonly name: string;
  readonly apiVersion: string;
  readonly kind: string;
  /** The plural, as in paths. */
  readonly resource: string;
  /** The object of a track, without metadata. */
  readonly base: (app: string) => object;
  /** Fields that `base` lacks and that a reader wants to find beside others. */
  readonly example?: object;
  readonly read: Reader;
  /** Throws for an object that is read, and keeps what was made from it before. */
  readonly follow?: Reader;
  /** Its labels ask for protection. */
  readonly isSource: boolean;
  /** The object is not created: the generator makes it from this source. */
  readonly madeFrom?: ObjectKind;
  /** Other objects of the track. */
  readonly neighbours?: "workload" | "pods";
  /** Setting the first removes the second, which the apiserver does not accept beside it. */
  readonly exclusive?: readonly (readonly [FieldPath, FieldPath])[];
  readonly words: Words;
}

export const PROTECT_SELECTOR = `${PROTECT_LABEL}=true`;
const sources = plugins({ protectSelector: PROTECT_SELECTOR, protectNonZero: true });
const ANNOTATIONS: Words = {
  [`${PROTECT_LABEL}`]: ["true", "false", ADOPTED],
  "podseidon.kubewharf.io/enforcement": ENFORCEMENTS,
  "podseidon.kubewharf.io/expected-pods": ["core", "cells", "7", "0"],
  "podseidon.kubewharf.io/min-available": ["0", "1", "50%", "101%", "-1"],
  "podseidon.kubewharf.io/max-unavailable": ["0", "1", "50%", "101%", "-1"],
  "podseidon.kubewharf.io/min-running": ["0", "1", "50%", "101%", "-1"],
  "podseidon.kubewharf.io/suspend-cells": ["cell", ",", "cell, other"],
  "podseidon.kubewharf.io/cluster-budgets": ['{"name":"web","clusters":{"one":{"minAvailable":3}}}', "{}"],
  "pub.kruise.io/protect-total-replicas": ["0", "7"],
  "kruise.io/pub-protect-operations": ["DELETE", "EVICT, UPDATE", "PATCH"],
  finalizers: [[GENERATOR_FINALIZER], ["example.com/other"], [GENERATOR_FINALIZER, "example.com/other"]],
};

function reader(plugin: string): SourcePlugin["interpret"] {
  const found = sources.find(({ name }) => name === plugin);
  if (found === undefined) throw new Error(`there is no plugin ${plugin}`);
  return (object) => found.interpret(object);
}

/** A budget whose limit can't be read keeps the protector that it has, as one does that can't be read at all. */
function limitReader(plugin: string): Reader {
  const interpret = reader(plugin);
  return (object) => {
    const source = interpret(object);
    if (source?.need?.kind === "budget" && strictestMinimum(source.need.budget, 4, "") === undefined)
      throw new Error("the limit can't be read");
  };
}

const selector = (app: string): object => ({ matchLabels: { app } });
export const template = (app: string): object => ({
  metadata: { labels: { app } },
  spec: { containers: [{ name: "app", image: "app" }] },
});
const WHOLE_METADATA = {
  ownerReferences: [{ apiVersion: "apps/v1", kind: "Other", name: "other", uid: "u", controller: true }],
};

const deployment: ObjectKind = {
  name: "Deployment",
  apiVersion: "apps/v1",
  kind: "Deployment",
  resource: "deployments",
  base: (app) => ({ spec: { replicas: 4, selector: selector(app), template: template(app) } }),
  read: reader("deployment"),
  isSource: true,
  exclusive: [
    [
      ["spec", "strategy", "type"],
      ["spec", "strategy", "rollingUpdate"],
    ],
  ],
  words: { ...ANNOTATIONS, type: ["Recreate", "RollingUpdate", "OnDelete"] },
};

function budget(name: string, apiVersion: string, example: object, words: Words): ObjectKind {
  const plugin = name.toLowerCase();
  return {
    name,
    apiVersion,
    kind: name,
    resource: `${plugin}s`,
    base: (app) => ({ spec: { minAvailable: 1, selector: selector(app) } }),
    example,
    read: reader(plugin),
    follow: limitReader(plugin),
    isSource: true,
    neighbours: "workload",
    exclusive: [
      [
        ["spec", "maxUnavailable"],
        ["spec", "minAvailable"],
      ],
    ],
    words: { ...ANNOTATIONS, ...words },
  };
}

const OPERATION_LISTS = [["DELETE"], ["EVICT", "UPDATE"], [...PROTECTED_OPERATIONS], ["PATCH"]];
const PROTECTOR_WORDS: Words = {
  ...ANNOTATIONS,
  unhealthyPodPolicy: ["AlwaysAllow", "IfHealthyBudget"],
  DELETE: ["AlwaysAllow", "IfHealthyBudget"],
  EVICT: ["AlwaysAllow", "IfHealthyBudget"],
  UPDATE: ["AlwaysAllow", "IfHealthyBudget"],
  healthCriterion: HEALTH_CRITERIA,
  enforcement: ENFORCEMENTS,
  protectedOperations: OPERATION_LISTS,
  availabilityConditions: [["Ready"], ["Ready", "Other"]],
  allowedHealthCriteria: [["Ready"], [...HEALTH_CRITERIA]],
  endpoint: ["http://owner.example.com:8080/ask"],
  cells: [["cell"], ["other"], []],
  until: ["2999-01-01T00:00:00Z", "2000-01-01T00:00:00Z"],
  [COUNTED_GATE]: ["enabled", "disabled"],
  "podseidon.kubewharf.io/remove-cell-once": ["other", ","],
};
const PROTECTOR = {
  apiVersion: "podseidon.kubewharf.io/v1alpha1",
  kind: "PodProtector",
  resource: "podprotectors",
  example: { spec: { suspend: { enabled: true }, probe: { endpoint: "http://owner" } } },
  words: PROTECTOR_WORDS,
} as const;

/** What the generator reads of a protector that has a source. */
function readGenerated(object: unknown): void {
  const protector = parsePodProtector(object);
  const plugin = sources.find(({ name }) => name === "deployment");
  if (plugin === undefined) throw new Error("there is no plugin of Deployments");
  const metadata = {
    ...{ name: "web", namespace: "x", uid: "source", resourceVersion: "1" },
    labels: { [PROTECT_LABEL]: "true" },
    finalizers: [GENERATOR_FINALIZER],
  };
  const source = plugin.interpret({ metadata, ...deployment.base("web") });
  plan({
    kind: plugin.kind,
    plugins: sources,
    identity: { plugin: plugin.name, namespace: "x", name: "web" },
    source,
    protectors: [protector],
    named: () => protector,
    lost: [],
  });
}

export const KINDS: readonly ObjectKind[] = [
  deployment,
  budget("PodDisruptionBudget", "policy/v1", {}, { unhealthyPodEvictionPolicy: ["AlwaysAllow", "IfHealthyBudget"] }),
  budget(
    "PodUnavailableBudget",
    "policy.kruise.io/v1beta1",
    { spec: { targetRef: { apiVersion: "apps/v1", kind: "Deployment", name: "web" } } },
    { protectOperations: OPERATION_LISTS, kind: ["StatefulSet"], apiVersion: ["apps/v1"] },
  ),
  budget(
    "XPodDisruptionBudget",
    "x-pdb.form3.tech/v1alpha1",
    { spec: { probe: { endpoint: "http://owner" } } },
    { endpoint: ["owner.example.svc:9090"] },
  ),
  {
    ...PROTECTOR,
    name: "PodProtector of a Deployment",
    base: () => ({ spec: { minAvailable: 3, minReadySeconds: 0, selector: selector("web") } }),
    read: readGenerated,
    isSource: false,
    madeFrom: deployment,
  },
  {
    ...PROTECTOR,
    name: "PodProtector",
    base: (app) => ({ spec: { minAvailable: 1, minReadySeconds: 0, selector: selector(app) } }),
    read: parsePodProtector,
    isSource: false,
    neighbours: "pods",
  },
];

/** The object of a track as an apiserver returns it. */
export function storedOf(kind: ObjectKind): object {
  const metadata = {
    ...{ name: "web", namespace: "x", uid: "u", resourceVersion: "1" },
    labels: { [PROTECT_LABEL]: "true" },
    annotations: { [DERIVATION_ANNOTATION]: "" },
    ...WHOLE_METADATA,
  };
  return { metadata, ...kind.base("web") };
}

/** {@link storedOf} with all fields that a reader wants to find. */
export function exampleOf(kind: ObjectKind): unknown {
  return merged(storedOf(kind), kind.example ?? {});
}

function merged(one: object, other: object): object {
  const spec = { ...property(one, "spec"), ...property(other, "spec") };
  return { ...one, spec };
}

function property(object: object, name: string): object {
  const value: unknown = Reflect.get(object, name);
  return typeof value === "object" && value !== null ? value : {};
}
