/**
 * The webhook and an aggregator as processes, between an apiserver that serves hostile pods and protectors and callers
 * that send hostile admission requests. Each call gets a response, no process ends or grows, and private data stays out
 * of the logs.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { Agent } from "node:https";
import { join } from "node:path";
import { connect } from "node:tls";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type HttpsAnswer, httpsCall } from "../../scripts/control-plane/https-call.ts";
import { reservePort } from "../../scripts/control-plane/ports.ts";
import { Component } from "../../scripts/environment/component.ts";
import { createCertificateAuthority, issueCertificate } from "../../shared/certificates/x509.ts";
import type { Randomness } from "../../shared/runtime/clock.ts";
import { eachAtMost } from "../../shared/runtime/each-at-most.ts";
import { temporaryDirectory } from "../support/runtime/temporary-directory.ts";
import { seededRandomness } from "../support/runtime/virtual-ports.ts";
import { type HostileJson, hostile, hostileText, PRIVATE_TEXT } from "./hostile/hostile-objects.ts";
import { goodPod, HostileServer } from "./hostile/hostile-server.ts";

const REVIEWS = process.env.PODSEIDON_TEST_SIZE === "full" ? 10_000 : 1_000;
const SEED = Number(process.env.PODSEIDON_SEED ?? 1);
const CALLERS = 16;
const SLOW_CALLERS = 50;
const TOKEN = `token-${PRIVATE_TEXT}`;
/** Garbage that a burst of hostile events may leave. */
const MAX_GROWTH_BYTES = 150_000_000;
/** Series that exist from the first event of their kind on. */
const MAX_NEW_SERIES = 200;
const ADDRESS = "127.0.0.1";

const validity = { notBeforeMs: Date.now() - 3_600_000, notAfterMs: Date.now() + 24 * 3_600_000 };
const authority = await createCertificateAuthority({ commonName: "fuzz", ...validity });

const folder = temporaryDirectory();
let server: HostileServer;
let webhook: Component;
let aggregator: Component;
let port = 0;

beforeAll(async () => {
  server = await HostileServer.listen(seededRandomness(SEED));
  const path = (name: string): string => join(folder, name);
  const kubeconfig = {
    "current-context": "x",
    contexts: [{ name: "x", context: { cluster: "x", user: "x" } }],
    clusters: [{ name: "x", cluster: { server: server.url } }],
    users: [{ name: "x", user: { token: TOKEN } }],
  };
  writeFileSync(path("kubeconfig"), JSON.stringify(kubeconfig));
  const serving = await issueCertificate(authority, {
    commonName: "w",
    ipAddresses: [ADDRESS],
    usages: ["server"],
    ...validity,
  });
  writeFileSync(path("tls.crt"), serving.certificatePem);
  writeFileSync(path("tls.key"), serving.privateKeyPem);
  port = await reservePort(ADDRESS);
  const core = ["--core", `core=${path("kubeconfig")}`];
  const tls = ["--tls-cert-file", path("tls.crt"), "--tls-private-key-file", path("tls.key")];
  const bind = ["--bind-address", ADDRESS, "--secure-port", String(port), "--log-level", "debug"];
  const cell = ["--cell-id", "cell-1", "--kubeconfig", path("kubeconfig"), "--leader-elect=false", "--outlive=false"];
  const common = { directory: folder };
  const webhookArgs = [...core, "--cell", `cell-1=${path("kubeconfig")}`, ...tls, ...bind, "--outlive=false"];
  [webhook, aggregator] = await Promise.all([
    Component.start({ kind: "webhook", name: "webhook", args: webhookArgs, ...common }),
    Component.start({
      kind: "aggregator",
      name: "aggregator",
      args: [...core, ...cell, "--log-level", "debug"],
      ...common,
    }),
  ]);
});

afterAll(async () => {
  await Promise.all([webhook?.stop(), aggregator?.stop()]);
  await server?.[Symbol.asyncDispose]();
});

/** Three of four have the form of an apiserver's request, with a hostile pod or Eviction. */
function hostileReview(index: number, random: Randomness): HostileJson {
  return index % 4 === 0
    ? hostile(review(index, goodPod), random)
    : review(index, (name) => hostile(goodPod(name), random));
}

