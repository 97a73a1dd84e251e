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
const aging = await authority(700);
/** Made while the clock was two days ahead. */
const early = await authority(-48);
const pems = (...pairs: readonly KeyAndCertificate[]): string[] => pairs.map((pair) => pair.certificatePem);

interface Case {
  readonly state: Partial<CertificateState>;
  /** Cells that trust what is published, and cells that trust something else. */
  readonly trusting?: readonly string[];
  readonly untrusting?: readonly string[];
  readonly trustedForMs?: number;
}

function step({ state, trusting = [], untrusting = [], trustedForMs }: Case): unknown {
  const published = state.published ?? [];
  const trusted = new Map([
    ...trusting.map((cell) => [cell, fingerprintOf(published)] as const),
    ...untrusting.map((cell) => [cell, "another"] as const),
  ]);
  const full = { authority: undefined, rotationAsked: false, serving: undefined, published, trusted, ...state };
  return nextStep(full, terms, NOW_MS, trustedForMs);
}

/** A rotation under way: what is served is signed by the authority before. */
const rotating = { authority: newest, published: pems(before, newest), serving: await serving(before, 20) };
/** Nothing to do. */
const quiet = { authority: newest, published: pems(before, newest), serving: await serving(newest, 9) };

describe("the next step", async () => {
  test.each<[string, Case, unknown]>([
    ["at first, an authority", { state: {} }, { kind: "createAuthority", reason: "missing" }],
    ["an authority instead of one that is over", { state: { authority: spent } }, { kind: "createAuthority" }],
    [
      "an authority is published before it signs",
      { state: { authority: newest } },
      { kind: "publish", certificates: pems(newest) },
    ],
    [
      "a certificate where there is none, whatever the cells trust",
      { state: { authority: newest, published: pems(newest) }, untrusting: ["a"] },
      { kind: "issue", reason: "missing" },
    ],
    ["nothing", { state: quiet, trusting: ["a"] }, { kind: "none" }],
    [
      "a new authority is published beside the one in use, without those before it",
      { state: { ...rotating, published: pems(oldest, before) } },
      { kind: "publish", certificates: pems(before, newest) },
    ],
    [
      "the one in use stays published, even where it is not the last one",
      { state: { ...rotating, published: pems(oldest, before), serving: await serving(oldest, 20) } },
      { kind: "publish", certificates: pems(oldest, newest) },
    ],
    [
      "a cell that lacks it is waited for",
      { state: rotating, trusting: ["a"], untrusting: ["b"] },
      { kind: "wait", cells: ["b"] },
    ],
    [
      "then the overlap is",
      { state: rotating, trusting: ["a"], trustedForMs: terms.overlapMs - 1 },
      { kind: "wait", cells: [] },
    ],
    [
      "then the new authority signs",
      { state: rotating, trusting: ["a"], trustedForMs: terms.overlapMs },
      { kind: "issue", reason: "rotation" },
    ],
    [
      "with no cell that tells, it waits",
      { state: rotating, trustedForMs: terms.overlapMs },
      { kind: "wait", cells: [] },
    ],
    [
      "until the certificate is about to expire",
      { state: { ...rotating, serving: await serving(before, 76) }, untrusting: ["b"] },
      { kind: "issue", reason: "overdue" },
    ],
    [
      "renewal by the authority in use asks no cell",
      { state: { ...quiet, serving: await serving(newest, 61) }, untrusting: ["b"] },
      { kind: "issue", reason: "expiring" },
    ],
    [
      "a certificate that a clock which was ahead has made for later",
      { state: { ...quiet, serving: await serving(newest, -48) }, trusting: ["a"] },
      { kind: "issue", reason: "early" },
    ],
    [
      "an authority instead of one that is for later",
      { state: { authority: early, published: pems(early), serving: await serving(early, -48) }, trusting: ["a"] },
      { kind: "createAuthority", reason: "early" },
    ],
    [
      "which signs at once, as what the other has signed helps nobody",
      {
        state: { authority: newest, published: pems(early, newest), serving: await serving(early, -48) },
        untrusting: ["a"],
      },
      { kind: "issue", reason: "early" },
    ],
    [
      "another name of the Service",
      { state: { ...quiet, serving: await serving(newest, 9, "other.svc") } },
      { kind: "issue", reason: "names" },
    ],
    [
      "an authority that grows old",
      { state: { authority: aging, published: pems(aging), serving: await serving(aging, 9) } },
      { kind: "createAuthority", reason: "expiring" },
    ],
    [
      "an authority that is asked for",
      { state: { ...quiet, rotationAsked: true } },
      { kind: "createAuthority", reason: "asked" },
    ],
    [
      "with a fresh certificate first, where the one in use leaves the cells little time",
      { state: { ...quiet, serving: await serving(newest, 31), rotationAsked: true } },
      { kind: "issue", reason: "beforeRotation" },
    ],
    [
      "not before every replica has the certificate of the last rotation",
      { state: { ...quiet, serving: await serving(newest, 0), rotationAsked: true } },
      { kind: "none" },
    ],
    [
      "not while a rotation is under way",
      { state: { ...rotating, rotationAsked: true }, untrusting: ["b"] },
      { kind: "wait", cells: ["b"] },
    ],
    [
      "a certificate of an authority that nobody is told to trust helps nobody",
      { state: { ...quiet, published: pems(newest), serving: await serving(oldest, 9) } },
      { kind: "issue", reason: "missing" },
    ],
    [
      "a lost authority: the one in use stays trusted while a new one is rolled out",
      { state: { authority: newest, published: pems(before), serving: await serving(before, 9) } },
      { kind: "publish", certificates: pems(before, newest) },
    ],
  ])("%s", (_name, given, expected) => {
    expect(step(given)).toMatchObject(expected as object);
  });
});
