/**
 * The moments in which an operator needs help, typed one after the other: docs/operations.md#what-you-will-see has each
 * command with its output, and this test compares. Names of time and numbers of seconds differ from run to run and are
 * not compared. `PODSEIDON_WRITE_TRANSCRIPT=1` writes the page anew, and the times to recover with it.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ApiAnswer, field } from "../../../scripts/control-plane/api-client.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { block } from "../../support/cluster/documented.ts";
import { setReady } from "../../support/cluster/pods.ts";
import { readProtector } from "../../support/cluster/protectors.ts";
import { NAME, NAMESPACE, PluginEstate } from "./plugin-estate.ts";

const PAGE = new URL("../../../docs/operations.md", import.meta.url);
const WRITES = process.env.PODSEIDON_WRITE_TRANSCRIPT === "1";
const PROTECTOR = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors/${NAME}`;
const DEPLOYMENT = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/web`;
const TABLE = /<!-- recovery -->\n+(?:\|.*\n){2}((?:\|.*\n)*)/;
const CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podseidon";
/** For what takes a hold, or until a lease has ended: longer than the usual wait, on a busy machine too. */
const HANG_MS = 300_000;
/** Progress, which a slow command tells on a terminal that is none. */
const PROGRESS = /^[a-z]+ing\b.* \.\.\.$/;

let estate: PluginEstate;

beforeAll(async () => {
  estate = await PluginEstate.start();
});

afterAll(() => estate?.stop());

interface Answer {
  readonly code: number;
  readonly text: string;
}

/** Runs a line in a shell, as a reader does. */
async function type(line: string): Promise<Answer> {
  const { code, stdout, stderr } = await estate.run("/bin/bash", ["-c", line]);
  const told = stderr.split("\n").filter((one) => !PROGRESS.test(one));
  return { code, text: stdout + told.join("\n") };
}

