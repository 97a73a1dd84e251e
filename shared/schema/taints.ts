/** What decides whether a node's taints evict a pod, of both objects. */
import * as v from "valibot";
import { MIRROR_POD_ANNOTATION } from "./annotations.ts";
import { checker, valueAt } from "./check.ts";

const text = v.nullish(v.string());

const Taint = v.looseObject({ key: v.string(), value: text, effect: v.string() });

const Toleration = v.looseObject({
  key: text,
  operator: text,
  value: text,
  effect: text,
  tolerationSeconds: v.nullish(v.number()),
});

const RawNode = v.looseObject({
  metadata: v.looseObject({ name: v.string(), uid: v.string(), resourceVersion: v.string() }),
  spec: v.nullish(v.looseObject({ taints: v.nullish(v.array(Taint)) })),
});

const RawPod = v.looseObject({
  metadata: v.looseObject({
    namespace: v.string(),
    name: v.string(),
    uid: v.string(),
    deletionTimestamp: text,
    annotations: v.nullish(v.record(v.string(), v.string())),
  }),
  spec: v.looseObject({ nodeName: text, tolerations: v.nullish(v.array(Toleration)) }),
  status: v.nullish(
    v.looseObject({ phase: text, conditions: v.nullish(v.array(v.looseObject({ type: v.string() }))) }),
  ),
});

const RawPodList = v.looseObject({ items: v.array(RawPod) });

export interface Taint {
  readonly key: string;
  readonly value: string;
}

/** An absent key, operator or value is "", an absent effect fits every effect. */
export interface Toleration {
  readonly key: string;
  readonly operator: string;
  readonly value: string;
  readonly effect: string;
  /** Undefined tolerates for ever. */
  readonly seconds: number | undefined;
}

export interface TaintedNode {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** Those of effect NoExecute, which evict. */
  readonly taints: readonly Taint[];
}

/** A pod as taint eviction sees it. */
export interface PlacedPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly tolerations: readonly Toleration[];
  /** Terminating, finished, or the shadow of a static pod: an eviction would change nothing. */
  readonly isSettled: boolean;
  /** Has the condition DisruptionTarget, whatever its status: a controller has tried to take it away. */
  readonly isDisruptionTarget: boolean;
}

const checkNode = checker(RawNode);
const checkPods = checker(RawPodList);

/** Throws `SchemaError`. */
export function parseTaintedNode(raw: unknown): TaintedNode {
  const { metadata, spec } = checkNode(raw);
  const taints = (spec?.taints ?? []).filter(({ effect }) => effect === "NoExecute");
  return { ...identityOf(metadata), taints: taints.map(({ key, value }) => ({ key, value: value ?? "" })) };
}

function identityOf({ name, uid, resourceVersion }: v.InferOutput<typeof RawNode>["metadata"]) {
  return { name, uid, resourceVersion };
}

/** The pods of a PodList. Throws `SchemaError`. */
export function parsePlacedPods(raw: unknown): readonly PlacedPod[] {
  return checkPods(raw).items.map(placed);
}

/** As {@link parsePlacedPods}, with the token of the next page, if there is one. */
export function parsePlacedPage(raw: unknown): { readonly pods: readonly PlacedPod[]; readonly token?: string } {
  const token = valueAt(raw, "metadata", "continue");
  const pods = parsePlacedPods(raw);
  return typeof token === "string" && token !== "" ? { pods, token } : { pods };
}

function placed({ metadata, spec, status }: v.InferOutput<typeof RawPod>): PlacedPod {
  const { namespace, name, uid, deletionTimestamp, annotations } = metadata;
  const isFinished = status?.phase === "Succeeded" || status?.phase === "Failed";
  const isMirror = annotations?.[MIRROR_POD_ANNOTATION] !== undefined;
  return {
    ...{ namespace, name, uid },
    tolerations: (spec.tolerations ?? []).map((toleration) => ({
      key: toleration.key ?? "",
      operator: toleration.operator ?? "",
      value: toleration.value ?? "",
      effect: toleration.effect ?? "",
      seconds: toleration.tolerationSeconds ?? undefined,
    })),
    isSettled: (deletionTimestamp ?? "") !== "" || isFinished || isMirror,
    isDisruptionTarget: (status?.conditions ?? []).some(({ type }) => type === "DisruptionTarget"),
  };
}
