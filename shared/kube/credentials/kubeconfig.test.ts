import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { temporaryDirectory } from "../../../test/support/runtime/temporary-directory.ts";
import { createCertificateAuthority, issueCertificate } from "../../certificates/x509.ts";
import { AccessError, type KubeconfigEvent } from "./cluster-access.ts";
import { loadClusterAccess } from "./kubeconfig.ts";

const VALID = { notBeforeMs: 0, notAfterMs: Date.UTC(2100, 0, 1) };
const authority = await createCertificateAuthority({ ...VALID, commonName: "test" });
const client = await issueCertificate(authority, { ...VALID, commonName: "me", usages: ["client"] });
const other = await issueCertificate(authority, { ...VALID, commonName: "you", usages: ["client"] });
const base64 = (text: string): string => Buffer.from(text).toString("base64");
const SECRET = "s3cr3t-token";

const root = temporaryDirectory();
let directory: string;
let count = 0;
beforeEach(() => {
  directory = join(root, `${++count}`);
  mkdirSync(directory);
});

function write(name: string, content: string): string {
  const path = join(directory, name);
  writeFileSync(path, content);
  return path;
}

interface Parts {
  readonly cluster?: object;
  readonly user?: object | null;
  readonly extra?: object;
}

function kubeconfig({ cluster = {}, user = { token: SECRET }, extra = {} }: Parts = {}): string {
  return write(
    "config",
    JSON.stringify({
      "current-context": "here",
      contexts: [{ name: "here", context: { cluster: "c", user: "u", namespace: "ns" } }],
      clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:6443/", ...cluster } }],
      users: [{ name: "u", user }],
      ...extra,
    }),
  );
}

async function accessError(work: Promise<unknown>): Promise<AccessError> {
  const error = await work.catch((thrown: unknown) => thrown);
  if (!(error instanceof AccessError)) throw new Error(`no AccessError: ${String(error)}`);
  return error;
}

describe("access from a kubeconfig", () => {
  test("server, namespace and a token", async () => {
    const access = await loadClusterAccess(kubeconfig());
    expect([access.server, access.namespace]).toEqual(["https://127.0.0.1:6443", "ns"]);
    expect((await access.credentials.current(0)).authorization).toBe(`Bearer ${SECRET}`);
    expect(access.description).not.toContain(SECRET);
  });

  test("an empty namespace is none", async () => {
    const contexts = [{ name: "here", context: { cluster: "c", user: "u", namespace: "" } }];
    expect((await loadClusterAccess(kubeconfig({ extra: { contexts } }))).namespace).toBeUndefined();
  });

  test("another context without a cluster, as one of a namespace alone, disturbs nothing", async () => {
    const contexts = [
      { name: "here", context: { cluster: "c", user: "u", namespace: "ns" } },
      { name: "other", context: { namespace: "x" } },
    ];
    const path = kubeconfig({ extra: { contexts } });
    expect((await loadClusterAccess(path)).namespace).toBe("ns");
    const error = await accessError(loadClusterAccess(path, { context: "other" }));
    expect([error.tag, error.message]).toEqual(["unknown-cluster", expect.stringContaining('the cluster ""')]);
  });

  test.each(["certificate-authority", "certificate-authority-data"])("insecure beside a %s is refused", async (ca) => {
    const cluster = { "insecure-skip-tls-verify": true, [ca]: base64(authority.certificatePem) };
    const error = await accessError(loadClusterAccess(kubeconfig({ cluster })));
    expect(error.tag).toBe("certificate");
    expect(error.message).toContain("insecure-skip-tls-verify");
  });

  test.each<[string, object, boolean]>([
    ["insecure-skip-tls-verify", { "insecure-skip-tls-verify": true }, true],
    ["a server without TLS", { server: "http://127.0.0.1:8080" }, true],
    ["the machine's trust store", {}, false],
  ])("a server that nothing verifies is told: %s", async (_, cluster, isTold) => {
    const told: KubeconfigEvent[] = [];
    const path = kubeconfig({ cluster, user: { token: "secret" } });
    await loadClusterAccess(path, { onEvent: (event) => told.push(event) });
    expect(told).toEqual(isTold ? [{ kind: "unverified", path: expect.stringContaining(`${path} (context `) }] : []);
  });

  test("an empty tls-server-name is none: the server is told the name of its URL", async () => {
    const access = await loadClusterAccess(kubeconfig({ cluster: { "tls-server-name": "" }, user: { token: "t" } }));
    expect((await access.credentials.current(0)).tls.serverName).toBeUndefined();
  });

  test("YAML as kubectl writes it", async () => {
    const path = write(
      "config",
      `apiVersion: v1
kind: Config
current-context: a
contexts:
- name: a
  context: {cluster: c, user: u}
clusters:
- name: c
  cluster:
    server: http://localhost:8001
users:
- name: u
  user: {}
`,
    );
    expect((await loadClusterAccess(path)).server).toBe("http://localhost:8001");
  });

  test.each([
    ["basic authentication", { username: "me", password: "pw" }, `Basic ${base64("me:pw")}`],
    ["no user at all", null, undefined],
  ])("%s", async (_, user, authorization) => {
    const access = await loadClusterAccess(kubeconfig({ user }));
    expect((await access.credentials.current(0)).authorization).toBe(authorization);
  });

  test("certificates, inline or in files beside the kubeconfig", async () => {
    write("client.crt", client.certificatePem);
    write("client.key", client.privateKeyPem);
    write("ca.crt", authority.certificatePem);
    const inline = {
      cluster: { "certificate-authority-data": base64(authority.certificatePem), "tls-server-name": "api" },
      user: {
        "client-certificate-data": base64(client.certificatePem),
        "client-key-data": base64(client.privateKeyPem),
      },
    };
    const files = {
      cluster: { "certificate-authority": "ca.crt", "tls-server-name": "api" },
      user: { "client-certificate": "client.crt", "client-key": "client.key" },
    };
    for (const parts of [inline, files]) {
      const { tls } = await (await loadClusterAccess(kubeconfig(parts))).credentials.current(0);
      expect([tls.ca, tls.cert, tls.key, tls.serverName]).toEqual([
        authority.certificatePem,
        client.certificatePem,
        client.privateKeyPem,
        "api",
      ]);
    }
  });

  test("the pod's service account for the empty path, below another root where one is set", async () => {
    const account = join(directory, "var/run/secrets/kubernetes.io/serviceaccount");
    mkdirSync(account, { recursive: true });
    writeFileSync(join(account, "token"), `${SECRET}\n`);
    writeFileSync(join(account, "ca.crt"), authority.certificatePem);
    writeFileSync(join(account, "namespace"), "podseidon");
    const env = { KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "443", PODSEIDON_MOUNT_ROOT: directory };
    const access = await loadClusterAccess("", { env });
    expect([access.server, access.namespace, access.description]).toEqual([
      "https://[fd00::1]:443",
      "podseidon",
      "in-cluster",
    ]);
    expect((await access.credentials.current(0)).authorization).toBe(`Bearer ${SECRET}`);
  });

  test("a proxy", async () => {
    const access = await loadClusterAccess(kubeconfig({ cluster: { "proxy-url": "http://127.0.0.1:3128" } }));
    const { tls, authorization } = await access.credentials.current(0);
    expect(tls.proxy).toBe("http://127.0.0.1:3128");
    expect(authorization).toBe(`Bearer ${SECRET}`);
  });
});

