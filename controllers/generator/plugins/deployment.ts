/** Deployments (`apps/v1`): the numbers of a protector are those that the Deployment controller keeps in a rollout. */
import * as v from "valibot";
import { deploymentMinimum, type IntOrPercent } from "../../../shared/decide/budget-arithmetic.ts";
import { checker } from "../../../shared/schema/check.ts";
import { LabelSelector, ObjectMeta } from "../../../shared/schema/podprotector.ts";
import type { Decision, RequiredProtector, Source, SourcePlugin } from "../source.ts";

export interface DeploymentPluginOptions {
  /** Whether an object with these labels is to be protected. */
  readonly selects: (labels: Readonly<Record<string, string>>) => boolean;
  /** A Deployment that is being deleted while it still asks for replicas keeps its protection (design 12). */
  readonly protectNonZero: boolean;
}

const RollingUpdate = v.looseObject({ maxSurge: v.optional(v.unknown()), maxUnavailable: v.optional(v.unknown()) });

const Deployment = v.looseObject({
  metadata: ObjectMeta,
  spec: v.looseObject({
    replicas: v.optional(v.nullable(v.number())),
    minReadySeconds: v.optional(v.number()),
    selector: LabelSelector,
    strategy: v.optional(
      v.looseObject({ type: v.optional(v.string()), rollingUpdate: v.optional(v.nullable(RollingUpdate)) }),
    ),
  }),
});
type Deployment = v.InferOutput<typeof Deployment>;

const parseDeployment = checker(Deployment);

/** Absent stays absent; anything but a number or text is text that nothing can read, which the arithmetic reports. */
function intOrPercent(value: unknown): IntOrPercent | undefined {
  if (value === undefined || value === null) return undefined;
  return typeof value === "number" ? value : String(value);
}

function requiredProtector({ metadata, spec }: Deployment): RequiredProtector {
  const { minAvailable, derivation } = deploymentMinimum({
    replicas: spec.replicas ?? undefined,
    strategy: spec.strategy?.type,
    maxSurge: intOrPercent(spec.strategy?.rollingUpdate?.maxSurge),
    maxUnavailable: intOrPercent(spec.strategy?.rollingUpdate?.maxUnavailable),
  });
  return {
    name: `deployment-${metadata.name}`,
    spec: { minAvailable, minReadySeconds: spec.minReadySeconds ?? 0, selector: spec.selector },
    derivation,
  };
}

function decide({ metadata, spec }: Deployment, options: DeploymentPluginOptions): Decision {
  if (!options.selects(metadata.labels ?? {})) return "NotSelected";
  if (metadata.deletionTimestamp === undefined || metadata.deletionTimestamp === null) return "Protected";
  const asksForReplicas = (spec.replicas ?? 1) > 0;
  return options.protectNonZero && asksForReplicas ? "DeletingWithReplicas" : "Deleting";
}

export function deploymentPlugin(options: DeploymentPluginOptions): SourcePlugin {
  return {
    name: "deployment",
    kind: { group: "apps", version: "v1", kind: "Deployment", resource: "deployments" },
    interpret(raw): Source {
      const deployment = parseDeployment(raw);
      const { metadata } = deployment;
      const decision = decide(deployment, options);
      const wanted = decision === "Protected" || decision === "DeletingWithReplicas";
      return {
        namespace: metadata.namespace ?? "",
        name: metadata.name,
        uid: metadata.uid,
        resourceVersion: metadata.resourceVersion,
        finalizers: metadata.finalizers ?? [],
        deleting: metadata.deletionTimestamp !== undefined && metadata.deletionTimestamp !== null,
        decision,
        protectors: wanted ? [requiredProtector(deployment)] : [],
      };
    },
  };
}
