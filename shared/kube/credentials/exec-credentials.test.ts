/** Exec plugins are real processes; time is virtual. */
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { createCertificateAuthority, issueCertificate } from "../../certificates/x509.ts";
import { AccessError, type CredentialSource } from "./cluster-access.ts";
import { loadClusterAccess } from "./kubeconfig.ts";

const VALID = { notBeforeMs: 0, notAfterMs: Date.UTC(2100, 0, 1) };
const API = "client.authentication.k8s.io/v1";
const SECRET = "s3cr3t-token";

let directory: string;
let time: VirtualTime;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "exec-"));
  time = new VirtualTime();
});
afterEach(() => rmSync(directory, { recursive: true }));

const at = (name: string): string => join(directory, name);
const lines = (name: string): string[] => readFileSync(at(name), "utf8").trim().split("\n");
const printing = (status: object): string => `printf '%s' '${JSON.stringify({ kind: "ExecCredential", status })}'`;

async function credentialsOf(script: string, exec: object = {}, cluster: object = {}): Promise<CredentialSource> {
  const user = { exec: { apiVersion: API, command: "sh", args: ["-c", script], ...exec } };
  const config = {
    "current-context": "here",
    contexts: [{ name: "here", context: { cluster: "c", user: "u" } }],
    clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:6443", ...cluster } }],
    users: [{ name: "u", user }],
  };
  writeFileSync(at("config"), JSON.stringify(config));
  return (await loadClusterAccess(at("config"), { ports: time, env: {} })).credentials;
}

async function accessError(work: Promise<unknown>): Promise<AccessError> {
  const error = await work.catch((thrown: unknown) => thrown);
  if (!(error instanceof AccessError)) throw new Error(`no AccessError: ${String(error)}`);
  return error;
}

/** Each run gives another token: t1, t2 and so on. */
const counting = (): string =>
  `echo x >> ${at("runs")}; printf '{"kind":"ExecCredential","status":{"token":"t%s"}}' $(wc -l < ${at("runs")})`;

test("a 401 ends the credential that the call was sent with, and no newer one", async () => {
  const credentials = await credentialsOf(counting());
  const first = await credentials.current(0);
  expect((await credentials.current(0)).tls).toBe(first.tls);
  credentials.rejected(first);
  const second = await credentials.current(0);
  // Another call, which was sent with the first one, is answered late.
  credentials.rejected(first);
  const third = await credentials.current(0);
  expect([first, second, third].map(({ authorization }) => authorization)).toEqual([
    "Bearer t1",
    "Bearer t2",
    "Bearer t2",
  ]);
});

test("an expired credential is renewed by one run for all calls", async () => {
  const expirationTimestamp = new Date(time.clock.nowMs() + 60_000).toISOString();
  const script = `echo x >> ${at("runs")}; ${printing({ token: "t", expirationTimestamp })}`;
  const credentials = await credentialsOf(script);
  const all = (): Promise<unknown> => Promise.all(Array.from({ length: 9 }, () => credentials.current(0)));
  await all();
  await time.advance(59_999);
  await all();
  expect(lines("runs").length).toBe(1);
  await time.advance(1);
  await all();
  expect(lines("runs").length).toBe(2);
});

test("a plugin that hangs is killed with its children at its deadline, and only then runs again", async () => {
  const hanging = `sleep 1000 & echo $$ $! > ${at("pids")}; wait`;
  const script = `if [ -s ${at("pids")} ]; then ${printing({ token: "t" })}; else ${hanging}; fi`;
  const credentials = await credentialsOf(script);
  const calls = [credentials.current(0), credentials.current(0)].map(accessError);
  await until(() => /^\d+ \d+\n/.test(readFileSync(at("pids"), { encoding: "utf8", flag: "a+" })));
  await time.advance(29_999);
  // For the kubeconfig no time has passed: a call that reads it again could come after the deadline.
  calls.push(accessError(credentials.current(0)));
  const pids = lines("pids")[0]?.split(" ").map(Number) ?? [];
  expect(pids.map(isRunning)).toEqual([true, true]);
  await time.advance(1);
  expect(new Set((await Promise.all(calls)).map(({ message }) => message)).size).toBe(1);
  expect((await Promise.all(calls))[0]?.message).toMatch(/did not end within 30 s/);
  await until(() => !pids.some(isRunning));
  expect((await credentials.current(0)).authorization).toBe("Bearer t");
});

