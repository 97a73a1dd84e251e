import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { createCertificateAuthority, issueCertificate } from "../../shared/certificates/x509.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { FAILURES_TO_OPEN } from "./circuit-breaker.ts";
import type { ProbeResponse } from "./message.ts";
import { type ProbeClient, ProbeFailure } from "./probe-client.ts";
import {
  certificatesOf,
  MAX_ENDPOINTS,
  MAX_IN_FLIGHT,
  MAX_OF_NAMESPACE,
  MAX_QUEUED,
  ProbeEndpoints,
} from "./probe-endpoints.ts";
import type { ProbeAnswer, ProbeRequest } from "./probe-request.ts";

const YES: ProbeResponse = { isAllowed: true, error: "" };
const ALLOWED = ["db", "slow", "quick"];

interface Harness {
  readonly time: VirtualTime;
  readonly probes: ProbeEndpoints;
  /** Endpoints of the calls that were made. */
  readonly calls: string[];
  /** Endpoints whose client was closed. */
  readonly closed: string[];
  ask(endpoint?: string, budgetMs?: number, namespace?: string): Promise<ProbeAnswer>;
  settle(answer: Promise<ProbeAnswer>): Promise<ProbeAnswer>;
}

/** `script` returns what an endpoint responds, and after how long; undefined is never. */
function harness(
  script: (endpoint: string) => { readonly afterMs: number; readonly reply: ProbeResponse | Error } | undefined,
): Harness {
  const time = new VirtualTime();
  const calls: string[] = [];
  const closed: string[] = [];
  const connect = ({ endpoint }: { endpoint: string }): ProbeClient => ({
    ask: (_, signal) =>
      new Promise((resolve, reject) => {
        calls.push(endpoint);
        signal.addEventListener("abort", () => reject(new ProbeFailure("no answer in time")));
        const found = script(endpoint);
        if (found === undefined) return;
        time.timers.after(found.afterMs, () =>
          found.reply instanceof Error ? reject(found.reply) : resolve(found.reply),
        );
      }),
    close: () => void closed.push(endpoint),
  });
  const probes = new ProbeEndpoints({ ports: time, onAsked: () => undefined, allowed: ALLOWED, connect });
  const settle = (answer: Promise<ProbeAnswer>): Promise<ProbeAnswer> => time.result(answer, 60_000);
  const ask = (endpoint = "db:1", budgetMs = 9_000, budgetNamespace = "data"): Promise<ProbeAnswer> => {
    const request: ProbeRequest = {
      probe: { endpoint },
      podNamespace: "data",
      podName: "db-0",
      budgetNamespace,
      budgetName: "db",
      deadlineMs: time.clock.monotonicMs() + budgetMs,
    };
    return probes.ask(request);
  };
  return { time, probes, calls, closed, ask, settle };
}

describe("an owner's response", () => {
  test.each<[string, ProbeResponse | Error, string, RegExp]>([
    ["yes", YES, "allowed", /^$/],
    ["no", { isAllowed: false, error: "" }, "refused", /may not go$/],
    ["no, and why", { isAllowed: false, error: "raft leader" }, "refused", /may not go: raft leader$/],
    ["yes and an error: a no, as in x-pdb", { isAllowed: true, error: "unsure" }, "refused", /unsure/],
    ["a failed call", new ProbeFailure("refused"), "failed", /could not ask its probe db:1: refused/],
    [
      "a long text with control characters is cut and cleaned",
      { isAllowed: false, error: `a\n${"b".repeat(500)}` },
      "refused",
      /: a b{198}\.\.\.$/,
    ],
  ])("%s", async (_, reply, result, message) => {
    const r = harness(() => ({ afterMs: 1, reply }));
    const answer = await r.settle(r.ask());
    expect(answer.result).toBe(result);
    expect(answer.message).toMatch(message);
  });
});

test("a call ends at the probe's timeout, or at the request's deadline", async () => {
  const r = harness(() => undefined);
  const startMs = r.time.elapsedMs;
  expect((await r.settle(r.ask("db:1", 9_000))).result).toBe("failed");
  expect(r.time.elapsedMs - startMs).toBe(2_000);
  expect((await r.settle(r.ask("db:1", 300))).result).toBe("failed");
  expect(r.time.elapsedMs - startMs).toBe(2_300);
});

