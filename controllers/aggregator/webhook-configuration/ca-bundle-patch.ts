/** The authorities in a webhook registration: which of its webhooks lack them, and the patch that puts them in. */
import * as v from "valibot";
import { checker } from "../../../shared/schema/check.ts";

const Metadata = v.looseObject({ name: v.string(), uid: v.string(), resourceVersion: v.string() });
const ClientConfig = v.looseObject({ caBundle: v.optional(v.nullable(v.string())) });

/** A ValidatingWebhookConfiguration or MutatingWebhookConfiguration, as far as it matters here; other fields are kept. */
export const parseRegistration = checker(
  v.looseObject({
    metadata: Metadata,
    webhooks: v.optional(v.nullable(v.array(v.looseObject({ clientConfig: ClientConfig })))),
  }),
);

export interface ConfigurationBundles {
  readonly metadata: { readonly name: string; readonly uid: string; readonly resourceVersion: string };
  readonly webhooks?:
    | readonly { readonly clientConfig: { readonly caBundle?: string | null | undefined } }[]
    | null
    | undefined;
}

interface Operation {
  readonly op: "replace" | "add";
  readonly path: string;
  readonly value: string;
}

/** `pem` as `caBundle` has it. */
export function encodeCaBundle(pem: string): string {
  return Buffer.from(pem, "utf8").toString("base64");
}

export function trusts({ webhooks }: ConfigurationBundles, caBundle: string): boolean {
  return (webhooks ?? []).every(({ clientConfig }) => clientConfig.caBundle === caBundle);
}

/** A JSON patch that is refused as a conflict when the registration has changed meanwhile. */
export function caBundlePatch({ metadata, webhooks }: ConfigurationBundles, caBundle: string): readonly Operation[] {
  const lacking = (webhooks ?? []).flatMap(({ clientConfig }, index) =>
    clientConfig.caBundle === caBundle ? [] : [index],
  );
  return [
    { op: "replace", path: "/metadata/resourceVersion", value: metadata.resourceVersion },
    ...lacking.map(
      (index) => ({ op: "add", path: `/webhooks/${index}/clientConfig/caBundle`, value: caBundle }) as const,
    ),
  ];
}