describe("files that change", () => {
  test("a token file is checked every five seconds, and at once after a 401", async () => {
    write("token", "one");
    const { credentials } = await loadClusterAccess(kubeconfig({ user: { tokenFile: "token" } }));
    const token = async (nowMs: number): Promise<string | undefined> =>
      (await credentials.current(nowMs)).authorization;
    expect(await token(0)).toBe("Bearer one");
    write("token", "two!");
    expect(await token(4000)).toBe("Bearer one");
    expect(await token(5000)).toBe("Bearer two!");
    write("token", "three!!");
    credentials.rejected(await credentials.current(5000));
    expect(await token(5001)).toBe("Bearer three!!");
    rmSync(join(directory, "token"));
    expect(await token(100_000)).toBe("Bearer three!!");
  });

  test("a token file that is emptied before it is written: the old token serves until then", async () => {
    write("token", "one");
    const { credentials } = await loadClusterAccess(kubeconfig({ user: { tokenFile: "token" } }));
    for (const [text, atMs, used] of [
      ["", 5_000, "Bearer one"],
      ["two", 10_000, "Bearer two"],
      ["\n", 15_000, "Bearer two"],
    ] as const) {
      write("token", text);
      expect((await credentials.current(atMs)).authorization).toBe(used);
    }
  });

  test("a certificate and its key are changed together: half of a new pair is not used", async () => {
    const certificate = write("client.crt", client.certificatePem);
    const key = write("client.key", client.privateKeyPem);
    const { credentials } = await loadClusterAccess(
      kubeconfig({ user: { "client-certificate": certificate, "client-key": key } }),
    );
    const old = (await credentials.current(0)).tls;
    expect((await credentials.current(10_000)).tls).toBe(old);
    writeFileSync(certificate, other.certificatePem);
    expect((await credentials.current(20_000)).tls).toBe(old);
    writeFileSync(key, other.privateKeyPem);
    expect((await credentials.current(30_000)).tls).toMatchObject({
      cert: other.certificatePem,
      key: other.privateKeyPem,
    });
  });
});

