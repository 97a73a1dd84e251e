/**
 * The webhook configurations of a cell, like in the manifests (docs/design.md#webhook-configuration), for a webhook
 * with a URL.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import { field } from "../control-plane/api-client.ts";
import { root } from "../root.ts";

export interface RegistrationOptions {
  readonly cell: string;
  /** `https://HOST:PORT`. */
  readonly url: string;
  readonly caPem: string;
  readonly timeoutSeconds?: number;
}

type Webhook = Readonly<Record<string, unknown>>;

/** A configuration of the manifests, with a URL in place of the Service, and its webhooks changed by `change`. */
function shipped(
  file: string,
  kind: string,
  { cell, url, caPem }: RegistrationOptions,
  change: (webhook: Webhook) => readonly Webhook[],
): unknown {
  const documents = loadAll(readFileSync(join(root, "manifests", file), "utf8"));
  const { apiVersion, metadata, webhooks } = Object(documents.find((one) => field(one, "kind") === kind));
  const caBundle = Buffer.from(caPem).toString("base64");
  const withUrl = (webhook: unknown): Webhook => {
    const path = String(field(webhook, "clientConfig", "service", "path")).replace("CELL", cell);
    return { ...Object(webhook), clientConfig: { url: `${url}${path}`, caBundle } };
  };
  return { apiVersion, kind, metadata: { name: metadata.name }, webhooks: webhooks.map(withUrl).flatMap(change) };
}

/** The webhook configuration of the counted gate. */
export function gateRegistration(options: RegistrationOptions): unknown {
  const file = "components/counted-gate/webhook-configuration.yaml";
  // A second in the manifests; a busy machine must not fail a test.
  return shipped(file, "MutatingWebhookConfiguration", options, (one) => [{ ...one, timeoutSeconds: 10 }]);
}

/** What the webhook decides about without the match conditions of the manifests, so that tests meet its own. */
const BARE_RULES = ["DELETE pods", "CREATE pods/eviction", "UPDATE pods pods/resize"].map((text) => {
  const [operation, ...resources] = text.split(" ");
  return { apiGroups: [""], apiVersions: ["v1"], operations: [operation], resources, scope: "Namespaced" };
});

/** A ValidatingWebhookConfiguration and a MutatingWebhookConfiguration. */
export function registrations(options: RegistrationOptions): readonly unknown[] {
  const file = "base/webhook-configuration/webhook-configuration.yaml";
  const bare = { timeoutSeconds: options.timeoutSeconds ?? 10, namespaceSelector: undefined };
  return [
    shipped(file, "ValidatingWebhookConfiguration", options, (one) => {
      const [name] = String(one.name).split(".");
      if (name === "pods") return [{ ...one, ...bare, matchConditions: undefined, rules: BARE_RULES }];
      return name === "nodes" || name === "statuses" ? [{ ...one, ...bare, namespaceSelector: {} }] : [];
    }),
    shipped(file, "MutatingWebhookConfiguration", options, (one) => [
      { ...one, ...bare, reinvocationPolicy: undefined },
    ]),
  ];
}
