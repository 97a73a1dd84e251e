/** The findings of `doctor` about a cluster's webhook configurations. Pure. */
import * as v from "valibot";
import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import { OWN_NAMESPACE } from "../../../shared/recovery/register/register-format.ts";
import { COUNTED_GATE } from "../../../shared/schema/annotations.ts";
import { LabelSelector, namespacedName, type PodProtector } from "../../../shared/schema/podprotector.ts";
import { cellOfWebhookConfiguration } from "../disruption-dry-run.ts";
import { firstNames, plural } from "../invocation/output.ts";
import { certificateFinding, type Finding, NO_CERTIFICATE, ok, problem, warning } from "./findings.ts";

const Names = v.optional(v.array(v.string()), []);
const Webhooks = v.looseObject({
  webhooks: v.optional(
    v.array(
      v.looseObject({
        name: v.string(),
        failurePolicy: v.optional(v.string()),
        clientConfig: v.looseObject({
          caBundle: v.optional(v.string()),
          service: v.nullish(v.looseObject({ namespace: v.optional(v.string()) })),
        }),
        objectSelector: v.nullish(
          v.looseObject({ matchLabels: v.optional(v.unknown()), matchExpressions: v.optional(v.unknown()) }),
        ),
        namespaceSelector: v.nullish(LabelSelector),
        matchConditions: v.nullish(v.array(v.looseObject({ name: v.string() }))),
        rules: v.optional(v.array(v.looseObject({ operations: Names, resources: Names })), []),
      }),
    ),
    [],
  ),
});

const DISRUPTIONS = [
  ["DELETE", "pods"],
  ["CREATE", "pods/eviction"],
] as const;
const MAX_NAMED = 5;
/** The shipped conditions of these webhooks: the webhook would allow what they leave out. */
const HARMLESS = ["not-terminating", "not-finished"];
const APPLY =
  "apply the webhook configuration of the cluster's overlay again (kubectl apply -k manifests/overlays/...)";

/** Whether the cluster asks about every deletion and eviction, and what happens without an answer. */
export function webhookConfigurationFindings(
  validating: unknown,
  mutating: unknown,
  nowMs: number,
  gate?: unknown,
  system = OWN_NAMESPACE,
): Finding[] {
  const check = "webhook configuration";
  const hooks = v.safeParse(Webhooks, validating);
  if (validating === undefined || !hooks.success)
    return [
      problem(
        check,
        "the cluster does not call the webhook: ValidatingWebhookConfiguration podseidon is missing",
        APPLY,
      ),
    ];
  const asks = (operation: string, resource: string): boolean =>
    hooks.output.webhooks.some(({ rules }) => asksAbout(rules, operation, resource));
  const findings: Finding[] = [];
  const wrong = (found: string, advice = APPLY): void => void findings.push(problem(check, found, advice));
  if (!asks("DELETE", "pods")) wrong("the cluster does not ask about DELETE pods");
  if (!asks("CREATE", "pods/eviction")) wrong("the cluster does not ask about CREATE pods/eviction");
  const leftOut = `${APPLY}, unless it is left out on purpose`;
  const lacks = (found: string): void => void findings.push(warning(check, found, leftOut));
  if (!asks("DELETE", "nodes"))
    lacks("the cluster does not ask about DELETE nodes: a node that is deleted takes its pods");
  if (!asks("UPDATE", "pods/status"))
    lacks("the cluster does not ask about UPDATE pods/status: a status write can end a pod");
  const open = hooks.output.webhooks.filter(({ failurePolicy }) => failurePolicy === "Ignore");
  if (open.length > 0)
    findings.push(
      warning(
        check,
        `${plural(open.length, "webhook")} with failurePolicy Ignore`,
        "nothing is promised while the webhook is out of reach; Fail is the last step of the rollout ladder",
      ),
    );
  const foreign = hooks.output.webhooks
    .map(({ clientConfig }) => clientConfig.service?.namespace)
    .find((namespace) => namespace !== undefined && namespace !== system);
  if (foreign !== undefined)
    wrong(
      `calls the webhook of namespace ${foreign}, and not of ${system}`,
      "a cluster has room for one installation: the one that was applied last is asked, and no protector of another " +
        "is in force; components/second-core obeys two cores (docs/topologies.md#several-cores)",
    );
  const narrow = hooks.output.webhooks.filter(({ objectSelector }) => !isEmptySelector(objectSelector));
  if (narrow.length > 0)
    wrong(
      `${narrow[0]?.name} has an objectSelector`,
      "take it out: on an eviction it matches the Eviction, not the pod",
    );
  for (const [operation, resource] of DISRUPTIONS) {
    const asking = hooks.output.webhooks.filter(({ rules }) => asksAbout(rules, operation, resource));
    const more = asking.map(({ matchConditions }) => matchConditions?.find((one) => !HARMLESS.includes(one.name)));
    if (more[0] !== undefined && !more.includes(undefined))
      lacks(`the cluster asks about ${operation} ${resource} only where condition ${more[0].name} is true`);
  }
  if (mutating === undefined)
    wrong("evictions are not bound to the pod that is reviewed: MutatingWebhookConfiguration podseidon is missing");
  if (findings.length === 0)
    findings.push(
      ok(check, `asks as cell ${cellOfWebhookConfiguration(validating) ?? "?"}, refuses when it gets no answer`),
    );
  return [...findings, authorityFinding([validating, mutating, gate].flatMap(webhooksOf), nowMs)];
}