test("a tenant that gives another's owner no time, or asks it without end, keeps nobody else from asking", async () => {
  const r = harness(() => ({ afterMs: 20, reply: YES }));
  for (let count = 0; count < FAILURES_TO_OPEN; count++)
    expect((await r.settle(r.ask("db:1", 1, "tenant"))).result).toBe("failed");
  expect((await r.settle(r.ask("db:1", 1, "tenant"))).result).toBe("down");
  expect((await r.settle(r.ask("db:1"))).result).toBe("allowed");
  await r.time.advance(10_000);
  const others = Array.from({ length: MAX_IN_FLIGHT + MAX_QUEUED }, () => r.ask("db:1", 9_000, "tenant"));
  expect((await r.settle(r.ask("db:1"))).result).toBe("allowed");
  await r.time.result(Promise.all(others));
});

test("a tenant with any number of probes ends no call to another's owner, and leaves room for others", async () => {
  const r = harness((endpoint) => ({ afterMs: endpoint.startsWith("db") ? 1_000 : 1_500, reply: YES }));
  const asked = r.ask("db:1");
  const others = Array.from({ length: 2 * MAX_ENDPOINTS }, (_, port) => r.ask(`slow:${port + 1}`, 9_000, "tenant"));
  const late = r.ask("db:2");
  for (const answer of [asked, late]) expect((await r.settle(answer)).result).toBe("allowed");
  expect(r.closed).toEqual([]);
  const results = (await r.time.result(Promise.all(others))).map(({ result }) => result);
  expect(results.filter((result) => result === "allowed")).toHaveLength(MAX_OF_NAMESPACE);
  expect(results.filter((result) => result === "overloaded")).toHaveLength(2 * MAX_ENDPOINTS - MAX_OF_NAMESPACE);
});

test("of the endpoints of many namespaces, the one that was used least recently is forgotten", async () => {
  const r = harness(() => ({ afterMs: 1, reply: YES }));
  for (let port = 1; port <= MAX_ENDPOINTS + 1; port++) await r.settle(r.ask(`db:${port}`, 9_000, `ns-${port}`));
  expect(r.closed).toEqual(["db:1"]);
});

