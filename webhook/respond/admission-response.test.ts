import { expect, test } from "vitest";
import { type AdmissionResponse, encodeAdmissionReview } from "./admission-response.ts";

test.each(["r-1", "", '"', "\\", "a\nb", "ü", "\u2028", "\ud800"])(
  "a response that says nothing carries the uid %j",
  (uid) => {
    const expected = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response: { uid, allowed: true } };
    expect(encodeAdmissionReview(uid, {})).toBe(JSON.stringify(expected));
  },
);

test.each<[Omit<AdmissionResponse, "outcome">, object]>([
  [{ warnings: ["w"] }, { allowed: true, warnings: ["w"] }],
  // A warning travels as an HTTP header, which has one line.
  [{ warnings: ["because\r\n\tof this\n: so"] }, { allowed: true, warnings: ["because of this : so"] }],
  [{ auditAnnotations: { decision: "d" } }, { allowed: true, auditAnnotations: { decision: "d", review: "r-1" } }],
  [{ patch: [] }, { allowed: true, patchType: "JSONPatch", patch: "W10=" }],
  [
    { denial: { code: 429, reason: "TooManyRequests", message: "no" } },
    { allowed: false, status: { code: 429, reason: "TooManyRequests", message: "no" } },
  ],
])("the AdmissionReview has every field of the response: %j", (answer, response) => {
  expect(JSON.parse(encodeAdmissionReview("r-1", answer))).toEqual({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid: "r-1", ...response },
  });
});
