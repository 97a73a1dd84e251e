/** The Secrets with the certificates, in the webhook's namespace, and how they are read and written. */
import { createPrivateKey, X509Certificate } from "node:crypto";
import * as v from "valibot";
import { type KeyAndCertificate, signingAlgorithm } from "../../shared/certificates/x509.ts";
import { checker } from "../../shared/schema/check.ts";

/** A Secret: the newest authority with its key (`ca.crt`, `ca.key`). Only this controller reads it. */
export const AUTHORITY_SECRET = "podseidon-webhook-ca";
/** The key of the authority's certificate in this Secret, and in that of the serving certificate. */
export const AUTHORITY_KEY = "ca.crt";
/**
 * A Secret: the serving certificate (`tls.crt`, `tls.key`), which the webhook mounts, and the authority that signed it
 * (`ca.crt`).
 */
export const SERVING_SECRET = "podseidon-webhook-tls";

export interface StoredObject {
  readonly metadata: {
    readonly resourceVersion: string;
    readonly annotations?: Readonly<Record<string, string>> | null | undefined;
  };
  readonly data?: Readonly<Record<string, string>> | null | undefined;
  readonly [field: string]: unknown;
}

/** A Secret or ConfigMap with all its fields, so that it can be written back. */
export const parseStored: (raw: unknown) => StoredObject = checker(
  v.looseObject({
    metadata: v.looseObject({
      resourceVersion: v.string(),
      annotations: v.nullish(v.record(v.string(), v.string())),
    }),
    data: v.nullish(v.record(v.string(), v.string())),
  }),
);

/**
 * Undefined when the Secret lacks the pair, when key and certificate do not belong together, or for an authority that
 * may not or can't sign certificates. The certificate is encoded again, because an operator's file may have text before
 * it, and publications are compared by their text.
 */
export function pairOf(
  secret: StoredObject,
  certificateKey: string,
  privateKeyKey: string,
): KeyAndCertificate | undefined {
  const privateKeyPem = decoded(secret, privateKeyKey);
  try {
    const certificate = new X509Certificate(decoded(secret, certificateKey));
    const privateKey = createPrivateKey(privateKeyPem);
    const signs = certificateKey !== AUTHORITY_KEY || (certificate.ca && signingAlgorithm(privateKey) !== undefined);
    const fits = signs && certificate.checkPrivateKey(privateKey);
    return fits ? { certificatePem: certificate.toString(), privateKeyPem } : undefined;
  } catch {
    return undefined;
  }
}

/** A value of the Secret as text; empty when it is not there. */
export function decoded({ data }: StoredObject, key: string): string {
  return Buffer.from(data?.[key] ?? "", "base64").toString("utf8");
}

/** The object with this `data`, and without one annotation. */
export function withData(
  object: StoredObject,
  data: Readonly<Record<string, string>>,
  withoutAnnotation?: string,
): StoredObject {
  const annotations = Object.entries(object.metadata.annotations ?? {}).filter(([name]) => name !== withoutAnnotation);
  return { ...object, metadata: { ...object.metadata, annotations: Object.fromEntries(annotations) }, data };
}

export function encoded(text: string): string {
  return Buffer.from(text, "utf8").toString("base64");
}
