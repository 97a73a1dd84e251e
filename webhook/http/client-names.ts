/** The part of a TLS socket that names its client. */
interface NamedClient {
  readonly getPeerCertificate: () => {
    readonly subject?: { readonly CN?: unknown } | undefined;
    readonly subjectaltname?: string | undefined;
  };
}

/**
 * True when the caller's certificate is for one of `names`: its common name, or a DNS name of its subjectAltName. The
 * authority alone is not enough where it signs for clients other than apiservers. True for every caller without
 * `names`.
 */
export function isNamed(socket: NamedClient, names: readonly string[]): boolean {
  if (names.length === 0) return true;
  const { subject, subjectaltname = "" } = socket.getPeerCertificate();
  const dnsNames = subjectaltname.split(", ").map((name) => name.replace(/^DNS:/, ""));
  const commonNames: readonly unknown[] = [subject?.CN].flat();
  return names.some((name) => commonNames.includes(name) || dnsNames.includes(name));
}