/** The block of the page with this name is what typing its commands prints. */
async function transcript(name: string): Promise<void> {
  const page = readFileSync(PAGE, "utf8");
  const told = block(page, name);
  let printed = "";
  for (const line of told.split("\n").filter((one) => /^[$#] /.test(one))) {
    if (line.startsWith("# ")) {
      printed += `${line}\n`;
      continue;
    }
    const text = (await type(line.slice(2))).text.replaceAll(`${hostname()}_`, "host-");
    printed += `${line}\n${text.replaceAll(/[ \t]+$/gm, "").replace(/\n*$/, "\n")}\n`;
  }
  printed = printed.trimEnd();
  if (WRITES) writeFileSync(PAGE, page.replace(told, `${printed}\n`));
  else expect(masked(printed).split("\n")).toEqual(masked(told.trimEnd()).split("\n"));
}

/** Without what differs from run to run: times, ages, and the width of columns. */
function masked(text: string): string {
  return (
    text
      .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
      .replaceAll(/\d\d:\d\d:\d\d UTC/g, "TIME")
      .replaceAll(/\b(\d+(ms|[smhd]))+\b/g, "AGE")
      .replaceAll(/\b\d+ s\b/g, "AGE")
      .replaceAll(/(?<=[A-Z][a-z]+)\/\d+-\S+/g, "/TOKEN")
      .replaceAll(/(127\.0\.0\.1|localhost):\d+/g, "HOST")
      .replaceAll(/(?<=led by host-)\S+/g, "TOKEN,")
      .replaceAll(/ {2,}/g, "  ")
      // No age: whether a reservation was written again after the loss depends on who noticed it first.
      .replaceAll("  -  cell on hold", "  AGE  cell on hold")
  );
}

const isStatus = (text: string) => async (): Promise<boolean> =>
  (await type("kubectl podseidon status --all-namespaces")).text.includes(text);

describe("what an operator sees", () => {
  test("when all is well", () => transcript("all is well"));

  test("when pods may go, and when no more may", async () => {
    await transcript("a pod may go");
    await estate.createPod("web-4", false);
    await estate.untilCounted(3);
    await transcript("no more may go");
  });

  test("when a deletion is meant", async () => {
    await transcript("suspended");
  });

  test("when a protector was deleted", async () => {
    const { uid } = (await readProtector(estate.environment.core, NAMESPACE, NAME)).metadata;
    await estate.environment.core.admin.call("DELETE", PROTECTOR);
    await estate.environment.core.waitFor("its successor", async () => !(await isStored(uid)));
    await estate.environment.core.waitFor("the hold", async () => (await counted())?.hold !== undefined);
    await transcript("on hold");
    await estate.environment.core.waitFor("the end of the hold", isReleased, HANG_MS);
  });

  test("when nobody is asked any more", async () => {
    const { core } = estate.environment;
    const cell = estate.environment.cell("cell");
    const aggregator = estate.environment.aggregators.get("cell");
    await aggregator?.process.kill("SIGKILL");
    await cell.admin.call("DELETE", CONFIGURATION);
    await core.waitFor("the configuration to be out of force", async () => (await dryRun("web-1")).status === 200);
    await transcript("unprotected");
    await estate.environment.register("cell");
    await aggregator?.process.start();
    await core.waitFor("the webhook to be asked", async () => (await dryRun("web-1")).status !== 200);
  });
});

describe("the time to recover", () => {
  const rows: (readonly [what: string, until: string, ms: number])[] = [];

  /** Measures from the end of `lose` until `isBack`. */
  async function recovery(what: string, until: string, lose: () => Promise<unknown>, isBack: () => Promise<boolean>) {
    const startedMs = performance.now();
    await lose();
    await estate.environment.core.waitFor(until, isBack, HANG_MS);
    rows.push([what, until, performance.now() - startedMs]);
  }

  async function restart(component: Component | undefined): Promise<void> {
    await component?.process.kill("SIGKILL");
    await component?.process.start();
  }

  test("is in the table, row by row", async () => {
    const { core, webhooks, aggregators } = estate.environment;
    const cell = estate.environment.cell("cell");
    const webhook = webhooks[0]?.component;
    const { uid } = (await readProtector(core, NAMESPACE, NAME)).metadata;
    await recovery(
      "webhook, the only replica",
      "a deletion is decided",
      () => restart(webhook),
      // Without any webhook the configuration denies it by itself.
      async () => (await dryRun("web-1")).text.includes("needs 3 available pods"),
    );
    await recovery(
      "aggregator",
      "a pod that is not ready is not counted",
      async () => {
        await restart(aggregators.get("cell"));
        await setReady(cell, NAMESPACE, "web-3", false);
      },
      async () => (await counted())?.availableReplicas === 2,
    );
    await recovery(
      "generator",
      "a new promise is in force",
      async () => {
        await restart(estate.generator);
        await core.admin.call("PATCH", DEPLOYMENT, { spec: { replicas: 6 } });
      },
      async () => (await readProtector(core, NAMESPACE, NAME)).spec.minAvailable === 5,
    );
    await recovery(
      "webhook configuration, deleted",
      "the cell's aggregator has put it back",
      () => cell.admin.call("DELETE", CONFIGURATION),
      async () => (await cell.admin.request("GET", CONFIGURATION)).status === 200,
    );
    await recovery(
      "protector, deleted",
      "it is there again",
      () => core.admin.call("DELETE", PROTECTOR),
      async () => !(await isStored(uid)),
    );
    await recovery("the same", "it lets pods go again: the hold of 40 s has ended", async () => {}, isReleased);
    const page = readFileSync(PAGE, "utf8");
    const table = TABLE.exec(page)?.[1] ?? "";
    const measured = rows.map(([what, until, ms]) => `| ${what} | ${until} | ${(ms / 1000).toFixed(1)} s |\n`).join("");
    process.stdout.write(measured);
    if (WRITES) writeFileSync(PAGE, page.replace(table, measured));
    const told = [...table.matchAll(/^\| (.*?) +\| (.*?) +\| [\d.]+ s +\|$/gm)].map(([, what, until]) => [what, until]);
    if (!WRITES) expect(told).toEqual(rows.map(([what, until]) => [what, until]));
  });
});

describe("what an operator sees at the end", () => {
  test("when a workload vanished", async () => {
    const { core } = estate.environment;
    await estate.replaceGenerator(async () => {
      await core.admin.call("PATCH", DEPLOYMENT, { metadata: { finalizers: null } });
      await core.admin.call("DELETE", DEPLOYMENT);
    });
    await core.waitFor("the generator to notice", isStatus("workload vanished"), HANG_MS);
    await transcript("vanished");
  });
});

/** Whether the protector of this UID is still there, or none is. */
async function isStored(uid: string): Promise<boolean> {
  const { status, body } = await estate.environment.core.admin.request("GET", PROTECTOR);
  return status !== 200 || field(body, "metadata", "uid") === uid;
}

/** What the protector says of its cell's pods. */
async function counted() {
  const [cell] = (await readProtector(estate.environment.core, NAMESPACE, NAME)).status?.cells ?? [];
  return cell?.aggregation;
}

async function isReleased(): Promise<boolean> {
  const aggregation = await counted();
  return aggregation?.resourceVersion !== undefined && aggregation.hold === undefined;
}

/** Asks whether the pod may be deleted. */
async function dryRun(pod: string): Promise<ApiAnswer> {
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/${pod}?dryRun=All`;
  return await estate.environment.cell("cell").admin.request("DELETE", path);
}