function review(index: number, podOf: (name: string) => HostileJson): HostileJson {
  const pod = podOf(`web-${index % 40}`);
  const common = {
    uid: `review-${index}`,
    namespace: "default",
    name: `web-${index % 40}`,
    userInfo: { username: "eve", extra: { token: [PRIVATE_TEXT] } },
    options: { kind: "DeleteOptions" },
  };
  const pods = {
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
  };
  const eviction = {
    apiVersion: "policy/v1",
    kind: "Eviction",
    metadata: { name: `web-${index % 40}`, namespace: "default" },
  };
  const kinds: readonly HostileJson[] = [
    { ...pods, ...common, operation: "DELETE", oldObject: pod },
    { ...pods, ...common, operation: "CREATE", subResource: "eviction", object: eviction },
    { ...pods, ...common, operation: "UPDATE", oldObject: pod, object: pod },
  ];
  return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request: kinds[index % kinds.length] ?? null };
}

const agent = new Agent({ keepAlive: true, maxSockets: CALLERS, ca: authority.certificatePem });

/** Rejects when the connection ends without a response. */
function send(path: string, body: Buffer): Promise<HttpsAnswer> {
  const headers = { "content-type": "application/json", "content-length": body.length };
  return httpsCall(`https://${ADDRESS}:${port}${path}`, { method: "POST", headers, agent }, body);
}

interface Look {
  readonly bytes: number;
  readonly series: number;
  readonly text: string;
}

async function look(component: Component): Promise<Look> {
  const text = await (await fetch(`${component.healthUrl}/metrics`)).text();
  const bytes = (await component.metric("process_resident_memory_bytes")) ?? 0;
  return { bytes, text, series: text.split("\n").filter((line) => line !== "" && !line.startsWith("#")).length };
}

/** Sends one header and then nothing; resolves to what the server sends before it closes the connection. */
function slowCall(): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: ADDRESS, port, ca: authority.certificatePem }, () => {
      socket.write("POST /webhook/cell-1 HTTP/1.1\r\nhost: x\r\n");
    });
    let said = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
    socket.on("close", () => resolve(said));
    socket.on("error", reject);
  });
}

test(`${REVIEWS} hostile requests: each gets a response, and no process ends, grows or logs private data`, async () => {
  const slow = Array.from({ length: SLOW_CALLERS }, slowCall);
  const random = seededRandomness(SEED + 1);
  const statuses = new Map<number, number>();
  const defects: string[] = [];
  const paths = [
    "/webhook/cell-1?timeout=2s",
    "/webhook/cell-1/mutate?timeout=2s",
    "/webhook/cell-1?timeout=%00",
    "/webhook/cell-1",
  ];
  const sendOne = async (index: number): Promise<void> => {
    const body = hostileText(hostileReview(index, random), random);
    const { status, text } = await send(paths[index % paths.length] ?? "", body);
    // What can't be decided, such as while the hostile core answers no read, is 500, too.
    if (/because of a defect/.test(text)) defects.push(text);
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
  };
  const numbers = Array.from({ length: REVIEWS }, (_, index) => index);
  const warm = Math.floor(REVIEWS / 3);
  await eachAtMost(CALLERS, numbers.slice(0, warm), sendOne);
  const before = await Promise.all([webhook, aggregator].map(look));
  await eachAtMost(CALLERS, numbers.slice(warm), sendOne);
  const after = await Promise.all([webhook, aggregator].map(look));
  const grown = after.map(({ bytes }, index) => bytes - (before[index]?.bytes ?? 0));
  const growth = grown.map((bytes) => (bytes / 1e6).toFixed(0)).join(" and ");
  process.stdout.write(
    `fuzz: ${REVIEWS} reviews answered ${JSON.stringify(Object.fromEntries(statuses))}, ` +
      `${server.sent} hostile objects served, grown by ${growth} MB\n`,
  );
  expect([...statuses.values()].reduce((sum, count) => sum + count, 0)).toBe(REVIEWS);
  expect(defects).toEqual([]);
  expect(await webhook.metric("podseidon_webhook_defects_total")).toBe(0);
  for (const [index, component] of [webhook, aggregator].entries()) {
    expect(component.process.running).toBe(true);
    expect((await fetch(`${component.healthUrl}/healthz`)).status).toBe(200);
    expect(grown[index]).toBeLessThan(MAX_GROWTH_BYTES);
    expect((after[index]?.series ?? 0) - (before[index]?.series ?? 0)).toBeLessThan(MAX_NEW_SERIES);
    expect(after[index]?.text).not.toContain(PRIVATE_TEXT);
    const log = readFileSync(component.process.logFile, "utf8");
    expect(log).not.toContain(PRIVATE_TEXT);
    expect(log.length).toBeGreaterThan(0);
  }
  expect(server.leaks).toBe(0);
  // Callers that send half a header are disconnected, and have kept nobody else waiting.
  for (const said of await Promise.all(slow)) expect(said).toMatch(/^HTTP\/1.1 408 |^$/);
});
