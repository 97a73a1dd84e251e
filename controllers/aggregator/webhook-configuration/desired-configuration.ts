/**
 * The pure part of this folder: the desired form of a cell's webhook configuration, and how a live object differs from
 * it (docs/design.md#webhook-configuration). `caBundle` is not part of this form, because the CA injector changes it.
 */
import { isDeepStrictEqual } from "node:util";
import * as v from "valibot";
import { SECRET_SEGMENT } from "../../../shared/certificates/ca-bundle.ts";
import { REFRESHED_GENERATION_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { checker, isRecord } from "../../../shared/schema/check.ts";
import { SchemaError } from "../../../shared/schema/schema-error.ts";
import { declarersOf, FieldManager, LAST_APPLIED, withOwned } from "./field-ownership.ts";

/** The kinds of webhook configurations by their resource. */
export const KINDS = {
  validatingwebhookconfigurations: "ValidatingWebhookConfiguration",
  mutatingwebhookconfigurations: "MutatingWebhookConfiguration",
} as const;
export type ConfigurationResource = keyof typeof KINDS;
export const RESOURCES = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] as const;
/** The counted gate has its own webhook configuration, which is optional and can be deleted at any time. */
export const GATE = { resource: "mutatingwebhookconfigurations", suffix: "-gate" } as const;
/** Every webhook configuration of the project, by what follows the common name. */
export const CONFIGURATIONS = [...RESOURCES.map((resource) => ({ resource, suffix: "" })), GATE] as const;

const Texts = v.nullish(v.record(v.string(), v.string()));
const Webhook = v.looseObject({
  name: v.string(),
  failurePolicy: v.nullish(v.string()),
  clientConfig: v.looseObject({ caBundle: v.nullish(v.string()) }),
});
type ConfiguredWebhook = v.InferOutput<typeof Webhook>;

const Metadata = { name: v.string(), labels: Texts, annotations: Texts };

/** A webhook configuration as the apiserver serves it. */
const Live = v.looseObject({
  metadata: v.looseObject({
    ...Metadata,
    uid: v.string(),
    resourceVersion: v.string(),
    /** The apiserver increments it when the webhooks change. */
    generation: v.optional(v.number()),
    managedFields: v.optional(v.array(FieldManager)),
  }),
  webhooks: v.nullish(v.array(Webhook)),
});
export type LiveConfiguration = v.InferOutput<typeof Live>;
export const parseLiveConfiguration: (raw: unknown) => LiveConfiguration = checker(Live);

/** A webhook configuration as an operator declares it. */
const Declared = v.looseObject({
  kind: v.string(),
  metadata: v.looseObject(Metadata),
  webhooks: v.nullish(v.array(Webhook)),
});
export type DeclaredConfiguration = v.InferOutput<typeof Declared>;
/** Throws `SchemaError`. */
export const parseDeclaredConfiguration: (raw: unknown) => DeclaredConfiguration = checker(Declared);

/**
 * The object that `kubectl apply` last applied; undefined where another client made the object, or where the annotation
 * can't be read.
 */
export function lastApplied({ metadata }: LiveConfiguration): DeclaredConfiguration | undefined {
  const text = metadata.annotations?.[LAST_APPLIED];
  if (text === undefined) return undefined;
  try {
    return parseDeclaredConfiguration(JSON.parse(text));
  } catch {
    return undefined;
  }
}

/** The declaration without the fields that others change, as text. Declarations with equal texts are equal. */
export function declarationText({ kind, metadata, webhooks }: DeclaredConfiguration): string {
  const { name, labels, annotations } = metadata;
  const { [LAST_APPLIED]: _, [REFRESHED_GENERATION_ANNOTATION]: __, ...kept } = annotations ?? {};
  return JSON.stringify({
    apiVersion: "admissionregistration.k8s.io/v1",
    kind,
    metadata: { name, labels: labels ?? {}, annotations: kept },
    webhooks: (webhooks ?? []).map((webhook) => {
      const { caBundle: ___, ...clientConfig } = webhook.clientConfig;
      return withSegment({ ...webhook, clientConfig }, "");
    }),
  });
}

/** The declaration without the fields that others change. */
export function declaredForm(declared: DeclaredConfiguration): DeclaredConfiguration {
  return parseDeclaredConfiguration(JSON.parse(declarationText(declared)));
}

