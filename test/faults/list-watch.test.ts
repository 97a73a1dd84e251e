import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { createCertificateAuthority, issueCertificate } from "../../shared/certificates/x509.ts";
import { FaultProxy } from "./proxy/proxy.ts";
import { Churn } from "./streams/churn.ts";
import {
  addFaultRow,
  printFaultTable,
  StreamHarness,
  tokenCredentials,
  wrongPositions,
} from "./streams/stream-harness.ts";

/**
 * One list-watch of ConfigMaps that change all the time, over a hostile network and beside a server that fails, without
 * a restart. After each fault it has to hold what a quorum list shows, and at each position in between what an
 * undisturbed list-watch held there.
 */

const NAMESPACE = "default";
const PATH = `/api/v1/namespaces/${NAMESPACE}/configmaps`;
/** How long a fault lasts. Long enough to see how often the client retries. */
const OUTAGE_MS = 10_000;
const MAX_REQUESTS = 10;

let cluster: Cluster;
let proxy: FaultProxy;
let harness: StreamHarness;
let reference: StreamHarness;
let churn: Churn;

beforeAll(async () => {
  cluster = await Cluster.start({ name: "faults", ...BARE });
  const validity = { notBeforeMs: Date.now() - 3_600_000, notAfterMs: Date.now() + 3_600_000 };
  const authority = await createCertificateAuthority({ ...validity, commonName: "proxy" });
  const serving = await issueCertificate(authority, {
    ...validity,
    commonName: "proxy",
    ipAddresses: ["127.0.0.1"],
    usages: ["server"],
  });
  const targetCaPem = cluster.identity.certificateAuthorityPem;
  proxy = await FaultProxy.start({
    target: { host: "127.0.0.1", port: Number(new URL(cluster.url).port) },
    tls: { ...serving, targetCaPem },
  });
  churn = new Churn(cluster.admin, NAMESPACE);
  churn.start();
  const token = cluster.identity.adminToken;
  harness = new StreamHarness(PATH, proxy.url, tokenCredentials(token, authority.certificatePem), {
    confirmEveryMs: 3000,
  });
  reference = new StreamHarness(PATH, cluster.url, tokenCredentials(token, targetCaPem));
  await Promise.all(
    [harness, reference].map((one) => one.until("a stream", () => one.events.some(({ kind }) => kind === "watching"))),
  );
});

afterAll(async () => {
  await churn?.stop();
  await harness?.[Symbol.asyncDispose]();
  await reference?.[Symbol.asyncDispose]();
  await proxy?.[Symbol.asyncDispose]();
  await cluster?.stop();
  printFaultTable();
});

interface Outcome {
  readonly startMs: number;
  readonly failures: string[];
  /** From the first failure until the server could be read again. */
  readonly brokenMs: number;
}

/**
 * Runs `fault` and then `mend`, waits until the reflector has seen a write that was made after that, and compares.
 * `requests` are those that left the client in the first 10 s: of the list-watch itself, and of its quorum checks.
 */
async function during(name: string, fault: () => Promise<unknown>, mend: () => Promise<unknown>): Promise<Outcome> {
  const startMs = performance.now();
  harness.states = [];
  await fault();
  await mend();
  const mendedMs = performance.now();
  const mark = await churn.mark();
  await harness.until(mark, () => harness.source.get(mark) !== undefined);
  const recoveredMs = performance.now() - mendedMs;
  await churn.stop();
  const { held, truth } = await harness.caughtUp(cluster.admin);
  expect(held).toEqual(truth);
  await reference.caughtUp(cluster.admin);
  expect(wrongPositions(harness.states, reference.states)).toEqual([]);
  churn.start();
  const requests = countRequests(startMs);
  expect(Math.max(requests.stream, requests.confirm)).toBeLessThanOrEqual(MAX_REQUESTS);
  addFaultRow({
    name,
    noticedMs: harness.noticedMs(startMs),
    recoveredMs,
    lists: harness.listReasons(startMs),
    requests,
  });
  return {
    startMs,
    failures: harness.failures(startMs),
    brokenMs: harness.brokenMs(startMs),
  };
}

/**
 * Checks that a broken connection led to a list only where the retries took so long that the server may have been
 * restored.
 */
function expectResumed({ startMs, brokenMs }: Outcome): void {
  const outages = harness.listReasons(startMs).filter((reason) => reason === "outage");
  harness.expectLists(startMs, ...(brokenMs < 1000 ? [] : outages));
}

