import { expect, test } from "vitest";
import { isNamed } from "./client-names.ts";

const certificate = (subject: { readonly CN?: unknown; readonly O?: string } | undefined, subjectaltname?: string) => ({
  getPeerCertificate: () => ({ subject, subjectaltname }),
});

test.each([
  ["the common name", certificate({ CN: "apiserver" }), true],
  ["one of several common names", certificate({ CN: ["other", "apiserver"] }), true],
  ["a DNS name", certificate({ CN: "other" }, "IP Address:10.0.0.1, DNS:web, DNS:apiserver"), true],
  ["a DNS name alone", certificate(undefined, "DNS:apiserver"), true],
  ["another name", certificate({ CN: "other", O: "apiserver" }, "DNS:apiserver.web"), false],
  ["a part of the common name", certificate({ CN: "other, DNS:apiserver" }), false],
  ["another kind of name", certificate({ CN: "other" }, "URI:apiserver"), false],
  ["no certificate", certificate(undefined), false],
])("an apiserver is known by %s: %s", (_, socket, isKnown) => {
  expect(isNamed(socket, ["kube-apiserver", "apiserver"])).toBe(isKnown);
  expect(isNamed(socket, [])).toBe(true);
});
