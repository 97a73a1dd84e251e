/**
 * What x-pdb does, on a real apiserver: the probe of the owner and every way in which it can fail, pre-activities,
 * suspension, and who may bypass all of it. One webhook replica; the test writes the counts.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import { reservePort } from "../../../scripts/control-plane/ports.ts";
import {
  FORCE_DELETE_ANNOTATION,
  PENDING_DISRUPTION_ANNOTATION,
  PRE_ACTIVITY_PREFIX,
} from "../../../shared/schema/annotations.ts";
import { GrpcProbeClient } from "../../../webhook/probe/grpc-client.ts";
import { AdmissionHarness, NAMESPACE, protectorsIn } from "../../support/cluster/admission-harness.ts";
import { messageOf, verdictOf } from "../../support/cluster/ask.ts";
import { AUDITED, type Deletion, readDeletions } from "../../support/cluster/deletions.ts";
import { type ProbeOpinion, ProbeServer } from "../../support/webhook/probe-server.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const BURST = FULL ? 100 : 20;
/** The webhook's name, which kube-apiserver puts before its audit annotations. */
const REVIEWED_BY = "pods.podseidon.kubewharf.io";
const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;

let harness: AdmissionHarness;
const servers: ProbeServer[] = [];

beforeAll(async () => {
  harness = await AdmissionHarness.start({
    webhookArgs: ["--bypass-needs-permission", "--mark-pending-disruptions", "--probe-allow=127.0.0.1"],
    // The longest that kube-apiserver allows, so that a slow probe does not depend on how busy the machine is.
    registration: { timeoutSeconds: 30 },
    cell: { ...AUDITED, ...BARE },
  });
});

afterEach(async () => {
  for (const server of servers.splice(0)) await server[Symbol.asyncDispose]();
});

afterAll(() => harness?.[Symbol.asyncDispose]());

async function probeServer(opinion: ProbeOpinion, secure = false): Promise<ProbeServer> {
  const { certificatePem: cert, privateKeyPem: key } = await harness.cluster.identity.servingCertificate(
    ["db"],
    ["127.0.0.1"],
  );
  const server = await ProbeServer.start(opinion, secure ? { cert, key } : undefined);
  servers.push(server);
  return server;
}

/** Creates pods and a protector with quota for all of them. */
async function protect(
  count: number,
  spec: Readonly<Record<string, unknown>>,
  available = 1000,
): Promise<readonly string[]> {
  const app = harness.unique("near");
  const names = Array.from({ length: count }, (_, index) => `${app}-${index}`);
  for (const name of names) await harness.pod(name, app);
  await harness.protector(app, { minAvailable: 1, selector: { matchLabels: { app } }, ...spec }, { available });
  return names;
}

async function resume(pod: string): Promise<void> {
  await harness.cluster.admin.call("PATCH", `${protectorsIn(NAMESPACE)}/${pod.slice(0, -2)}`, {
    spec: { suspend: null },
  });
  await harness.cluster.waitFor("the webhook to know", async () => (await metric("protectors_suspended")) === 0);
}

const grpc = (server: ProbeServer): unknown => ({ endpoint: server.grpcEndpoint, insecure: true });

async function metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
  return (await harness.environment.webhooks[0]?.component.metric(`podseidon_webhook_${name}`, labels)) ?? 0;
}

