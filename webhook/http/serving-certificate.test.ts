import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { issueCertificate } from "../../shared/certificates/x509.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { authority, validity } from "../../test/support/webhook/loopback-certificate.ts";
import { readServingCertificate, type ServingCertificate, watchServingCertificate } from "./serving-certificate.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "certificate-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

async function issue(): Promise<ServingCertificate> {
  const { certificatePem, privateKeyPem } = await issueCertificate(authority, {
    ...validity,
    commonName: "webhook",
    usages: ["server"],
  });
  return { cert: certificatePem, key: privateKeyPem };
}

const certFile = (): string => join(folder, "tls.crt");
const keyFile = (): string => join(folder, "tls.key");

test("a new pair is passed on once; half a pair is reported once, and passed on when it is complete", async () => {
  const time = new VirtualTime();
  const first = await issue();
  const second = await issue();
  writeFileSync(certFile(), first.cert);
  writeFileSync(keyFile(), first.key);
  const changed: ServingCertificate[] = [];
  const failed: unknown[] = [];
  const stop = watchServingCertificate({
    tlsCertFile: certFile(),
    tlsPrivateKeyFile: keyFile(),
    served: first,
    timers: time.timers,
    changed: (certificate) => changed.push(certificate),
    failed: (error) => failed.push(error),
  });
  await time.advance(60_000);
  expect({ changed, failed }).toEqual({ changed: [], failed: [] });
  writeFileSync(certFile(), second.cert);
  await time.advance(60_000);
  expect(changed).toEqual([]);
  expect(failed).toMatchObject([{ tag: "mismatch" }]);
  writeFileSync(keyFile(), second.key);
  await time.advance(60_000);
  expect(changed).toEqual([second]);
  expect(failed).toHaveLength(1);
  stop();
  expect(time.pendingTimers).toBe(0);
});

test("the served pair that is back after one that can't be used is passed on, as the end of the failure", async () => {
  const time = new VirtualTime();
  const first = await issue();
  writeFileSync(certFile(), first.cert);
  writeFileSync(keyFile(), first.key);
  const told: string[] = [];
  const stop = watchServingCertificate({
    tlsCertFile: certFile(),
    tlsPrivateKeyFile: keyFile(),
    served: first,
    timers: time.timers,
    changed: () => told.push("changed"),
    failed: () => told.push("failed"),
  });
  for (const key of ["broken", first.key, "broken again", first.key]) {
    writeFileSync(keyFile(), key);
    await time.advance(60_000);
  }
  expect(told).toEqual(["failed", "changed", "failed", "changed"]);
  stop();
});

test("a pair that was replaced between its first reading and the first check is passed on", async () => {
  const time = new VirtualTime();
  const first = await issue();
  const second = await issue();
  writeFileSync(certFile(), first.cert);
  writeFileSync(keyFile(), first.key);
  const served = readServingCertificate({ tlsCertFile: certFile(), tlsPrivateKeyFile: keyFile() });
  writeFileSync(certFile(), second.cert);
  writeFileSync(keyFile(), second.key);
  const changed: ServingCertificate[] = [];
  const stop = watchServingCertificate({
    tlsCertFile: certFile(),
    tlsPrivateKeyFile: keyFile(),
    served,
    timers: time.timers,
    changed: (certificate) => changed.push(certificate),
    failed: (error) => {
      throw error;
    },
  });
  await time.advance(60_000);
  expect(changed).toEqual([second]);
  stop();
});
