import { describe, expect, test } from "vitest";
import { fingerprintOf } from "../../shared/certificates/ca-bundle.ts";
import {
  createCertificateAuthority,
  issueCertificate,
  type KeyAndCertificate,
} from "../../shared/certificates/x509.ts";
import { BACKDATE_MS, type CertificateState, type CertificateTerms, nextStep } from "./plan.ts";

const HOUR_MS = 3_600_000;
const NOW_MS = Date.UTC(2026, 0, 1);
const NAME = "podseidon-webhook.podseidon-system.svc";
const terms: CertificateTerms = {
  authorityLifetimeMs: 1000 * HOUR_MS,
  servingLifetimeMs: 90 * HOUR_MS,
  overlapMs: HOUR_MS,
  dnsNames: [NAME],
};

async function authority(ageHours: number): Promise<KeyAndCertificate> {
  const madeMs = NOW_MS - ageHours * HOUR_MS;
  const notAfterMs = madeMs + terms.authorityLifetimeMs;
  return await createCertificateAuthority({ commonName: "CA", notBeforeMs: madeMs - BACKDATE_MS, notAfterMs });
}

async function serving(by: KeyAndCertificate, ageHours: number, name = NAME): Promise<KeyAndCertificate> {
  const madeMs = NOW_MS - ageHours * HOUR_MS;
  const validity = { notBeforeMs: madeMs - BACKDATE_MS, notAfterMs: madeMs + terms.servingLifetimeMs };
  return await issueCertificate(by, { commonName: "webhook", dnsNames: [name], usages: ["server"], ...validity });
}

const [oldest, before, newest, spent] = [
  await authority(400),
  await authority(300),
  await authority(10),
  await authority(1001),
];
const [aging, ending] = [await authority(700), await authority(950)];
/** Created by a clock that was two days ahead. */
const early = await authority(-48);
const pems = (...pairs: readonly KeyAndCertificate[]): string[] => pairs.map((pair) => pair.certificatePem);

interface Case {
  readonly state: Partial<CertificateState>;
  /** Cells that trust what is published, and cells that trust another bundle. */
  readonly trusting?: readonly string[];
  readonly untrusting?: readonly string[];
  readonly trustedForMs?: number;
  readonly dnsNames?: readonly string[];
}

function step({ state, trusting = [], untrusting = [], trustedForMs, dnsNames = [NAME] }: Case): unknown {
  const published = state.published ?? [];
  const trusted = new Map([
    ...trusting.map((cell) => [cell, fingerprintOf(published)] as const),
    ...untrusting.map((cell) => [cell, "another"] as const),
  ]);
  const full = {
    authority: undefined,
    rotationAsked: false,
    serving: undefined,
    issuer: "",
    published,
    trusted,
    ...state,
  };
  return nextStep(full, { ...terms, dnsNames }, NOW_MS, trustedForMs);
}

/** In the middle of a rotation: the previous authority signed the certificate in use. */
const rotating = { authority: newest, published: pems(before, newest), serving: await serving(before, 20) };
/** Between rotations. */
const quiet = { authority: newest, published: pems(before, newest), serving: await serving(newest, 9) };

