/**
 * One budget over two clusters, as with x-pdb, created by the steps of its migration page, and evictions in both
 * clusters at the same moment. x-pdb allows one and waits five seconds for the next. Here as many as the budget can
 * spare are allowed at once, and no more.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { ApiAnswer } from "../../../scripts/control-plane/api-client.ts";
import { BARE, type Cluster } from "../../../scripts/control-plane/cluster.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { ask, messageOf, verdictOf } from "../../support/cluster/ask.ts";
import { shellCommand } from "../../support/cluster/documented.ts";
import { OtherWebhook } from "../../support/cluster/other-webhook.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import {
  generatorTransport,
  installCrd,
  installGenerator,
  type RunningGenerator,
  startGenerator,
} from "../../support/generator/generator-harness.ts";
import { ProbeServer } from "../../support/webhook/probe-server.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const PER_CLUSTER = FULL ? 100 : 20;
const BUDGET = 10;
const ROUNDS = FULL ? 10 : 2;
/** How long x-pdb holds its lock. */
const X_PDB_SECONDS_EACH = 5;
const PROTECTOR = "xpoddisruptionbudget-db";
const PAGE = readFileSync(new URL("../../../docs/migration-from-x-pdb.md", import.meta.url), "utf8");

let environment: TestEnvironment;
let transport: Transport;
let running: RunningGenerator;
let probe: ProbeServer;
/** A webhook in the place of x-pdb that allows everything. */
let xPdb: OtherWebhook;

beforeAll(async () => {
  // The longest that kube-apiserver allows, so that the number of allowed evictions does not depend on how busy the
  // machine is.
  const registration = { timeoutSeconds: 30 };
  environment = await TestEnvironment.start({
    cells: ["a", "b"],
    replicas: 0,
    settle: "40s",
    registration,
    cell: BARE,
  });
  await environment.addWebhook("webhook-dry", ["--dry-run"]);
  probe = await ProbeServer.start(() => ({ is_allowed: true }), await serving());
  xPdb = await OtherWebhook.start(environment.core);
  await installGenerator(environment.core);
  await installCrd(environment.core, "xpoddisruptionbudgets.x-pdb.form3.tech");
  transport = await generatorTransport(environment.core);
  running = startGenerator(transport);
});

afterAll(async () => {
  await running?.stop();
  transport?.close();
  await probe?.[Symbol.asyncDispose]();
  await xPdb?.stop();
  await environment?.stop();
});

/** A certificate of the cluster's authority, which the system does not trust. */
async function serving(): Promise<{ cert: string; key: string }> {
  const { certificatePem: cert, privateKeyPem: key } = await environment.core.identity.servingCertificate(
    ["db"],
    ["127.0.0.1"],
  );
  return { cert, key };
}

function clusters(): readonly Cluster[] {
  return [environment.cell("a"), environment.cell("b")];
}

async function fill(round: number, count = PER_CLUSTER): Promise<string[]> {
  const made = await Promise.all(
    clusters().map((cluster) =>
      createReadyPods(cluster, { namespace: "default", prefix: `db-${round}`, count, labels: { app: "db" } }),
    ),
  );
  return made[0] ?? [];
}

async function tryToEvict(cluster: Cluster, name: string): Promise<ApiAnswer> {
  const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: "default" } };
  return ask(cluster, "POST", `/api/v1/namespaces/default/pods/${name}/eviction`, body);
}

async function evict(cluster: Cluster, name: string): Promise<number> {
  return (await tryToEvict(cluster, name)).status;
}

