/**
 * The form that a cell's registration is to have (design 7): what a file says, or what its operator declared last. Pure. `caBundle` is no
 * part of it: whoever keeps the certificates changes that.
 */
import * as v from "valibot";
import { checker } from "../../../shared/schema/check.ts";

const Texts = v.optional(v.nullable(v.record(v.string(), v.string())));
const Webhook = v.looseObject({
  name: v.string(),
  clientConfig: v.looseObject({ caBundle: v.optional(v.nullable(v.string())) }),
});
export type ConfiguredWebhook = v.InferOutput<typeof Webhook>;

const Metadata = {
  name: v.string(),
  labels: Texts,
  annotations: Texts,
};

/** A ValidatingWebhookConfiguration or MutatingWebhookConfiguration as it is served. */
const Live = v.looseObject({
  metadata: v.looseObject({ ...Metadata, uid: v.string(), resourceVersion: v.string() }),
  webhooks: v.optional(v.nullable(v.array(Webhook))),
});
export type LiveConfiguration = v.InferOutput<typeof Live>;
export const parseLiveConfiguration: (raw: unknown) => LiveConfiguration = checker(Live);

/** The same as somebody declares it. */
const Declared = v.looseObject({
  kind: v.string(),
  metadata: v.looseObject(Metadata),
  webhooks: v.optional(v.nullable(v.array(Webhook))),
});
export type DeclaredConfiguration = v.InferOutput<typeof Declared>;
/** Throws `SchemaError`. */
export const parseDeclaredConfiguration: (raw: unknown) => DeclaredConfiguration = checker(Declared);

const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";

/** What `kubectl apply` was given last; undefined where the object was made in another way, or says something that can't be read. */
export function lastApplied({ metadata }: LiveConfiguration): DeclaredConfiguration | undefined {
  const text = metadata.annotations?.[LAST_APPLIED];
  if (text === undefined) return undefined;
  try {
    return parseDeclaredConfiguration(JSON.parse(text));
  } catch {
    return undefined;
  }
}

/** The declaration without what changes by itself; two are the same when their texts are. */
export function declarationText({ kind, metadata, webhooks }: DeclaredConfiguration): string {
  const { name, labels, annotations } = metadata;
  const { [LAST_APPLIED]: _, ...kept } = annotations ?? {};
  return JSON.stringify({
    apiVersion: "admissionregistration.k8s.io/v1",
    kind,
    metadata: { name, labels: labels ?? {}, annotations: kept },
    webhooks: (webhooks ?? []).map(withoutBundle),
  });
}

/** A live object as a declaration: for the first sight of one that nobody declared by `kubectl apply`. */
export function declarationOf(kind: string, { metadata, webhooks }: LiveConfiguration): DeclaredConfiguration {
  const { name, labels, annotations } = metadata;
  return { kind, metadata: { name, labels, annotations }, webhooks };
}

function withoutBundle(webhook: ConfiguredWebhook): ConfiguredWebhook {
  const { caBundle: _, ...clientConfig } = webhook.clientConfig;
  return { ...webhook, clientConfig };
}

/** `caBundle` by webhook; those without are left out. */
export function bundlesOf({ webhooks }: Pick<LiveConfiguration, "webhooks">): Record<string, string> {
  return Object.fromEntries(
    (webhooks ?? []).flatMap(({ name, clientConfig: { caBundle } }) =>
      caBundle === undefined || caBundle === null || caBundle === "" ? [] : [[name, caBundle]],
    ),
  );
}

/** The declared webhooks with the authorities that are known; one that is new gets those of any other. */
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
  const segment = (text: unknown): unknown =>
    typeof text === "string" ? text.replace(/\/CELL(?=\/|$)/, `/${cellID}`) : text;
  const webhooks = (declared.webhooks ?? []).map((webhook) => {
    const { service, url, ...rest } = webhook.clientConfig;
    const isService = typeof service === "object" && service !== null;
    const clientConfig = {
      ...rest,
      ...(isService ? { service: { ...service, path: segment(Reflect.get(service, "path")) } } : {}),
      ...(url === undefined ? {} : { url: segment(url) }),
    };
    return { ...webhook, clientConfig };
  });
  return { ...declared, webhooks };
}