/** A live object as a declaration, for an object that `kubectl apply` did not create. */
export function declarationOf(kind: string, { metadata, webhooks }: LiveConfiguration): DeclaredConfiguration {
  const { name, labels, annotations } = metadata;
  return { kind, metadata: { name, labels, annotations }, webhooks };
}

/** `caBundle` by webhook name, of the webhooks that have one. */
export function bundlesOf({ webhooks }: Pick<LiveConfiguration, "webhooks">): Record<string, string> {
  return Object.fromEntries(
    (webhooks ?? []).flatMap(({ name, clientConfig: { caBundle } }) =>
      caBundle === undefined || caBundle === null || caBundle === "" ? [] : [[name, caBundle]],
    ),
  );
}

/**
 * The configuration may be new: pods went before without a question, and the stored counts have them still. Without an
 * authority deletions fail. Where they pass instead, nothing is won by a wait.
 */
export function waitsForCounts({ webhooks }: Pick<LiveConfiguration, "webhooks">): boolean {
  const isOpen = (webhooks ?? []).every(({ failurePolicy }) => failurePolicy === "Ignore");
  return !isOpen && Object.keys(bundlesOf({ webhooks })).length === 0;
}

/** The declared webhooks with their last known `caBundle`; a new webhook gets the `caBundle` of another one. */
export function withBundles(
  webhooks: DeclaredConfiguration["webhooks"],
  bundles: Readonly<Record<string, string>>,
): ConfiguredWebhook[] {
  const [any] = Object.values(bundles);
  return (webhooks ?? []).map((webhook) => {
    const caBundle = bundles[webhook.name] ?? webhook.clientConfig.caBundle ?? any;
    return caBundle === undefined ? webhook : { ...webhook, clientConfig: { ...webhook.clientConfig, caBundle } };
  });
}

/** `CELL` in the paths and URLs of a file stands for the cell's id, as in the manifests. */
export function forCell(declared: DeclaredConfiguration, cellID: string): DeclaredConfiguration {
  const change = (address: string): string => address.replace(/\/CELL(?=\/|$)/, `/${cellID}`);
  return { ...declared, webhooks: (declared.webhooks ?? []).map((webhook) => atAddress(webhook, change)) };
}

/** The webhook with another path of its Service, or another URL. */
function atAddress(webhook: ConfiguredWebhook, change: (address: string) => string): ConfiguredWebhook {
  const { service, url, ...rest } = webhook.clientConfig;
  const changed = (text: unknown): unknown => (typeof text === "string" ? change(text) : text);
  const clientConfig = {
    ...rest,
    ...(isRecord(service) ? { service: { ...service, path: changed(service.path) } } : {}),
    ...(url === undefined ? {} : { url: changed(url) }),
  };
  return { ...webhook, clientConfig };
}

/** The scheme and host of a URL; empty for the path of a Service. */
const ORIGIN = /^(?:https:\/\/[^/]+)?/;

function pathOf(address: string): string {
  return address.replace(ORIGIN, "");
}

/** The webhook with another secret segment (docs/security.md#who-calls), or without one. */
function withSegment(webhook: ConfiguredWebhook, segment: string): ConfiguredWebhook {
  return atAddress(webhook, (address) => {
    const path = pathOf(address);
    return address.slice(0, address.length - path.length) + segment + path.replace(SECRET_SEGMENT, "");
  });
}

/** The form of the segment that the webhook's address allows: each part of a Service's path has to be a DNS name. */
function segmentFor({ clientConfig: { url } }: ConfiguredWebhook, segment: string): string {
  if (url !== undefined || segment === "") return segment;
  return `/secret-${Buffer.from(segment.slice(2), "base64url").toString("hex")}`;
}

/** The secret segment of the webhook's path; empty without one. */
function segmentOf({ clientConfig: { service, url } }: ConfiguredWebhook): string {
  const address = url ?? Reflect.get(Object(service), "path");
  return (typeof address === "string" ? SECRET_SEGMENT.exec(pathOf(address))?.[0] : undefined) ?? "";
}

/** The desired form of a webhook configuration, with the facts that it was derived from. */
export interface DesiredConfiguration {
  readonly declared: DeclaredConfiguration;
  /** The last seen `caBundle`, by webhook name. */
  readonly bundles: Readonly<Record<string, string>>;
  /** The text of the last object that `kubectl apply` applied. */
  readonly applied?: string;
  readonly declarers?: readonly FieldManager[];
}

