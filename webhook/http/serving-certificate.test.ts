import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, onTestFinished, test } from "vitest";
import { issueCertificate } from "../../shared/certificates/x509.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { authority, validity } from "../../test/support/webhook/loopback-certificate.ts";
import {
  readAuthorities,
  readServingCertificate,
  type ServingCertificate,
  watchServingCertificate,
} from "./serving-certificate.ts";

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

function write({ cert, key }: ServingCertificate): void {
  writeFileSync(certFile(), cert);
  writeFileSync(keyFile(), key);
}

/** Watches the files until the test has ended. */
function watch(served: ServingCertificate) {
  const time = new VirtualTime();
  const changed: ServingCertificate[] = [];
  const failed: unknown[] = [];
  const told: string[] = [];
  const stop = watchServingCertificate({
    ...{ tlsCertFile: certFile(), tlsPrivateKeyFile: keyFile(), served, timers: time.timers },
    changed: (certificate) => {
      told.push("changed");
      changed.push(certificate);
    },
    failed: (error) => {
      told.push("failed");
      failed.push(error);
    },
  });
  onTestFinished(() => {
    stop();
    expect(time.pendingTimers).toBe(0);
  });
  return { time, changed, failed, told };
}

test("a new pair is passed on once; half a pair is reported once, and passed on when it is complete", async () => {
  const first = await issue();
  const second = await issue();
  write(first);
  const { time, changed, failed } = watch(first);
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
});

test("the served pair that is back after one that can't be used is passed on, as the end of the failure", async () => {
  const first = await issue();
  write(first);
  const { time, told } = watch(first);
  for (const key of ["broken", first.key, "broken again", first.key]) {
    writeFileSync(keyFile(), key);
    await time.advance(60_000);
  }
  expect(told).toEqual(["failed", "changed", "failed", "changed"]);
});

test("a pair that was replaced between its first reading and the first check is passed on", async () => {
  const first = await issue();
  const second = await issue();
  write(first);
  const served = readServingCertificate({ tlsCertFile: certFile(), tlsPrivateKeyFile: keyFile() });
  write(second);
  const { time, changed, failed } = watch(served);
  await time.advance(60_000);
  expect({ changed, failed }).toEqual({ changed: [second], failed: [] });
});

test.each([
  ["that is damaged", "-----BEGIN CERTIFICATE-----\nMIIBAAAA\n-----END CERTIFICATE-----\n"],
  ["that was cut off", authority.certificatePem.slice(0, 200)],
])(
  "an authority %s behind another one is no file of authorities: OpenSSL would drop it without a word",
  (_, second) => {
    const file = join(folder, "ca.crt");
    writeFileSync(file, `# the old one\n${authority.certificatePem}# the new one\n${authority.certificatePem}`);
    expect(readAuthorities(file, "client CA")).toContain("# the new one");
    writeFileSync(file, `${authority.certificatePem}${second}`);
    expect(() => readAuthorities(file, "client CA")).toThrow(/does not hold a client CA in PEM form/);
  },
);