describe("the next step", async () => {
  test.each<[string, Case, unknown]>([
    ["the first authority", { state: {} }, { kind: "createAuthority", reason: "missing" }],
    ["a new authority after the last one has expired", { state: { authority: spent } }, { kind: "createAuthority" }],
    [
      "a new authority is published before it signs",
      { state: { authority: newest } },
      { kind: "publish", certificates: pems(newest) },
    ],
    [
      "the first certificate waits for no cell",
      { state: { authority: newest, published: pems(newest) }, untrusting: ["a"] },
      { kind: "issue", reason: "missing" },
    ],
    [
      "the authority of the certificate in use, which was lost, is published beside its successor",
      { state: { authority: newest, serving: await serving(before, 20), issuer: pems(before).join("") } },
      { kind: "publish", certificates: pems(before, newest) },
    ],
    [
      "an authority that did not sign the certificate in use is not published",
      { state: { authority: newest, serving: await serving(before, 20), issuer: pems(oldest).join("") } },
      { kind: "publish", certificates: pems(newest) },
    ],
    [
      "of the published authorities only the last one stays, where none signed the certificate in use",
      { state: { authority: newest, published: pems(oldest, before, newest) } },
      { kind: "publish", certificates: pems(before, newest) },
    ],
    [
      "an authority that has expired is dropped",
      { state: { ...quiet, published: pems(spent, newest) } },
      { kind: "publish", certificates: pems(newest) },
    ],
    [
      "a certificate that has expired is replaced, whatever else is to do",
      { state: { ...quiet, serving: await serving(newest, 91), rotationAsked: true } },
      { kind: "issue", reason: "missing" },
    ],
    ["nothing to do", { state: quiet, trusting: ["a"] }, { kind: "none" }],
    [
      "a new authority is published beside the one in use, and older ones are dropped",
      { state: { ...rotating, published: pems(oldest, before) } },
      { kind: "publish", certificates: pems(before, newest) },
    ],
    [
      "the authority in use stays published, even when it is neither the previous one nor the recorded one",
      {
        state: {
          ...{ ...rotating, published: pems(oldest, before), serving: await serving(oldest, 20) },
          issuer: pems(before).join(""),
        },
      },
      { kind: "publish", certificates: pems(oldest, newest) },
    ],
    [
      "a rotation waits for a cell that does not trust the new authority",
      { state: rotating, trusting: ["a"], untrusting: ["b"] },
      { kind: "wait", cells: ["b"] },
    ],
    [
      "when all cells trust it, the rotation waits for the overlap",
      { state: rotating, trusting: ["a"], trustedForMs: terms.overlapMs - 1 },
      { kind: "wait", cells: [] },
    ],
    [
      "after the overlap the new authority signs",
      { state: rotating, trusting: ["a"], trustedForMs: terms.overlapMs },
      { kind: "issue", reason: "rotation" },
    ],
    [
      "a rotation waits while no cell has acknowledged anything",
      { state: rotating, trustedForMs: terms.overlapMs },
      { kind: "wait", cells: [] },
    ],
    [
      "a certificate that is about to expire is replaced, whatever the cells trust",
      { state: { ...rotating, serving: await serving(before, 76) }, untrusting: ["b"] },
      { kind: "issue", reason: "overdue" },
    ],
    [
      "until then it stays, because some cells trust nothing else",
      { state: { ...rotating, serving: await serving(before, 74) }, trusting: ["c"], untrusting: ["b", "a"] },
      { kind: "wait", cells: ["a", "b"] },
    ],
    [
      "a renewal by the authority in use waits for no cell",
      { state: { ...quiet, serving: await serving(newest, 61) }, untrusting: ["b"] },
      { kind: "issue", reason: "expiring" },
    ],
    ["no renewal sooner", { state: { ...quiet, serving: await serving(newest, 59) } }, { kind: "none" }],
    [
      "a certificate that is not valid yet is replaced",
      { state: { ...quiet, serving: await serving(newest, -48) }, trusting: ["a"] },
      { kind: "issue", reason: "early" },
    ],
    [
      "an authority that is not valid yet is replaced",
      { state: { authority: early, published: pems(early), serving: await serving(early, -48) }, trusting: ["a"] },
      { kind: "createAuthority", reason: "early" },
    ],
    [
      "its successor signs at once, because no apiserver accepts the certificate in use",
      {
        state: { authority: newest, published: pems(early, newest), serving: await serving(early, -48) },
        untrusting: ["a"],
      },
      { kind: "issue", reason: "early" },
    ],
    [
      "a certificate for another host name is replaced",
      { state: { ...quiet, serving: await serving(newest, 9, "other.svc") } },
      { kind: "issue", reason: "names" },
    ],
    [
      "a certificate for one of two host names is replaced",
      { state: quiet, dnsNames: [NAME, "other.svc"] },
      { kind: "issue", reason: "names" },
    ],
    [
      "an authority near its end is replaced",
      { state: { authority: aging, published: pems(aging), serving: await serving(aging, 9) } },
      { kind: "createAuthority", reason: "expiring" },
    ],
    [
      "an operator asks for a new authority",
      { state: { ...quiet, rotationAsked: true } },
      { kind: "createAuthority", reason: "asked" },
    ],
    [
      "before a rotation an older certificate is renewed, so that cells have time",
      { state: { ...quiet, serving: await serving(newest, 31), rotationAsked: true } },
      { kind: "issue", reason: "beforeRotation" },
    ],
    [
      "one that is newer is not",
      { state: { ...quiet, serving: await serving(newest, 29), rotationAsked: true } },
      { kind: "createAuthority", reason: "asked" },
    ],
    [
      "nor one that ends after its authority",
      { state: { authority: ending, published: pems(ending), serving: await serving(ending, 31) } },
      { kind: "createAuthority", reason: "expiring" },
    ],
    [
      "no rotation before every replica has loaded the certificate of the last one",
      { state: { ...quiet, serving: await serving(newest, 0), rotationAsked: true } },
      { kind: "none" },
    ],
    [
      "no second rotation before the first has ended",
      { state: { ...rotating, rotationAsked: true }, untrusting: ["b"] },
      { kind: "wait", cells: ["b"] },
    ],
    [
      "a certificate of an authority that is not published is replaced",
      { state: { ...quiet, published: pems(newest), serving: await serving(oldest, 9) } },
      { kind: "issue", reason: "missing" },
    ],
    [
      "after the loss of an authority's key its certificate stays published beside the new one",
      { state: { authority: newest, published: pems(before), serving: await serving(before, 9) } },
      { kind: "publish", certificates: pems(before, newest) },
    ],
  ])("%s", (_name, given, expected) => {
    expect(step(given)).toMatchObject(expected as object);
  });
});