test("the circuit opens after failures, a trial call follows, and its response closes the circuit", async () => {
  let isUp = false;
  const r = harness(() => ({ afterMs: 1, reply: isUp ? YES : new ProbeFailure("nothing listens there") }));
  for (let count = 0; count < FAILURES_TO_OPEN; count++) expect((await r.settle(r.ask())).result).toBe("failed");
  const answer = await r.settle(r.ask());
  expect(answer).toMatchObject({
    result: "down",
    message: expect.stringMatching(/tried again in \d s \(nothing listens/),
  });
  expect(r.calls).toHaveLength(FAILURES_TO_OPEN);
  expect(r.probes.openCircuits).toBe(1);
  await r.time.advance(2_000);
  // One trial at a time: the second request of this moment is rejected.
  const [trial, other] = [r.ask(), r.ask()];
  expect([(await r.settle(trial)).result, (await r.settle(other)).result]).toEqual(["failed", "down"]);
  isUp = true;
  await r.time.advance(2_000);
  expect((await r.settle(r.ask())).result).toBe("down");
  await r.time.advance(2_000);
  expect((await r.settle(r.ask())).result).toBe("allowed");
  expect(r.probes.openCircuits).toBe(0);
  expect((await r.settle(r.ask())).result).toBe("allowed");
  // All of it begins anew.
  isUp = false;
  for (let count = 0; count < FAILURES_TO_OPEN; count++) expect((await r.settle(r.ask())).result).toBe("failed");
  expect((await r.settle(r.ask())).result).toBe("down");
  isUp = true;
  await r.time.advance(2_400);
  expect((await r.settle(r.ask())).result).toBe("allowed");
});

test("calls and queue of one endpoint are bounded, and another endpoint is not affected", async () => {
  const r = harness((endpoint) =>
    endpoint === "slow:1" ? { afterMs: 1_500, reply: YES } : { afterMs: 1, reply: YES },
  );
  const slow = Array.from({ length: MAX_IN_FLIGHT + MAX_QUEUED }, () => r.ask("slow:1"));
  const tooMany = await r.settle(r.ask("slow:1"));
  expect(tooMany.result).toBe("overloaded");
  expect(r.calls).toHaveLength(MAX_IN_FLIGHT);
  const startMs = r.time.elapsedMs;
  expect((await r.settle(r.ask("quick:1"))).result).toBe("allowed");
  expect(r.time.elapsedMs - startMs).toBeLessThan(2);
  const results = await Promise.all(slow.map(async (one) => (await r.settle(one)).result));
  // The first ones were answered; those that waited were given what is left of their time, which the server's answer
  // takes longer than.
  expect(results.filter((result) => result === "allowed")).toHaveLength(MAX_IN_FLIGHT);
  expect(
    results.filter(
      (result) => result === "allowed" || result === "failed" || result === "down" || result === "overloaded",
    ),
  ).toHaveLength(MAX_IN_FLIGHT + MAX_QUEUED);
});

test("calls that were in flight when the circuit opened keep it open no longer", async () => {
  let isUp = false;
  const r = harness(() => ({ afterMs: 1, reply: isUp ? YES : new ProbeFailure("nothing listens there") }));
  const asked = Array.from({ length: MAX_IN_FLIGHT }, () => r.ask());
  for (const one of asked) expect((await r.settle(one)).result).toBe("failed");
  isUp = true;
  await r.time.advance(2_400);
  expect((await r.settle(r.ask())).result).toBe("allowed");
});

test("those that wait for an endpoint are asked in turn, and who gave up takes no turn", async () => {
  let afterMs: number | undefined = 400;
  const r = harness(() => (afterMs === undefined ? undefined : { afterMs, reply: YES }));
  const all = async (count: number, budgetMs?: number): Promise<ReadonlySet<string>> => {
    const asked = Array.from({ length: count }, () => r.ask("db:1", budgetMs));
    return new Set(await Promise.all(asked.map(async (one) => (await r.settle(one)).result)));
  };
  expect(await all(4 * MAX_IN_FLIGHT)).toEqual(new Set(["allowed"]));
  expect(r.calls).toHaveLength(4 * MAX_IN_FLIGHT);
  const busy = all(MAX_IN_FLIGHT);
  expect(await all(MAX_IN_FLIGHT, 100)).toEqual(new Set(["overloaded"]));
  expect(await busy).toEqual(new Set(["allowed"]));
  const startMs = r.time.elapsedMs;
  afterMs = 300;
  expect(await all(MAX_IN_FLIGHT)).toEqual(new Set(["allowed"]));
  expect(r.time.elapsedMs - startMs).toBe(300);
});

// Who may write a protector could otherwise reach every address that the webhook reaches.
test("a host that the operator does not allow is not asked", async () => {
  const r = harness(() => ({ afterMs: 1, reply: YES }));
  const { result, message } = await r.settle(r.ask("169.254.169.254:80"));
  expect([result, message]).toEqual(["failed", expect.stringContaining("is not among the hosts")]);
  expect(r.calls).toEqual([]);
});

test("an endpoint that is not a URL fails with a clear message", async () => {
  const time = new VirtualTime();
  const probes = new ProbeEndpoints({ ports: time, onAsked: () => undefined, allowed: ALLOWED });
  const probe = { endpoint: "ftp://db", protocol: "HTTP" };
  const names = { podNamespace: "a", podName: "b", budgetNamespace: "a", budgetName: "c" };
  const answer = await probes.ask({ probe, ...names, deadlineMs: 1_000 });
  expect(answer).toEqual({
    result: "failed",
    message: "has a probe that can't be asked: its endpoint is not an http or https URL",
  });
});

describe("the certificate authorities of probes that name none", () => {
  interface Authorities {
    /** Content of the file; undefined when it is missing. */
    file: string | undefined;
    /** Issuer of the server's certificate. */
    server: string;
    readonly connections: (string | undefined)[];
    ask(more?: { readonly caBundle: string }): Promise<ProbeAnswer["result"]>;
  }

  function authorities(file: string | undefined): Authorities {
    const time = new VirtualTime();
    const connections: (string | undefined)[] = [];
    const probes = new ProbeEndpoints({
      ports: time,
      onAsked: () => undefined,
      allowed: ALLOWED,
      defaultCa: () => {
        if (world.file === undefined) throw new Error("ENOENT: no such file");
        return world.file;
      },
      connect: ({ caBundle }) => {
        connections.push(caBundle);
        return {
          ask: async () => {
            if (caBundle !== world.server) throw new ProbeFailure("unable to verify the first certificate");
            return YES;
          },
          close: () => undefined,
        };
      },
    });
    const world: Authorities = {
      file,
      server: "first",
      connections,
      ask: async (more) => {
        const names = { podNamespace: "data", podName: "db-0", budgetNamespace: "data", budgetName: "db" };
        const deadlineMs = time.clock.monotonicMs() + 9_000;
        return (await probes.ask({ probe: { endpoint: "db:1", ...more }, ...names, deadlineMs })).result;
      },
    };
    return world;
  }

  test("are also those of a probe whose caBundle is empty", async () => {
    const world = authorities("first");
    expect(await world.ask({ caBundle: "" })).toBe("allowed");
  });

  test("that could not be read for a new endpoint are read when it is asked again", async () => {
    const world = authorities(undefined);
    expect(await world.ask()).toBe("failed");
    world.file = "first";
    expect(await world.ask()).toBe("allowed");
    expect(await world.ask()).toBe("allowed");
    expect(world.connections).toEqual(["first"]);
  });

  test("are read again after a failed call, when they were replaced", async () => {
    const world = authorities("first");
    expect(await world.ask()).toBe("allowed");
    world.file = "second";
    world.server = "second";
    expect(await world.ask()).toBe("failed");
    expect(await world.ask()).toBe("allowed");
    expect(world.connections).toEqual(["first", "second"]);
  });

  test("that can no longer be read stay in use, and an unchanged file makes no new client", async () => {
    const world = authorities("first");
    expect(await world.ask()).toBe("allowed");
    world.server = "second";
    expect([await world.ask(), await world.ask()]).toEqual(["failed", "failed"]);
    world.file = undefined;
    expect(await world.ask()).toBe("failed");
    world.server = "first";
    expect(await world.ask()).toBe("allowed");
    expect(world.connections).toEqual(["first"]);
  });
});

describe("the files of certificates", async () => {
  const validity = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };
  const authority = await createCertificateAuthority({ ...validity, commonName: "probes" });
  const [own, other] = await Promise.all(
    ["webhook", "other"].map((commonName) =>
      issueCertificate(authority, { ...validity, commonName, usages: ["client"] }),
    ),
  );
  const folder = mkdtempSync(join(tmpdir(), "probe-files-"));
  const paths = {
    caFile: join(folder, "ca"),
    clientCertFile: join(folder, "cert"),
    clientKeyFile: join(folder, "key"),
  };
  const { caFile, clientCertFile } = paths;
  afterEach(() => rmSync(folder, { recursive: true }));

  test.each<[string, string, () => void]>([
    ["an emptied CA, which Node takes for the public authorities", caFile, () => writeFileSync(caFile, "")],
    ["a CA, half written", caFile, () => writeFileSync(caFile, authority.certificatePem.slice(0, 99))],
    ["a CA, deleted", caFile, () => rmSync(caFile)],
    ["a CA, now a directory", caFile, () => [rmSync(caFile), mkdirSync(caFile)]],
    ["an emptied client certificate", clientCertFile, () => writeFileSync(clientCertFile, "")],
    [
      "the client certificate of another key",
      clientCertFile,
      () => writeFileSync(clientCertFile, other?.certificatePem ?? ""),
    ],
  ])("%s: told once, and the last content serves; without any, no endpoint is asked", (_, path, spoil) => {
    const restore = (): void => {
      rmSync(folder, { recursive: true });
      mkdirSync(folder);
      writeFileSync(caFile, authority.certificatePem);
      writeFileSync(clientCertFile, own?.certificatePem ?? "");
      writeFileSync(paths.clientKeyFile, own?.privateKeyPem ?? "");
    };
    mkdirSync(folder, { recursive: true });
    restore();
    const told: string[] = [];
    const log = { error: ({ error }: Readonly<Record<string, unknown>>) => void told.push(String(error)) };
    const files = certificatesOf(paths, log);
    const read = () => [files.defaultCa(), files.clientCertificate()];
    const good = [authority.certificatePem, { cert: own?.certificatePem, key: own?.privateKeyPem }];
    expect(read()).toEqual(good);
    spoil();
    expect([read(), read()]).toEqual([good, good]);
    expect(told).toEqual([expect.stringContaining(path)]);
    const fresh = certificatesOf(paths, log);
    expect(() => [fresh.defaultCa(), fresh.clientCertificate()]).toThrow(/--probe-(ca|client-cert)-file can't be used/);
    restore();
    expect([read(), [fresh.defaultCa(), fresh.clientCertificate()]]).toEqual([good, good]);
  });
});