/** None for a configuration that is missing, or can't be read. */
function webhooksOf(configuration: unknown): readonly Webhook[] {
  const read = v.safeParse(Webhooks, configuration);
  return read.success ? read.output.webhooks : [];
}

function asksAbout(rules: Webhook["rules"], operation: string, resource: string): boolean {
  return rules.some(
    ({ operations, resources }) =>
      (operations.includes(operation) || operations.includes("*")) && resources.includes(resource),
  );
}

type Webhook = v.InferOutput<typeof Webhooks>["webhooks"][number];

const NO_AUTHORITY =
  "until it is there, deletions fail: an aggregator adds it once its term has counted the pods, a minute after it " +
  "leads at the latest; then docs/runbooks/PodseidonRegistrationMissing.md";

/** About the worst of the webhooks: one without a valid authority fails, whatever the others trust. */
function authorityFinding(webhooks: readonly Webhook[], nowMs: number): Finding {
  const check = "CA in the webhook configuration";
  const found = webhooks.map(({ name, clientConfig }) => {
    const pem = Buffer.from(clientConfig.caBundle ?? "", "base64").toString("utf8");
    return { name, finding: certificateFinding(check, [pem], nowMs) };
  });
  const worst =
    found.find(({ finding }) => finding.level === "problem") ??
    found.find(({ finding }) => finding.level === "warning") ??
    found[0];
  if (worst === undefined) return certificateFinding(check, [], nowMs);
  const { name } = worst;
  const isMissing = worst.finding.found === NO_CERTIFICATE;
  const finding = isMissing ? { ...worst.finding, advice: NO_AUTHORITY } : worst.finding;
  const isAlone = found.some((one) => one.finding.level !== finding.level);
  return isAlone ? { ...finding, found: `of ${name}: ${finding.found}` } : finding;
}

function isEmptySelector(selector: { matchLabels?: unknown; matchExpressions?: unknown } | null | undefined): boolean {
  const { matchLabels, matchExpressions } = selector ?? {};
  return [matchLabels, matchExpressions].every(
    (part) => part === undefined || part === null || Object.keys(part).length === 0,
  );
}

export const Namespace = v.looseObject({
  metadata: v.looseObject({ name: v.string(), labels: v.optional(v.record(v.string(), v.string()), {}) }),
});