test("a plugin that hangs does not outlive the process", async () => {
  await credentialsOf(`echo $$ > ${at("new")}; mv ${at("new")} ${at("pid")}; sleep 1000`);
  const script = `
    import { existsSync } from "node:fs";
    import { loadClusterAccess } from ${JSON.stringify(join(import.meta.dirname, "kubeconfig.ts"))};
    (await loadClusterAccess(${JSON.stringify(at("config"))})).credentials.current(0);
    setInterval(() => existsSync(${JSON.stringify(at("pid"))}) && process.exit(), 1);`;
  await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script]);
  const pid = Number(lines("pid")[0]);
  await until(() => !isRunning(pid));
});

function isRunning(pid: number): boolean {
  try {
    // A killed child of a dead parent stays a zombie until it is reaped.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve));
}

test.each([
  ["a CA", async () => ({ "certificate-authority-data": base64((await authority()).certificatePem) })],
  ["no check of the server", async () => ({ "insecure-skip-tls-verify": true })],
])("KUBERNETES_EXEC_INFO is client-go's, with %s; the environment and a relative command, too", async (_, trust) => {
  writeFileSync(at("ca"), "PEM");
  writeFileSync(
    at("plugin.sh"),
    `#!/bin/sh\nprintf '%s\\n' "$KUBERNETES_EXEC_INFO" "$GIVEN" > ${at("info")}; ${printing({ token: "t" })}`,
    { mode: 0o755 },
  );
  const cluster = {
    ...(await trust()),
    "tls-server-name": "api",
    extensions: [{ name: "client.authentication.k8s.io/exec", extension: { audience: "x" } }],
  };
  const exec = { command: "./plugin.sh", args: null, env: [{ name: "GIVEN", value: "yes" }] };
  await (await credentialsOf("", exec, cluster)).current(0);
  const plain = { kind: "ExecCredential", apiVersion: API, spec: { interactive: false } };
  expect([JSON.parse(lines("info")[0] ?? ""), lines("info")[1]]).toEqual([plain, "yes"]);
  await (await credentialsOf("", { ...exec, provideClusterInfo: true }, cluster)).current(0);
  const { extensions: __, ...fields } = cluster;
  const spec = {
    cluster: { server: "https://127.0.0.1:6443", ...fields, config: { audience: "x" } },
    interactive: false,
  };
  expect(JSON.parse(lines("info")[0] ?? "")).toEqual({ ...plain, spec });
});

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const authority = () => createCertificateAuthority({ ...VALID, commonName: "test" });

test("a client certificate", async () => {
  const { certificatePem, privateKeyPem } = await issueCertificate(await authority(), {
    ...VALID,
    commonName: "me",
    usages: ["client"],
  });
  const credentials = await credentialsOf(
    printing({ clientCertificateData: certificatePem, clientKeyData: privateKeyPem }),
  );
  expect(await credentials.current(0)).toMatchObject({
    authorization: undefined,
    tls: { cert: certificatePem, key: privateKeyPem },
  });
});

test.each([
  ["that fails", `echo ${SECRET} >&2; exit 3`, {}, /exit code 3/],
  ["that is not there", "", { command: "no-such-plugin" }, /ENOENT/],
  ["without a credential", `echo '{"a":"${SECRET}"}'`, {}, /printed no ExecCredential/],
  ["with a certificate alone", printing({ clientCertificateData: SECRET }), {}, /printed no ExecCredential/],
  ["with cut JSON", `echo '{"a":"${SECRET}'`, {}, /printed no JSON/],
  ["that prints without end", `yes ${SECRET}`, {}, /printed more than/],
  ["that needs a terminal", "", { interactiveMode: "Always" }, /needs a terminal/],
])("a plugin %s: the error says why, without its output", async (_, script, exec, message) => {
  const error = await accessError((await credentialsOf(script, exec)).current(0));
  expect([error.tag, error.cause]).toEqual(["plugin", undefined]);
  expect(error.message).toMatch(message);
  expect(error.message).not.toContain(SECRET);
});

test("a plugin that is to know a CA which can't be read: the error says so", async () => {
  const cluster = { "certificate-authority": "no-such-file" };
  const error = await accessError((await credentialsOf("", { provideClusterInfo: true }, cluster)).current(0));
  expect(error.message).toMatch(/ENOENT.*no-such-file/);
});

test("a plugin of an API version that nobody speaks any more is refused at the start", async () => {
  const error = await accessError(credentialsOf("", { apiVersion: "client.authentication.k8s.io/v1alpha1" }));
  expect(error.message).toMatch(/v1 .*\(apiVersion\)/);
});