test.each([
  ["damaged", "-----BEGIN CERTIFICATE-----\nMIIBAAAA\n-----END CERTIFICATE-----\n"],
  ["cut off", `${other.certificatePem.slice(0, 200)}\n`],
])("a CA bundle whose first authority is %s has the others, as for kubectl", async (_, unreadable) => {
  const ca = unreadable + client.certificatePem;
  const { credentials } = await loadClusterAccess(
    kubeconfig({ cluster: { "certificate-authority-data": base64(ca) } }),
  );
  expect((await credentials.current(0)).tls.ca).toBe(ca);
});

describe("errors name the remedy, and no secret", () => {
  const cases: [string, string, () => string, RegExp][] = [
    ["a file that is not there", "missing", () => join(directory, "nothing"), /cannot be read \(ENOENT\)/],
    ["a directory", "unreadable", () => directory, /cannot be read \(EISDIR\)/],
    ["no YAML", "malformed", () => write("config", `a: [${SECRET}`), /not YAML/],
    ["cut JSON", "malformed", () => write("config", `{"users": "${SECRET}`), /not YAML/],
    ["another document", "malformed", () => write("config", "just text"), /no kubeconfig/],
    ["no context", "no-context", () => kubeconfig({ extra: { "current-context": "" } }), /use-context/],
    ["an unknown context", "no-context", () => kubeconfig({ extra: { "current-context": "x" } }), /contexts: here/],
    ["an unknown cluster", "unknown-cluster", () => kubeconfig({ extra: { clusters: [] } }), /set-cluster/],
    ["an unknown user", "unknown-user", () => kubeconfig({ extra: { users: [] } }), /set-credentials/],
    ["no server", "no-server", () => kubeconfig({ cluster: { server: "" } }), /https:\/\/HOST:6443/],
    ["a server that is no URL", "no-server", () => kubeconfig({ cluster: { server: "nowhere" } }), /nowhere/],
    [
      "a CA that is no PEM",
      "certificate",
      () => kubeconfig({ cluster: { "certificate-authority-data": base64("x") } }),
      /authority/,
    ],
    [
      "a CA file that is not there",
      "missing",
      () => kubeconfig({ cluster: { "certificate-authority": "ca" } }),
      /authority/,
    ],
    [
      "a certificate without a key",
      "certificate",
      () => kubeconfig({ user: { "client-certificate-data": base64(client.certificatePem) } }),
      /key is missing/,
    ],
    [
      "a key of another certificate",
      "certificate",
      () =>
        kubeconfig({
          user: {
            "client-certificate-data": base64(client.certificatePem),
            "client-key-data": base64(other.privateKeyPem),
          },
        }),
      /does not belong/,
    ],
    [
      "a proxy whose password has a % that encodes nothing",
      "proxy",
      () => kubeconfig({ cluster: { "proxy-url": `http://me:${SECRET}%@proxy:1` } }),
      /proxy-url.*%25/,
    ],
    ["a token of two lines", "malformed", () => kubeconfig({ user: { token: `${SECRET}\nx` } }), /token/],
    [
      "a CA beside insecure-skip-tls-verify, by which nothing would be checked",
      "certificate",
      () =>
        kubeconfig({
          cluster: {
            "insecure-skip-tls-verify": true,
            "certificate-authority-data": base64(client.certificatePem),
          },
        }),
      /remove one of them/,
    ],
    ["groups of nobody", "malformed", () => kubeconfig({ user: { "as-groups": ["a"] } }), /no user; add as/],
    ["a user of two lines", "malformed", () => kubeconfig({ user: { as: `${SECRET}\nx` } }), /no text \(as\)/],
  ];
  test.each(cases)("%s", async (_, tag, path, text) => {
    const error = await accessError(loadClusterAccess(path()));
    expect(error.tag).toBe(tag);
    expect(error.message).toMatch(text);
    expect(`${error.message} ${String(error.cause)}`).not.toContain(SECRET);
  });

  test("a file of another user", async () => {
    const path = kubeconfig();
    chmodSync(path, 0o000);
    // Root can read every file.
    if (process.getuid?.() === 0) return;
    expect((await accessError(loadClusterAccess(path))).tag).toBe("unreadable");
  });

  test("outside of a pod", async () => {
    expect(await accessError(loadClusterAccess("", { env: {} }))).toMatchObject({ tag: "not-in-cluster" });
  });

  test("a service account that is not mounted", async () => {
    const env = {
      KUBERNETES_SERVICE_HOST: "10.0.0.1",
      KUBERNETES_SERVICE_PORT: "443",
      PODSEIDON_MOUNT_ROOT: directory,
    };
    expect(await accessError(loadClusterAccess("", { env }))).toMatchObject({ tag: "missing" });
  });
});