describe("a budget over two clusters", () => {
  it("is created from an XPodDisruptionBudget, and takes over, by the steps of the migration page", async () => {
    const [first, second] = clusters();
    if (first === undefined || second === undefined) throw new Error("there are two clusters");
    for (const cluster of clusters()) await xPdb.register(cluster, "x-pdb-pod-deletion-validation");
    const metadata = { name: "db", namespace: "default" };
    const spec = { minAvailable: 2 * PER_CLUSTER - BUDGET, selector: { matchLabels: { app: "db" } } };
    const kind = { apiVersion: "x-pdb.form3.tech/v1alpha1", kind: "XPodDisruptionBudget" };
    await environment.core.apply([{ ...kind, metadata, spec }]);
    await shellCommand(environment.core, PAGE, "protect");
    await environment.core.waitFor("the protector", async () =>
      (await shellCommand(environment.core, PAGE, "compare")).includes(PROTECTOR),
    );
    const made = await readProtector(environment.core, "default", PROTECTOR);
    expect(made.spec).toMatchObject({ minAvailable: spec.minAvailable, unhealthyPodPolicy: "IfHealthyBudget" });

    // Beside x-pdb, as a dry run with warnings about what would be denied.
    const [one = "", other = ""] = await fill(0, 2);
    await waitUntilSettled(environment.core, "default", PROTECTOR, 4);
    const tried = await tryToEvict(first, one);
    expect(tried.status).toBe(201);
    expect(String(tried.headers.warning)).toMatch(/dry run: .*xpoddisruptionbudget-db/);
    expect(xPdb.requests).toBeGreaterThan(0);

    // Enforced, and without x-pdb.
    await environment.replaceWebhooks(["webhook-1", "webhook-2"]);
    for (const cluster of clusters()) await shellCommand(cluster, PAGE, "retire");
    await environment.core.waitFor("x-pdb not to be asked any more", async () => {
      const before = xPdb.requests;
      for (const cluster of clusters()) expect(await evict(cluster, other)).toBe(429);
      return xPdb.requests === before;
    });
    for (const cluster of clusters()) await clear(cluster);
    await waitUntilSettled(environment.core, "default", PROTECTOR, 0);
  });

  it(`allows ${BUDGET} at once, wherever they are, and no more`, async () => {
    const availability = await AvailabilityJudge.watch(clusters(), "default");
    const figures: number[] = [];
    try {
      for (let round = 1; round <= ROUNDS; round++) {
        const names = await fill(round);
        await waitUntilSettled(environment.core, "default", PROTECTOR, 2 * PER_CLUSTER);
        await availability.catchUp();
        availability.from();
        const startedMs = performance.now();
        let lastMs = 0;
        let allowed = 0;
        let left = clusters().flatMap((cluster) => names.map((name) => ({ cluster, name })));
        // Who is told that all quota is reserved comes again, as clients do: what had reserved it may have failed.
        while (left.length > 0) {
          const verdicts = await Promise.all(
            left.map(async ({ cluster, name }) => {
              const answer = await tryToEvict(cluster, name);
              if (answer.status === 201) lastMs = performance.now() - startedMs;
              expect(["allow", "denial", "busy"], messageOf(answer)).toContain(verdictOf(answer));
              return verdictOf(answer);
            }),
          );
          allowed += verdicts.filter((verdict) => verdict === "allow").length;
          left = left.filter((_, index) => verdicts[index] === "busy");
          const remaining = 2 * PER_CLUSTER - allowed;
          await waitUntilSettled(environment.core, "default", PROTECTOR, remaining);
        }
        figures.push(lastMs);
        expect(allowed).toBe(BUDGET);
        await availability.catchUp();
        expect(availability.lowest).toBe(2 * PER_CLUSTER - BUDGET);
        // The next round starts with new pods. These are all force-deleted.
        for (const cluster of clusters()) await clear(cluster);
        await waitUntilSettled(environment.core, "default", PROTECTOR, 0);
      }
    } finally {
      await availability.stop();
    }
    const slowest = Math.max(...figures);
    process.stdout.write(
      `${BUDGET} of ${2 * PER_CLUSTER} evictions in two clusters at once, ${ROUNDS} rounds: ` +
        `all ${BUDGET} within ${figures.map((ms) => Math.round(ms)).join(", ")} ms, ` +
        `${Math.round((BUDGET * 60_000) / slowest)} a minute at least; ` +
        `one in ${X_PDB_SECONDS_EACH} s would be ${60 / X_PDB_SECONDS_EACH} a minute\n`,
    );
  });

  it("probes the owner by the budget's own name, with the authority that the webhook was given", async () => {
    await environment.core.kubectl([
      ...["patch", "xpoddisruptionbudget/db", "--type=merge", "--patch"],
      JSON.stringify({ spec: { probe: { endpoint: probe.grpcEndpoint } } }),
    ]);
    await environment.core.waitFor("the protector to have a probe", async () => {
      return (await readProtector(environment.core, "default", PROTECTOR)).spec.probe !== undefined;
    });
    const [name = ""] = await fill(99);
    await waitUntilSettled(environment.core, "default", PROTECTOR, 2 * PER_CLUSTER);
    expect(await evict(environment.cell("a"), name)).toBe(429);
    expect(probe.requests).toEqual([]);
    const caFile = `${environment.core.directory}/probe-ca.pem`;
    writeFileSync(caFile, environment.core.identity.certificateAuthorityPem);
    await environment.replaceWebhooks(["webhook-with-ca"], ["--probe-ca-file", caFile, "--probe-allow=127.0.0.1"]);
    await environment.core.waitFor(
      "the eviction to be allowed",
      async () => (await evict(environment.cell("a"), name)) === 201,
    );
    expect(probe.requests.at(-1)).toEqual({
      pod_name: name,
      pod_namespace: "default",
      xpdb_name: "db",
      xpdb_namespace: "default",
    });
  });

  it("is suspended as with x-pdb", async () => {
    await shellCommand(environment.core, PAGE, "suspend");
    await environment.core.waitFor("the suspension to show", async () => {
      const { status } = await readProtector(environment.core, "default", PROTECTOR);
      return status?.conditions?.some(({ type, status: now }) => type === "Suspended" && now === "True") === true;
    });
    for (const cluster of clusters()) {
      const names = Array.from({ length: PER_CLUSTER }, (_, index) => `db-99-${index}`);
      const answers = await Promise.all(names.slice(1).map((one) => tryToEvict(cluster, one)));
      expect(answers.filter(({ status }) => status !== 201).map(messageOf)).toEqual([]);
    }
  });
});

/** Deletes all pods with the force-delete annotation. */
async function clear(cluster: Cluster): Promise<void> {
  const annotation = "podseidon.kubewharf.io/force-delete=end of the round";
  const { code, stderr } = await cluster.kubectl(["annotate", "pods", "--all", annotation]);
  if (code !== 0) throw new Error(stderr);
  await cluster.kubectl(["delete", "pods", "--all", "--now"]);
}