export interface DesiredConfigurationInput {
  readonly kind: string;
  readonly live: LiveConfiguration | undefined;
  /** From a file. */
  readonly declared: DeclaredConfiguration | undefined;
  /** From the record in the cell. */
  readonly recorded: DesiredConfiguration | undefined;
  /** The last `caBundle` that this process has seen, by webhook name. */
  readonly bundles: Readonly<Record<string, string>>;
}

/**
 * The desired form: the file if there is one. Otherwise the fields of the live object whose owners declare them, on top
 * of the first of these that exists: what an operator has applied since the record, the record, the live object.
 * Undefined without any of them.
 */
export function desiredConfiguration(input: DesiredConfigurationInput): DesiredConfiguration | undefined {
  const { kind, live, recorded } = input;
  const bundles = { ...recorded?.bundles, ...input.bundles };
  const known = recorded?.declarers ?? [];
  if (live === undefined) {
    const declared = input.declared ?? recorded?.declared;
    return declared === undefined ? undefined : { ...recorded, declared, bundles };
  }
  const lastOne = lastApplied(live);
  const applied = lastOne === undefined ? undefined : declarationText(lastOne);
  const asSeen = declarationOf(kind, live);
  // A restored object has the annotation of an earlier form when others have used server-side apply since.
  const base = (applied === recorded?.applied ? undefined : lastOne) ?? recorded?.declared ?? asSeen;
  const managers = live.metadata.managedFields ?? [];
  const declared = input.declared ?? asDeclared(withOwned(asSeen, base, managers, known), asSeen) ?? base;
  const seen = applied === undefined ? {} : { applied };
  return { declared, bundles, ...seen, declarers: declarersOf(managers, known) };
}

/**
 * Undefined where the remaining fields are not a valid webhook configuration; owners then count as declaring nothing.
 */
function asDeclared(form: unknown, seen: DeclaredConfiguration): DeclaredConfiguration | undefined {
  try {
    const declared = parseDeclaredConfiguration(form);
    return { ...declared, webhooks: (declared.webhooks ?? []).map((webhook) => withOneAddress(webhook, seen)) };
  } catch (error) {
    if (error instanceof SchemaError) return undefined;
    throw error;
  }
}

/**
 * A Service and a URL exclude each other. Where the form has both, an owner has changed from one to the other, and what
 * is left of the first has no owner.
 */
function withOneAddress(webhook: ConfiguredWebhook, seen: DeclaredConfiguration): ConfiguredWebhook {
  const { service, url, ...rest } = webhook.clientConfig;
  if (service === undefined || url === undefined) return webhook;
  const now = seen.webhooks?.find(({ name }) => name === webhook.name)?.clientConfig;
  return { ...webhook, clientConfig: { ...rest, ...(now?.url === undefined ? { service } : { url }) } };
}

/** Whether the record has another form, differs only in other facts, or is up to date (undefined). */
export function recordChange(
  recorded: DesiredConfiguration | undefined,
  desired: DesiredConfiguration,
): "form" | "rest" | undefined {
  if (recorded === undefined || declarationText(recorded.declared) !== declarationText(desired.declared)) return "form";
  const rest = ({ bundles, applied, declarers = [] }: DesiredConfiguration): unknown => [bundles, applied, declarers];
  return isDeepStrictEqual(rest(recorded), rest(desired)) ? undefined : "rest";
}

/** The object to create, with the annotation that the next `kubectl apply` compares with. */
export function restoredConfiguration({ declared, bundles }: DesiredConfiguration): DeclaredConfiguration {
  const text = declarationText(declared);
  const { metadata, webhooks, ...rest } = declaredForm(declared);
  const annotations = { ...metadata.annotations, [LAST_APPLIED]: `${text}\n` };
  return { ...rest, metadata: { ...metadata, annotations }, webhooks: withBundles(webhooks, bundles) };
}

/** The annotation that makes AKS leave webhooks unchanged. */
const NOT_ENFORCED = "admissions.enforcer/disabled";
/**
 * Without the annotation, AKS adds these requirements to the namespaceSelector of every webhook, again after each
 * restore.
 */