describe("the probe", () => {
  it("is sent by x-pdb's contract over gRPC, with TLS, and by HTTP", async () => {
    const opinion: ProbeOpinion = ({ pod_name }) => ({ is_allowed: !pod_name.endsWith("-1"), error: "" });
    const secure = await probeServer(opinion, true);
    const plain = await probeServer(opinion);
    const ways: unknown[] = [
      { endpoint: secure.grpcEndpoint, caBundle: harness.cluster.identity.certificateAuthorityPem },
      grpc(plain),
      { endpoint: plain.httpEndpoint, protocol: "HTTP" },
    ];
    for (const probe of ways) {
      const [yes = "", no = ""] = await protect(2, { probe });
      expect(verdictOf(await harness.delete(yes))).toBe("allow");
      const refused = await harness.delete(no);
      expect(verdictOf(refused)).toBe("denial");
      expect(messageOf(refused)).toMatch(/is told by its probe \S+ that it may not go; try again later\. More: /);
      expect(await harness.buckets(no.slice(0, -2))).toHaveLength(1);
    }
    // Once for each pod, and again where a request is decided again.
    expect(new Set(secure.requests.map(({ pod_name }) => pod_name)).size).toBe(2);
    expect(plain.requests[0]).toMatchObject({ pod_namespace: NAMESPACE, xpdb_namespace: NAMESPACE });
  });

  it("with a certificate of an unknown authority fails", async () => {
    const server = await probeServer(() => ({ is_allowed: true }), true);
    const [name = ""] = await protect(1, { probe: { endpoint: server.grpcEndpoint } });
    expect(verdictOf(await harness.delete(name))).toBe("denial");
    expect(server.requests).toEqual([]);
  });

  it("speaks gRPC with a server of another project: etcd's health service has the same form of response", async () => {
    const directory = mkdtempSync(join(tmpdir(), "podseidon-etcd-"));
    const [client, peer] = [await reservePort("127.0.0.1"), await reservePort("127.0.0.1")];
    const { etcd } = await ensureBinaries();
    const urls = { client: `http://127.0.0.1:${client}`, peer: `http://127.0.0.1:${peer}` };
    const server = new ManagedProcess({
      name: "etcd as a gRPC server",
      logFile: join(directory, "etcd.log"),
      workingDirectory: directory,
      launch: () => ({
        binary: etcd,
        args: [
          `--data-dir=${join(directory, "data")}`,
          `--listen-client-urls=${urls.client}`,
          `--advertise-client-urls=${urls.client}`,
          `--listen-peer-urls=${urls.peer}`,
          `--initial-advertise-peer-urls=${urls.peer}`,
          `--initial-cluster=default=${urls.peer}`,
        ],
        environment: {},
      }),
      isReady: async (signal) => (await fetch(`${urls.client}/health`, { signal })).status === 200,
      startTimeoutMs: 300_000,
      onUnexpectedEnd: (description) => process.stderr.write(`${description}\n`),
    });
    await server.start();
    const options = { endpoint: `127.0.0.1:${client}`, caBundle: undefined, insecure: true };
    // Health.Check has the name of a service in its first field, as the probe has the pod's, and responds with 1 for
    // SERVING.
    const question = {
      probe: { endpoint: "" },
      podName: "",
      podNamespace: "",
      budgetName: "",
      budgetNamespace: "",
      deadlineMs: 0,
    };
    const signal = new AbortController().signal;
    const [health, probe] = [
      new GrpcProbeClient(options, "/grpc.health.v1.Health/Check"),
      new GrpcProbeClient(options),
    ];
    try {
      expect(await health.ask(question, signal)).toEqual({ isAllowed: true, error: "" });
      await expect(health.ask({ ...question, podName: "no-such-service" }, signal)).rejects.toThrow(
        /gRPC status 5 \(.*unknown service/,
      );
      await expect(probe.ask(question, signal)).rejects.toThrow(
        /does not know \/disruptionprobe.v1.DisruptionProbeService/,
      );
    } finally {
      health.close();
      probe.close();
      await server.kill("SIGKILL");
      rmSync(directory, { recursive: true, force: true });
    }
  });

  it("that is down denies clearly, soon without a call, and allows again when it is up", async () => {
    const port = await reservePort("127.0.0.1");
    const names = await protect(10, { probe: { endpoint: `http://127.0.0.1:${port}/`, protocol: "HTTP" } });
    const messages: string[] = [];
    for (const name of names) {
      const answer = await harness.delete(name);
      expect(verdictOf(answer)).toBe("denial");
      messages.push(messageOf(answer));
    }
    expect(messages[0]).toMatch(/could not ask its probe 127\.0\.0\.1:\d+: ECONNREFUSED/);
    const unasked = messages.filter((message) =>
      /has a probe that does not answer: \S+ is tried again in \d s/.test(message),
    );
    expect(unasked.length).toBeGreaterThan(0);
    expect(await metric("probe_circuits_open")).toBe(1);
    const server = await probeServer(() => ({ is_allowed: true }));
    await server.listenHttpAt(port);
    const [first = "", ...rest] = names;
    await harness.cluster.waitFor(
      "the probe to be asked again",
      async () => verdictOf(await harness.delete(first)) === "allow",
    );
    for (const name of rest) expect(verdictOf(await harness.delete(name))).toBe("allow");
    expect(await metric("probe_circuits_open")).toBe(0);
  });

  it("that is slow holds up its own pod and no other, not even of the same protector", async () => {
    const release = Promise.withResolvers<void>();
    const server = await probeServer(async ({ pod_name }) => {
      if (pod_name.endsWith("-0")) await release.promise;
      return { is_allowed: true };
    });
    const [slow = "", ...others] = await protect(BURST, { probe: { ...Object(grpc(server)), timeoutMillis: 25_000 } });
    let isAnswered = false;
    const waiting = harness.delete(slow).finally(() => {
      isAnswered = true;
    });
    await harness.cluster.waitFor("the slow request to arrive", async () => server.requests.length > 0);
    const answers = await Promise.all(others.map((name) => harness.delete(name)));
    expect(answers.map(verdictOf)).toEqual(answers.map(() => "allow"));
    expect(isAnswered).toBe(false);
    release.resolve();
    expect(verdictOf(await waiting)).toBe("allow");
  });

  it("that never responds is given up before the request's deadline", async () => {
    const server = await probeServer(() => "silence");
    const [name = ""] = await protect(1, { probe: grpc(server) });
    const answer = await harness.delete(name);
    expect(verdictOf(answer)).toBe("denial");
    expect(messageOf(answer)).toContain("no answer in time");
  });

  it.each<[string, ProbeOpinion]>([
    ["a yes with an error", () => ({ is_allowed: true, error: "but not really" })],
    ["a yes under a status that is not OK", () => "failure"],
    ["bytes that are no message", () => "garbage"],
    ["an answer without end", () => "flood"],
    ["the end of the connection", () => "hang-up"],
  ])("that lies refuses: %s", async (_, opinion) => {
    const server = await probeServer(opinion);
    for (const probe of [grpc(server), { endpoint: server.httpEndpoint, protocol: "HTTP" }]) {
      const [name = ""] = await protect(1, { probe });
      expect(verdictOf(await harness.delete(name))).toBe("denial");
      expect(await harness.buckets(name.slice(0, -2))).toEqual([]);
    }
  });

  it("gets a burst a few at a time, and every pod gets a response", async () => {
    const server = await probeServer(async () => {
      await new Promise((resolve) => setImmediate(resolve));
      return { is_allowed: true };
    });
    const names = await protect(BURST, { probe: grpc(server) });
    const answers = await Promise.all(names.map((name) => harness.delete(name)));
    expect(answers.map(verdictOf)).toEqual(answers.map(() => "allow"));
    process.stdout.write(`${BURST} deletions at once: the probe was asked ${server.mostActive} at a time at most\n`);
    expect(server.mostActive).toBeLessThanOrEqual(16);
  });

  it("is not sent without quota", async () => {
    const server = await probeServer(() => ({ is_allowed: true }));
    const [name = ""] = await protect(1, { probe: grpc(server) }, 1);
    expect(verdictOf(await harness.delete(name))).toBe("denial");
    expect(server.requests).toEqual([]);
  });
});

describe("pre-activities", () => {
  it("hold a pod back, deleted or evicted, as long as their annotation exists", async () => {
    const [name = ""] = await protect(1, {});
    const annotation = `${PRE_ACTIVITY_PREFIX}copy-data`;
    await harness.cluster.admin.call("PATCH", `${PODS}/${name}`, {
      metadata: { annotations: { [annotation]: "waiting" } },
    });
    for (const answer of [await harness.delete(name), await harness.evict(name), await harness.delete(name)]) {
      expect(verdictOf(answer)).toBe("denial");
      expect(messageOf(answer)).toContain("waits for the pre-activities of this pod: copy-data");
    }
    expect(await harness.buckets(name.slice(0, -2))).toEqual([]);
    // The pod's owner learns that the pre-activity should run now.
    await harness.cluster.waitFor("the pod to be marked", async () => {
      const found = await harness.cluster.admin.get(`${PODS}/${name}`);
      return field(found, "metadata", "annotations", PENDING_DISRUPTION_ANNOTATION) === "true";
    });
    expect(verdictOf(await harness.delete(name, { dryRun: ["All"] }))).toBe("denial");
    await harness.cluster.admin.call("PATCH", `${PODS}/${name}`, { metadata: { annotations: { [annotation]: null } } });
    expect(verdictOf(await harness.delete(name))).toBe("allow");
  });

  it("hold a pod back that nothing else protects from it, and one whose protector is suspended", async () => {
    const [kept = ""] = await protect(1, { minAvailable: 1000, suspend: { enabled: true, cells: ["elsewhere"] } });
    expect(verdictOf(await harness.delete(kept))).toBe("denial");
    await resume(kept);
    const [suspended = ""] = await protect(1, { suspend: { enabled: true } });
    const [evicted = ""] = await protect(1, { protectedOperations: ["EVICT"] });
    const bare = harness.unique("bare");
    await harness.pod(bare, bare);
    const annotate = (name: string, value: string | null): Promise<unknown> =>
      harness.cluster.admin.call("PATCH", `${PODS}/${name}`, {
        metadata: { annotations: { [`${PRE_ACTIVITY_PREFIX}copy-data`]: value } },
      });
    for (const name of [suspended, evicted, bare]) {
      await annotate(name, "waiting");
      for (const answer of [await harness.delete(name), await harness.evict(name)])
        expect(messageOf(answer)).toContain("waits for the pre-activities of this pod: copy-data");
      await annotate(name, null);
      expect(verdictOf(await harness.delete(name))).toBe("allow");
    }
    await resume(suspended);
  });
});

describe("a suspension", () => {
  it("allows everything until it expires, in the middle of a burst, and nothing after that", async () => {
    const suspend = { enabled: true, until: new Date(Date.now() + 3_600_000).toISOString(), reason: "moving" };
    const names = [...(await protect(BURST, { minAvailable: 1000, suspend }))];
    const app = String(names[0]).slice(0, -2);
    expect(await metric("protectors_suspended")).toBe(1);
    for (const name of names.splice(0, 4)) {
      const answer = await harness.delete(name);
      expect(verdictOf(answer)).toBe("allow");
      expect(String(answer.headers.warning)).toContain(`is suspended until ${suspend.until} (moving)`);
    }
    const untilMs = Math.ceil((Date.now() + 2_000) / 1000) * 1000;
    const until = new Date(untilMs).toISOString();
    await harness.cluster.admin.call("PATCH", `${protectorsIn(NAMESPACE)}/${app}`, { spec: { suspend: { until } } });
    const before = names.splice(0, names.length - 4);
    for (const name of before) {
      const isAllowed = verdictOf(await harness.delete(name)) === "allow";
      if (Date.now() < untilMs) expect(isAllowed).toBe(true);
    }
    await harness.cluster.waitFor("the end, and the webhook to know of it", async () => {
      return Date.now() >= untilMs && (await metric("protectors_suspended")) === 0;
    });
    for (const name of names) expect(verdictOf(await harness.delete(name))).toBe("denial");
    expect(await metric("reviews_total", { outcome: "suspended" })).toBeGreaterThan(0);
  });
});

describe("the force-delete annotation, where it needs a permission", () => {
  async function forced(value: string): Promise<string> {
    const [name = ""] = await protect(1, { minAvailable: 1000 });
    await harness.cluster.admin.call("PATCH", `${PODS}/${name}`, {
      metadata: { annotations: { [FORCE_DELETE_ANNOTATION]: value } },
    });
    return name;
  }

  const auditOf = (name: string): Deletion[] => readDeletions(harness.cluster).filter(({ pod }) => pod === name);

  async function deleteAs(user: string, name: string): Promise<{ code: number; stderr: string }> {
    return harness.cluster.kubectl(["delete", "pod", name, "--wait=false"], {
      kubeconfig: await harness.cluster.kubeconfigFor({ user }),
    });
  }

  it("allows users with the permission, and only them", async () => {
    await harness.cluster.kubectl(["create", "role", "deleter", "--verb=delete", "--resource=pods"]);
    await harness.cluster.kubectl(["create", "rolebinding", "deleters", "--role=deleter", "--user=eve", "--user=ann"]);
    await harness.cluster.kubectl([
      "create",
      "clusterrole",
      "bypass",
      "--verb=bypass",
      "--resource=podprotectors.podseidon.kubewharf.io",
    ]);
    await harness.cluster.kubectl(["create", "rolebinding", "bypassers", "--clusterrole=bypass", "--user=ann"]);
    const name = await forced("true");
    const refused = await deleteAs("eve", name);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("eve may not bypass podprotectors.podseidon.kubewharf.io in namespace default");
    const { code, stderr } = await deleteAs("ann", name);
    expect(stderr).toContain("is allowed by its annotation force-delete");
    expect(code).toBe(0);
    await harness.cluster.waitFor("both to be on record", async () => auditOf(name).some(({ code }) => code === 200));
    // kubectl comes again where it is told that nothing could be decided yet.
    const of = (user: string): Deletion[] => auditOf(name).filter((one) => one.user === user);
    expect(await metric("bypass_ignored_total", { reason: "forbidden" })).toBe(of("eve").length);
    for (const one of of("eve"))
      expect(one).toMatchObject({ code: 429, annotations: { [`${REVIEWED_BY}/force-delete-ignored`]: "forbidden" } });
    expect(of("ann").at(-1)).toMatchObject({ code: 200, annotations: { [`${REVIEWED_BY}/force-delete`]: "true" } });
  });

  it("expires at its time", async () => {
    const over = await forced(JSON.stringify({ until: new Date(Date.now() - 1_000).toISOString(), reason: "x" }));
    const answer = await harness.delete(over);
    expect(verdictOf(answer)).toBe("denial");
    expect(String(answer.headers.warning)).toContain("it was good until");
    const good = await forced(JSON.stringify({ until: new Date(Date.now() + 600_000).toISOString(), reason: "stuck" }));
    expect(verdictOf(await harness.delete(good))).toBe("allow");
    await harness.cluster.waitFor("the reason to be on record", async () => auditOf(good).length > 0);
    expect(auditOf(good)[0]?.annotations).toMatchObject({ [`${REVIEWED_BY}/force-delete-reason`]: "stuck" });
  });
});