/** Requests that the proxy saw, or failed tries while it refused connections. */
function countRequests(startMs: number): { stream: number; confirm: number } {
  const untilMs = startMs + 10_000;
  const seen = proxy.requests.filter((request) => request.atMs >= startMs && request.atMs < untilMs);
  const isConfirm = (path: string): boolean => /[?&]limit=1(&|$)/.test(path);
  const confirm = seen.filter((request) => isConfirm(request.path)).length;
  // Pages after the first belong to the list of the first page.
  const stream = seen.filter(({ path }) => !isConfirm(path) && !path.includes("continue=")).length;
  const failed = harness.failures(startMs, untilMs).filter((failure) => failure.endsWith(" refused"));
  const refused = failed.filter((failure) => failure.startsWith("confirm")).length;
  return { stream: stream + failed.length - refused, confirm: confirm + refused };
}

const nothing = async (): Promise<void> => {};

describe("the network", () => {
  test("a reset connection is resumed without a list", async () => {
    const outcome = await during(
      "reset",
      async () => {
        const sinceMs = performance.now();
        proxy.reset();
        await harness.until("the reset", () => harness.failures(sinceMs).includes("watch reset"));
      },
      nothing,
    );
    expectResumed(outcome);
  });

  test("refused connections are followed by a list when the server may have been restored meanwhile", async () => {
    const outcome = await during(
      "refused",
      async () => {
        await proxy.refuse(true);
        await delay(OUTAGE_MS);
      },
      () => proxy.refuse(false),
    );
    expect(outcome.failures).toContain("watch refused");
    harness.expectLists(outcome.startMs, "outage");
  });

  test("a half-open connection is noticed by the client's own deadline, and followed by a list", async () => {
    const outcome = await during(
      "half-open",
      async () => {
        const sinceMs = performance.now();
        proxy.halfOpen(true);
        await harness.until("the idle deadline", () => harness.failures(sinceMs).includes("watch timeout"));
      },
      async () => proxy.halfOpen(false),
    );
    harness.expectLists(outcome.startMs, "outage");
  });

  test("a garbage line ends the stream and is followed by a list", async () => {
    const outcome = await during("garbage line", () => proxy.breakNextLine("garbage"), nothing);
    expect(outcome.failures).toContain("watch corrupt");
    harness.expectLists(outcome.startMs, "corrupt");
  });

  test.each(["cutLine", "cutCharacter"] as const)(
    "%s: the partial line is dropped and the stream is resumed",
    async (fault) => {
      const outcome = await during(fault, () => proxy.breakNextLine(fault), nothing);
      expect(outcome.failures[0]).toMatch(/^watch (reset|ended-early)/);
      expectResumed(outcome);
    },
  );

  test.each(["DELETED", "ADDED"])("an event that never arrives (%s) is noticed by counting", async (type) => {
    const startMs = performance.now();
    const maps = () => [...harness.source.values()].map(({ name }) => name);
    const name = `lost-${type.toLowerCase()}`;
    const send = (method: "POST" | "DELETE", path: string) =>
      cluster.admin.request(method, path, method === "POST" ? { metadata: { name } } : undefined);
    if (type === "DELETED") {
      await send("POST", PATH);
      await harness.until("the object", () => maps().includes(name));
    }
    const lost = proxy.loseNextEvent(`"type":"${type}"`, `"name":"${name}"`);
    await (type === "DELETED" ? send("DELETE", `${PATH}/${name}`) : send("POST", PATH));
    await lost;
    await harness.until("the lost change", () => maps().includes(name) === (type === "ADDED"));
    expect(harness.failures(startMs)).toContain("watch missed-event");
    harness.expectLists(startMs, "missedEvent");
    await churn.stop();
    const { held, truth } = await harness.caughtUp(cluster.admin);
    expect(held).toEqual(truth);
    churn.start();
  });

  test("a slow network that cuts lines and characters everywhere loses nothing", async () => {
    const outcome = await during(
      "20 kB/s in pieces, 100 ms late",
      async () => {
        proxy.setConditions({ bytesPerMs: 20, delayMs: 100 });
        proxy.reset();
        await delay(5000);
      },
      async () => proxy.setConditions({}),
    );
    expect(outcome.failures.filter((failure) => failure.includes("corrupt"))).toEqual([]);
  });

  test("a 429 with Retry-After is obeyed", async () => {
    const outcome = await during(
      "429, Retry-After 3 s",
      async () => {
        const sinceMs = performance.now();
        proxy.respondNext(1, { status: 429, headers: { "retry-after": "3" } }, (path) => path.includes("watch=1"));
        await harness.until("the refusal", () => harness.failures(sinceMs).includes("watch throttled"));
        const seen = proxy.requests.length;
        await harness.until("the next try", () =>
          proxy.requests.slice(seen).some(({ path }) => path.includes("watch=1")),
        );
        const [refused, next] = proxy.requests
          .filter(({ path, atMs }) => path.includes("watch=1") && atMs >= sinceMs)
          .slice(-2);
        expect((next?.atMs ?? 0) - (refused?.atMs ?? 0)).toBeGreaterThanOrEqual(3000);
      },
      nothing,
    );
    harness.expectLists(outcome.startMs);
  });
});

