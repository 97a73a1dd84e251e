import "reflect-metadata";
import { generateKeyPairSync, KeyObject, webcrypto, X509Certificate } from "node:crypto";
import { BasicConstraintsExtension, SubjectKeyIdentifierExtension, X509CertificateGenerator } from "@peculiar/x509";
import { expect, onTestFinished, test } from "vitest";
import {
  fingerprintOf,
  PUBLISHED_CONFIG_MAP,
  splitCertificates,
  TRUSTED_CONFIG_MAP,
} from "../../shared/certificates/ca-bundle.ts";
import {
  createCertificateAuthority,
  issueCertificate,
  type KeyAndCertificate,
} from "../../shared/certificates/x509.ts";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse, Transport } from "../../shared/kube/client/transport.ts";
import { ROTATE_CA_ANNOTATION } from "../../shared/schema/annotations.ts";
import { type ProcessPorts, VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { type CertificateEvent, type CertificateIssuer, CertificateKeeper } from "./keeper.ts";
import { AUTHORITY_SECRET, parseStored, SERVING_SECRET, type StoredObject } from "./objects.ts";
import { ServerClock } from "./server-clock.ts";

const SECOND_MS = 1000;
const HOUR_MS = 3_600_000;
const terms = {
  authorityLifetimeMs: 12 * HOUR_MS,
  servingLifetimeMs: 3 * HOUR_MS,
  overlapMs: 120 * SECOND_MS,
  dnsNames: ["w.svc"],
};

/** Secrets and ConfigMaps with compare-and-swap, empty as the manifests make them. */
class Store {
  readonly objects = new Map<string, StoredObject>();
  /** The clock of the apiserver, for the dates of its responses. */
  nowMs: (() => number) | undefined;
  #version = 1;

  constructor() {
    for (const name of [`secrets/${AUTHORITY_SECRET}`, `secrets/${SERVING_SECRET}`]) this.put(name, {});
    for (const name of [`configmaps/${PUBLISHED_CONFIG_MAP}`, `configmaps/${TRUSTED_CONFIG_MAP}`]) this.put(name, {});
  }

  put(name: string, change: Partial<StoredObject>): void {
    const metadata = { ...change.metadata, resourceVersion: String(this.#version++) };
    this.objects.set(name, { ...this.objects.get(name), ...change, metadata });
  }

  text(name: string, key: string): string {
    const value = this.objects.get(name)?.data?.[key] ?? "";
    return name.startsWith("secrets/") ? Buffer.from(value, "base64").toString() : value;
  }

  readonly transport: Transport = {
    request: async ({ method, path, body }: ApiRequest): Promise<ApiResponse> => {
      const name = path.split("/").slice(-2).join("/");
      const found = this.objects.get(name);
      const answer = (status: number, object: unknown): ApiResponse => ({
        status,
        headers: this.nowMs === undefined ? {} : { date: new Date(this.nowMs()).toUTCString() },
        body: JSON.stringify(object),
      });
      if (found === undefined) return answer(404, { kind: "Status", reason: "NotFound", details: { name } });
      if (method === "GET") return answer(200, found);
      const given = parseStored(JSON.parse(body ?? ""));
      if (given.metadata.resourceVersion !== found.metadata.resourceVersion) return answer(409, { kind: "Status" });
      this.put(name, given);
      return answer(200, this.objects.get(name));
    },
    stream: () => Promise.reject(new Error("nothing is watched")),
    close: () => undefined,
  };
}

/** A cell that trusts what is published after a lag. */
class Cell {
  readonly #time: VirtualTime;
  readonly #store: Store;
  readonly #name: string;
  readonly #lagMs: number;
  trusted: string[] = [];

  constructor(time: VirtualTime, store: Store, name: string, lagMs: number) {
    [this.#time, this.#store, this.#name, this.#lagMs] = [time, store, name, lagMs];
    this.#look();
  }

  #look(): void {
    const published = splitCertificates(this.#store.text(`configmaps/${PUBLISHED_CONFIG_MAP}`, "ca.crt"));
    this.#time.timers.after(this.#lagMs, () => {
      if (published.length > 0) {
        this.trusted = published;
        const data = this.#store.objects.get(`configmaps/${TRUSTED_CONFIG_MAP}`)?.data;
        this.#store.put(`configmaps/${TRUSTED_CONFIG_MAP}`, {
          data: { ...data, [this.#name]: fingerprintOf(published) },
        });
      }
      this.#look();
    });
  }
}

interface Particulars {
  readonly store?: Store;
  readonly events?: CertificateEvent[];
  readonly transport?: Transport;
  readonly dnsNames?: readonly string[];
  readonly ports?: ProcessPorts;
}

function keeper(time: VirtualTime, store: Store, particulars: Particulars = {}): CertificateKeeper {
  const { events = [], transport = store.transport, dnsNames = terms.dnsNames, ports = time.process() } = particulars;
  const serverClock = new ServerClock(ports.clock);
  const options = {
    ...{ ports, serverClock },
    api: new ApiClient(serverClock.watch(transport)),
    namespace: "n",
    terms: { ...terms, dnsNames },
    intervalMs: 60 * SECOND_MS,
    timeoutMs: SECOND_MS,
    issuer: {
      createCertificateAuthority: (wanted) => time.hold(createCertificateAuthority(wanted)),
      issueCertificate: (authority, wanted) => time.hold(issueCertificate(authority, wanted)),
    } satisfies CertificateIssuer,
  };
  return new CertificateKeeper({ ...options, onEvent: (event) => events.push(event) });
}

/** Runs a keeper until the test has ended. */
function start({
  store = new Store(),
  time = new VirtualTime(),
  ...particulars
}: Particulars & { time?: VirtualTime } = {}) {
  const events: CertificateEvent[] = [];
  const one = keeper(time, store, { events, ...particulars });
  const ending = new AbortController();
  const running = one.run(ending.signal);
  onTestFinished(() => {
    ending.abort();
    return running;
  });
  return { time, store, events, one };
}

function verifies(certificate: string, authorities: readonly string[], nowMs: number): boolean {
  const served = new X509Certificate(certificate);
  const valid = (one: X509Certificate): boolean =>
    one.validFromDate.getTime() <= nowMs && nowMs < one.validToDate.getTime();
  return authorities
    .map((pem) => new X509Certificate(pem))
    .some((one) => valid(one) && valid(served) && served.verify(one.publicKey));
}

/** The seconds after which a cell did not trust what was served, of those that are looked at. */
async function outages(time: VirtualTime, store: Store, cells: readonly Cell[], seconds: number, every: number) {
  const broken: number[] = [];
  for (let second = 0; second < seconds; second += every) {
    await time.advance(every * SECOND_MS);
    const served = store.text(`secrets/${SERVING_SECRET}`, "tls.crt");
    if (!cells.every(({ trusted }) => verifies(served, trusted, time.clock.nowMs()))) broken.push(second);
  }
  return broken;
}

const step = (events: readonly CertificateEvent[], kind: string): number =>
  events.filter((event) => event.kind === kind).length;

test("over a day of short-lived authorities, two keepers always serve a certificate that cells verify", async () => {
  const time = new VirtualTime();
  const store = new Store();
  const events: CertificateEvent[] = [];
  const keepers = [keeper(time, store, { events }), keeper(time, store, { events })];
  const ending = new AbortController();
  const running = keepers.map((one) => one.run(ending.signal));
  const cells = [new Cell(time, store, "near", 30 * SECOND_MS), new Cell(time, store, "far", 600 * SECOND_MS)];
  await time.advance(HOUR_MS);
  const broken = await outages(time, store, cells, 24 * 60 * 60, 180);
  ending.abort();
  await time.advance(0);
  await Promise.all(running);
  expect(broken).toEqual([]);
  expect(step(events, "createAuthority")).toBeGreaterThan(2);
  expect(time.pendingTimers).toBe(cells.length);
});

test("a rotation that an operator asks for happens once and removes the annotation", async () => {
  const { time, store, events } = start();
  new Cell(time, store, "near", SECOND_MS);
  await time.advance(300 * SECOND_MS);
  const first = store.text(`secrets/${SERVING_SECRET}`, "tls.crt");
  const secret = store.objects.get(`secrets/${AUTHORITY_SECRET}`);
  store.put(`secrets/${AUTHORITY_SECRET}`, {
    ...secret,
    metadata: { resourceVersion: "", annotations: { [ROTATE_CA_ANNOTATION]: "true", other: "stays" } },
  });
  await time.advance(600 * SECOND_MS);
  expect(store.text(`secrets/${SERVING_SECRET}`, "tls.crt")).not.toBe(first);
  expect(step(events, "createAuthority")).toBe(2);
  expect(store.objects.get(`secrets/${AUTHORITY_SECRET}`)?.metadata.annotations).toEqual({ other: "stays" });
});

test("an authority waits for the overlap even when the response to its publication was lost", async () => {
  const store = new Store();
  const lost: Transport = {
    ...store.transport,
    request: async (request) => {
      const answer = await store.transport.request(request);
      const isPublication = request.method === "PUT" && request.path.endsWith(`configmaps/${PUBLISHED_CONFIG_MAP}`);
      if (isPublication && isCutOff) throw new Error("the connection was cut");
      return answer;
    },
  };
  let isCutOff = false;
  const { time } = start({ store, transport: lost });
  new Cell(time, store, "near", SECOND_MS);
  await time.advance(600 * SECOND_MS);
  const first = store.text(`secrets/${SERVING_SECRET}`, "tls.crt");
  isCutOff = true;
  const secret = store.objects.get(`secrets/${AUTHORITY_SECRET}`);
  const metadata = { resourceVersion: "", annotations: { [ROTATE_CA_ANNOTATION]: "true" } };
  store.put(`secrets/${AUTHORITY_SECRET}`, { ...secret, metadata });
  const published = (): number => splitCertificates(store.text(`configmaps/${PUBLISHED_CONFIG_MAP}`, "ca.crt")).length;
  while (published() < 2) await time.advance(SECOND_MS);
  isCutOff = false;
  await time.advance(terms.overlapMs - SECOND_MS);
  expect(store.text(`secrets/${SERVING_SECRET}`, "tls.crt")).toBe(first);
  await time.advance(terms.overlapMs);
  expect(store.text(`secrets/${SERVING_SECRET}`, "tls.crt")).not.toBe(first);
});

test("a webhook that apiservers call by its address gets a certificate for the address", async () => {
  const { time, store, events } = start({ dnsNames: ["w.svc", "10.1.2.3", "fd00::1"] });
  await time.advance(600 * SECOND_MS);
  const served = new X509Certificate(store.text(`secrets/${SERVING_SECRET}`, "tls.crt"));
  expect(served.subjectAltName).toBe("DNS:w.svc, IP Address:10.1.2.3, IP Address:FD00:0:0:0:0:0:0:1");
  expect(step(events, "issue")).toBe(1);
});

test("a damaged certificate in the published ConfigMap is dropped", async () => {
  const { time, store, one } = start();
  await time.advance(300 * SECOND_MS);
  const name = `configmaps/${PUBLISHED_CONFIG_MAP}`;
  const good = store.text(name, "ca.crt");
  const damaged = "-----BEGIN CERTIFICATE-----\nTUlJQg==\n-----END CERTIFICATE-----\n";
  store.put(name, { data: { "ca.crt": `${damaged}${good}` } });
  await time.advance(300 * SECOND_MS);
  expect(one.problem).toBeUndefined();
  expect(store.text(name, "ca.crt")).toBe(good);
});

test("where all but the serving certificate is lost, cells go on trusting it until they trust the next", async () => {
  const { time, store } = start();
  const cell = new Cell(time, store, "near", 30 * SECOND_MS);
  await time.advance(600 * SECOND_MS);
  const served = (): string => store.text(`secrets/${SERVING_SECRET}`, "tls.crt");
  const first = served();
  const objects = [`secrets/${AUTHORITY_SECRET}`, `configmaps/${PUBLISHED_CONFIG_MAP}`];
  for (const name of [...objects, `configmaps/${TRUSTED_CONFIG_MAP}`]) store.put(name, { data: {} });
  expect(await outages(time, store, [cell], 900, 1)).toEqual([]);
  expect(served()).not.toBe(first);
});

test.each([
  ["years ahead of the apiserver's", 3 * 365 * 24 * HOUR_MS],
  ["years behind it, as after the start of a machine without a battery", -3 * 365 * 24 * HOUR_MS],
])("a clock that is %s replaces nothing that the apiserver accepts", async (_, byMs) => {
  const time = new VirtualTime();
  const ports = time.process();
  const store = new Store();
  store.nowMs = time.clock.nowMs;
  const { one, events } = start({ time, ports, store });
  await time.advance(300 * SECOND_MS);
  const before = new Map(store.objects);
  ports.stepWallClock(byMs);
  await time.advance(300 * SECOND_MS);
  expect(store.objects).toEqual(before);
  expect(one.problem).toMatch(/^clock: this machine's is \d+ h (ahead of|behind) the apiserver's/);
  expect(events.at(-1)).toMatchObject({ kind: "failed", object: "clock" });
  ports.stepWallClock(-byMs);
  await time.advance(60 * SECOND_MS);
  expect(one.problem).toBeUndefined();
  expect(store.objects).toEqual(before);
});

test("a missing object is reported, and used once it exists", async () => {
  const store = new Store();
  store.objects.delete(`secrets/${SERVING_SECRET}`);
  const { time, events, one } = start({ store });
  await time.advance(30 * SECOND_MS);
  expect(one.problem).toMatch(/secrets\/podseidon-webhook-tls is not there: apply the manifests/);
  expect(events.at(-1)).toMatchObject({ kind: "failed", tag: "gone" });
  store.put(`secrets/${SERVING_SECRET}`, {});
  await time.advance(90 * SECOND_MS);
  expect(one.problem).toBeUndefined();
  expect(store.text(`secrets/${SERVING_SECRET}`, "tls.crt")).toContain("BEGIN CERTIFICATE");
});

const P256 = { name: "ECDSA", namedCurve: "P-256" };
const asWritten = (pem: string): string => pem;

test.each<[string, (pem: string) => string, typeof createCertificateAuthority]>([
  [
    "text before it, as `openssl x509 -text` writes",
    (pem) => `Certificate:\n    Data: Version: 3\n${pem}`,
    createCertificateAuthority,
  ],
  [
    "another label and other line ends",
    (pem) => pem.replaceAll("CERTIFICATE", "X509 CERTIFICATE").replaceAll("\n", "\r\n"),
    createCertificateAuthority,
  ],
  ["an identifier of its key as openssl gives it", asWritten, createForeignAuthority],
])("an authority of an operator with %s is published once, and signs once", async (_, written, create) => {
  const store = new Store();
  const nowMs = new VirtualTime().clock.nowMs();
  const made = await create({ commonName: "own", notBeforeMs: nowMs - HOUR_MS, notAfterMs: nowMs + 12 * HOUR_MS });
  const data = { "ca.crt": base64(written(made.certificatePem)), "ca.key": base64(made.privateKeyPem) };
  store.put(`secrets/${AUTHORITY_SECRET}`, { data });
  const { time, events } = start({ store });
  await time.advance(300 * SECOND_MS);
  expect(events.slice(0, 3).map(({ kind }) => kind)).toEqual(["publish", "issue", "none"]);
  const served = new X509Certificate(store.text(`secrets/${SERVING_SECRET}`, "tls.crt"));
  expect(served.verify(new X509Certificate(made.certificatePem).publicKey)).toBe(true);
  expect([step(events, "publish"), step(events, "issue")]).toEqual([1, 1]);
});

test.each([
  ["in an hour and a half, beside a cell that trusts nothing", 90 * 60 + 30, { gone: "what was published before" }],
  ["in five minutes", 5 * 60 + 10, {}],
])("an authority of an operator that ends %s is followed in time", async (_, seconds, trusted) => {
  const store = new Store();
  const nowMs = new VirtualTime().clock.nowMs();
  const validity = { notBeforeMs: nowMs - 12 * HOUR_MS, notAfterMs: nowMs + seconds * SECOND_MS };
  const made = await createCertificateAuthority({ commonName: "own", ...validity });
  const data = { "ca.crt": base64(made.certificatePem), "ca.key": base64(made.privateKeyPem) };
  store.put(`secrets/${AUTHORITY_SECRET}`, { data });
  store.put(`configmaps/${TRUSTED_CONFIG_MAP}`, { data: trusted });
  const { time, events } = start({ store });
  const cell = new Cell(time, store, "near", SECOND_MS);
  await time.advance(60 * SECOND_MS);
  expect(await outages(time, store, [cell], 2 * seconds, 10)).toEqual([]);
  expect(step(events, "issue")).toBeLessThanOrEqual(4);
});

/** Identifies its key by SHA-1, where this project's own authorities do it by SHA-256. */
async function createForeignAuthority(
  ...[{ commonName, notBeforeMs, notAfterMs }]: Parameters<typeof createCertificateAuthority>
): ReturnType<typeof createCertificateAuthority> {
  const keys = await webcrypto.subtle.generateKey(P256, true, ["sign", "verify"]);
  const certificate = await X509CertificateGenerator.createSelfSigned({
    name: `CN=${commonName}`,
    keys,
    notBefore: new Date(notBeforeMs),
    notAfter: new Date(notAfterMs),
    extensions: [
      new BasicConstraintsExtension(true, undefined, true),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  const privateKeyPem = KeyObject.from(keys.privateKey).export({ type: "pkcs8", format: "pem" }).toString();
  return { certificatePem: certificate.toString("pem"), privateKeyPem };
}

test.each<[string, (serving: KeyAndCertificate) => KeyAndCertificate | Promise<KeyAndCertificate>]>([
  ["that may sign no other", (serving) => serving],
  ["with a key that no apiserver knows", withUnknownKey],
])("a certificate %s is no authority: apiservers accept nothing that it signs", async (_, make) => {
  const { time, store, events } = start();
  const cell = new Cell(time, store, "near", SECOND_MS);
  await time.advance(300 * SECOND_MS);
  const served = (key: string): string => store.text(`secrets/${SERVING_SECRET}`, key);
  const given = await make({ certificatePem: served("tls.crt"), privateKeyPem: served("tls.key") });
  const data = { "ca.crt": base64(given.certificatePem), "ca.key": base64(given.privateKeyPem) };
  store.put(`secrets/${AUTHORITY_SECRET}`, { data });
  await time.advance(900 * SECOND_MS);
  expect(events.at(-1)?.kind).toBe("none");
  expect(cell.trusted.map((pem) => new X509Certificate(pem).ca)).toEqual([true, true]);
  expect(step(events, "createAuthority")).toBe(2);
});

async function withUnknownKey(): Promise<KeyAndCertificate> {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "secp256k1" });
  const { privateKey: signingKey } = await webcrypto.subtle.generateKey(P256, true, ["sign", "verify"]);
  const certificate = await X509CertificateGenerator.create({
    subject: "CN=own",
    issuer: "CN=own",
    publicKey: publicKey.export({ type: "spki", format: "der" }),
    signingKey,
    ...{ notBefore: new Date(0), notAfter: new Date(Date.UTC(2120, 0, 1)) },
    extensions: [new BasicConstraintsExtension(true, undefined, true)],
  });
  const privateKeyPem = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  return { certificatePem: certificate.toString("pem"), privateKeyPem };
}

function base64(text: string): string {
  return Buffer.from(text, "utf8").toString("base64");
}