const ENFORCED: readonly unknown[] = [
  { key: "control-plane", operator: "NotIn", values: ["true"] },
  { key: "control-plane", operator: "DoesNotExist" },
  { key: "kubernetes.azure.com/managedby", operator: "NotIn", values: ["aks"] },
];

/**
 * The object to update. Has `caBundle` and the secret segment of the live object, because the CA injector maintains
 * them. Carries the annotation against AKS's additions over: without it, AKS would add them again.
 */
export function updatedConfiguration(
  { declared, bundles }: DesiredConfiguration,
  live: LiveConfiguration,
): LiveConfiguration {
  const optOut = declared.metadata.annotations?.[NOT_ENFORCED];
  const annotations =
    optOut === undefined ? {} : { annotations: { ...live.metadata.annotations, [NOT_ENFORCED]: optOut } };
  const segments = new Map((live.webhooks ?? []).map((webhook) => [webhook.name, segmentOf(webhook)]));
  const webhooks = withBundles(declared.webhooks, { ...bundles, ...bundlesOf(live) });
  return {
    ...live,
    // An update without managedFields keeps the owners of the fields that it does not change.
    metadata: { ...live.metadata, managedFields: undefined, ...annotations },
    webhooks: webhooks.map((webhook) => withSegment(webhook, segments.get(webhook.name) ?? "")),
  };
}

/** The webhook without AKS's additions to its namespaceSelector. */
function withoutEnforced(webhook: ConfiguredWebhook): ConfiguredWebhook {
  const selector = Object(webhook.namespaceSelector);
  if (!Array.isArray(selector.matchExpressions)) return webhook;
  const isEnforced = (one: unknown): boolean => ENFORCED.some((known) => isDeepStrictEqual(one, known));
  const { matchExpressions, ...rest } = selector;
  const kept = matchExpressions.filter((one: unknown) => !isEnforced(one));
  return { ...webhook, namespaceSelector: kept.length === 0 ? rest : { ...rest, matchExpressions: kept } };
}

/**
 * Whether two objects have the same webhooks, in any order. Ignores AKS's additions where the declaration does not opt
 * out of them.
 */
export function hasSameWebhooks(
  one: LiveConfiguration,
  other: LiveConfiguration,
  { metadata }: Pick<DeclaredConfiguration, "metadata">,
): boolean {
  const isEnforced = metadata.annotations?.[NOT_ENFORCED] !== "true";
  const byName = ({ webhooks }: LiveConfiguration): unknown => {
    const sorted = [...(webhooks ?? [])].sort((a, b) => (a.name < b.name ? -1 : 1));
    return isEnforced ? sorted.map(withoutEnforced) : sorted;
  };
  return isDeepStrictEqual(byName(one), byName(other));
}

/** `pem` in the encoding of `caBundle`. */
export function encodeCaBundle(pem: string): string {
  return Buffer.from(pem, "utf8").toString("base64");
}

/** The fields of each webhook that the CA injector maintains. */
export interface Injected {
  readonly caBundle: string;
  /** `/~` and the secret of the path; empty for a path without a secret. */
  readonly segment: string;
}

/** Every webhook of the configuration has this `caBundle` and this segment. */
export function trusts({ webhooks }: LiveConfiguration, injected: Injected): boolean {
  return (webhooks ?? []).every((webhook) => isInjected(webhook, injected));
}

function isInjected(webhook: ConfiguredWebhook, { caBundle, segment }: Injected): boolean {
  return webhook.clientConfig.caBundle === caBundle && segmentOf(webhook) === segmentFor(webhook, segment);
}

/** A JSON patch that sets both; the apiserver refuses it as a conflict when the object has changed meanwhile. */
export function injectingPatch({ metadata, webhooks }: LiveConfiguration, injected: Injected): readonly object[] {
  const { caBundle, segment } = injected;
  const changed = (webhooks ?? []).flatMap((webhook, index) => {
    if (isInjected(webhook, injected)) return [];
    const { clientConfig } = withSegment(webhook, segmentFor(webhook, segment));
    return [{ op: "replace", path: `/webhooks/${index}/clientConfig`, value: { ...clientConfig, caBundle } }];
  });
  return [{ op: "replace", path: "/metadata/resourceVersion", value: metadata.resourceVersion }, ...changed];
}