describe("the server", () => {
  test("kube-apiserver killed and started again", async () => {
    await during(
      "apiserver kill -9",
      () => cluster.processes["kube-apiserver"].kill("SIGKILL"),
      () => cluster.processes["kube-apiserver"].start(),
    );
  });

  test("kube-apiserver frozen", async () => {
    await during(
      "apiserver SIGSTOP",
      async () => {
        cluster.processes["kube-apiserver"].freeze();
        await delay(OUTAGE_MS);
      },
      async () => cluster.processes["kube-apiserver"].thaw(),
    );
  });

  test("kube-apiserver frozen, and a new watch never answered", async () => {
    const outcome = await during(
      "apiserver SIGSTOP, connections reset",
      async () => {
        const sinceMs = performance.now();
        const isNewWatch = ({ path, atMs }: { path: string; atMs: number }): boolean =>
          path.includes("watch=1") && atMs >= sinceMs;
        cluster.processes["kube-apiserver"].freeze();
        proxy.reset();
        await harness.until("the new watch", () => proxy.requests.some(isNewWatch));
        proxy.reset();
      },
      async () => cluster.processes["kube-apiserver"].thaw(),
    );
    expect(outcome.failures).toContain("watch reset");
  });

  test("etcd killed and started again", async () => {
    await during(
      "etcd kill -9",
      async () => {
        await cluster.processes.etcd.kill("SIGKILL");
        await delay(2000);
      },
      () => cluster.processes.etcd.start(),
    );
  });

  test("a compacted version is answered by 410, and followed by a list", async () => {
    const outcome = await during(
      "410 after compaction",
      async () => {
        const sinceMs = performance.now();
        // Each try has a connection of its own, which ends with no server's.
        const busy = { status: 429, headers: { "retry-after": "1", connection: "close" } };
        // From the end of the stream on. A server without a response may have been restored; a throttling server was
        // not.
        proxy.respondNext(Number.POSITIVE_INFINITY, busy, (path) => path.includes("watch=1"));
        await harness.until("the refusal", () => harness.failures(sinceMs).includes("watch throttled"));
        // A position that nothing was written after is current in the new server, too.
        await churn.mark();
        await cluster.etcd.compact();
        // The old server's cache would still have the events. A new server's cache begins at the present.
        const apiserver = cluster.processes["kube-apiserver"];
        await apiserver.kill("SIGKILL");
        const goneMs = performance.now();
        await harness.until("a refusal without a server", () => harness.failures(goneMs).includes("watch throttled"));
        await apiserver.start();
      },
      async () => proxy.respondNext(0, { status: 429 }),
    );
    harness.expectLists(outcome.startMs, "expired");
  });
});

test("a quiet collection is confirmed repeatedly without any event", async () => {
  await churn.stop();
  const firstMs = performance.now();
  await harness.until("a confirmation", () => (harness.source.confirmedSentMs ?? 0) > firstMs);
  const againMs = performance.now();
  await harness.until("another one", () => (harness.source.confirmedSentMs ?? 0) > againMs);
  churn.start();
});

test("etcd restored to an older state is noticed, and everything is listed again", async () => {
  await churn.stop();
  await harness.caughtUp(cluster.admin);
  const snapshot = cluster.snapshotEtcd();
  churn.start();
  await delay(2000);
  await churn.stop();
  await harness.caughtUp(cluster.admin);
  const before = harness.source.position;
  const startMs = performance.now();
  await cluster.restoreEtcd(snapshot);
  const restoredMs = performance.now();
  await harness.until("versions that went back", () =>
    harness.events.some((event) => event.kind === "versionWentBack" && event.atMs > startMs),
  );
  const recoveredMs = performance.now() - restoredMs;
  const { held, truth } = await harness.caughtUp(cluster.admin);
  expect(held).toEqual(truth);
  expect(BigInt(harness.source.position ?? 0)).toBeLessThan(BigInt(before ?? 0));
  const lists = harness.listReasons(startMs);
  // Whichever comes first: the server responds after its restore, or it says that it has not reached the version. On a
  // busy machine this process may find that it has not run for a second, which asks for the same list.
  expect(lists.slice(0, 1)).toContainEqual(expect.stringMatching(/^(outage|versionWentBack|standstill)$/));
  addFaultRow({
    name: "etcd restored to an older state",
    noticedMs: harness.noticedMs(startMs),
    recoveredMs,
    lists,
    requests: countRequests(startMs),
  });
});