/** The namespaces in which the cluster asks about deletions, and about evictions if it asks about any. */
export function askedNamespaces(validating: unknown, namespaces: readonly unknown[]): readonly string[] {
  const asking = DISRUPTIONS.map(([operation, resource]) =>
    webhooksOf(validating).filter(({ rules }) => asksAbout(rules, operation, resource)),
  ).filter((some) => some.length > 0);
  const selectors = asking.map((some) =>
    some.map(({ namespaceSelector }) => compileSelector(namespaceSelector ?? {}, "fails")),
  );
  if (selectors.length === 0) return [];
  return namespacesOf(namespaces)
    .filter(({ metadata }) => selectors.every((some) => some.some(({ matches }) => matches(metadata.labels))))
    .map(({ metadata }) => metadata.name);
}

function namespacesOf(raw: readonly unknown[]): readonly v.InferOutput<typeof Namespace>[] {
  return raw.flatMap((one) => {
    const parsed = v.safeParse(Namespace, one);
    return parsed.success ? [parsed.output] : [];
  });
}

/** Whether the cluster asks in the namespaces with protected pods. `namespaces` are the stored objects of these. */
export function namespaceFinding(validating: unknown, namespaces: readonly unknown[]): readonly Finding[] {
  const check = "enforced namespaces";
  const asks = webhooksOf(validating).some(({ rules }) => asksAbout(rules, "DELETE", "pods"));
  const known = namespacesOf(namespaces);
  if (!asks || known.length === 0) return [];
  const asked = new Set(askedNamespaces(validating, namespaces));
  const left = known.map(({ metadata }) => metadata.name).filter((name) => !asked.has(name));
  if (left.length === 0) return [ok(check, `asks in every namespace with protected pods (${known.length})`)];
  const shown = firstNames(left, MAX_NAMED);
  const advice =
    "its namespaceSelector leaves them out: label them podseidon.kubewharf.io/enforced-namespace=true, or take the " +
    "next step of the roll-out (docs/install.md#one-cluster)";
  return left.length === known.length
    ? [problem(check, `nothing is protected: the cluster asks in none of ${shown}`, advice)]
    : [warning(check, `the cluster does not ask in ${shown}`, advice)];
}

/** Where nobody binds an eviction to its pod, although the cluster asks about it: the webhook denies such evictions. */
export function bindingFinding(
  validating: unknown,
  mutating: unknown,
  namespaces: readonly unknown[],
): readonly Finding[] {
  const bound = new Set(askedNamespaces(mutating, namespaces));
  const left = askedNamespaces(validating, namespaces).filter((name) => !bound.has(name));
  if (mutating === undefined || left.length === 0) return [];
  const shown = firstNames(left, MAX_NAMED);
  const found = `evictions of protected pods in ${shown} are not bound to their pods: drains wait there`;
  const advice =
    "the namespaceSelector of the MutatingWebhookConfiguration podseidon leaves them out, as GKE Autopilot does with " +
    "its own namespaces (docs/security.md#close-the-port)";
  return [warning("webhook configuration", found, advice)];
}

/** The namespaces, and those of the protectors with pods in a cluster, that ask for the counted gate. */
export function gatesAsked(
  here: readonly PodProtector[],
  namespaces: readonly v.InferOutput<typeof Namespace>[],
): readonly string[] {
  const protectors = here.filter(({ metadata }) => metadata.annotations?.[COUNTED_GATE] === "enabled");
  const labelled = namespaces.filter(({ metadata }) => metadata.labels[COUNTED_GATE] === "enabled");
  return [
    ...protectors.map(({ metadata }) => `protector ${namespacedName(metadata)}`),
    ...labelled.map(({ metadata }) => `namespace ${metadata.name}`),
  ];
}

/** About a gate that is requested, but that no webhook configuration adds: new pods lack it. */
export function gateFinding(asking: readonly string[], configuration: unknown): readonly Finding[] {
  if (asking.length === 0) return [];
  if (configuration !== undefined) return [ok("counted gate", `asked for by ${plural(asking.length, "object")}`)];
  const [first] = asking;
  const who = asking.length === 1 ? `${first} asks` : `${first} and ${asking.length - 1} more ask`;
  const found = `${who} for it, and nobody adds it`;
  const advice =
    "add manifests/components/counted-gate to the cluster's overlay, or take the annotation or label off: " +
    "docs/counted-gate.md";
  return [warning("counted gate", found, advice)];
}
