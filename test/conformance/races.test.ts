/** The races that upstream's documents describe, on a real apiserver with another, slow webhook. */

import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { field } from "../../scripts/control-plane/api-client.ts";
import { BARE } from "../../scripts/control-plane/cluster.ts";
import type { TestEnvironment } from "../../scripts/environment/environment.ts";
import { ask } from "../support/cluster/ask.ts";
import { OtherWebhook } from "../support/cluster/other-webhook.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import {
  availableReplicas,
  createProtector,
  readProtector,
  reservationCount,
  waitUntilSettled,
} from "../support/cluster/protectors.ts";
import { HistoryRecorder } from "../support/history/history-recorder.ts";

const PODS = "/api/v1/namespaces/default/pods";

let environment: TestEnvironment;
let recorder: HistoryRecorder;
let other: OtherWebhook;

/** Holds the review of one pod until it is released; tells when the review has arrived. */
class Gate {
  readonly #arrived = Promise.withResolvers<void>();
  readonly #open = Promise.withResolvers<void>();

  constructor(pod: string) {
    other.opinion = async (reviewed) => {
      if (reviewed !== `default/${pod}`) return true;
      this.#arrived.resolve();
      await this.#open.promise;
      return true;
    };
  }

  get arrived(): Promise<void> {
    return this.#arrived.promise;
  }

  open(): void {
    this.#open.resolve();
  }
}

beforeAll(async () => {
  ({ environment, recorder } = await HistoryRecorder.start({
    cells: ["cell"],
    single: true,
    replicas: 2,
    settle: "70s",
    cell: BARE,
  }));
  other = await OtherWebhook.start(environment.core);
  await other.register(environment.core);
});

afterEach(() => {
  other.opinion = () => true;
});

afterAll(async () => {
  await other?.stop();
  try {
    await recorder?.judged();
  } finally {
    await environment?.stop();
  }
});

async function prepare(app: string, count: number, minAvailable: number): Promise<string[]> {
  await createProtector(environment.core, "default", app, { minAvailable, selector: { matchLabels: { app } } });
  const names = await createReadyPods(environment.core, { namespace: "default", prefix: app, count, labels: { app } });
  await waitUntilSettled(environment.core, "default", app, count);
  await recorder.untilKnown();
  return names;
}

async function remove(name: string): Promise<number> {
  return (await ask(environment.core, "DELETE", `${PODS}/${name}`)).status;
}

async function reserved(app: string): Promise<number> {
  return reservationCount(await readProtector(environment.core, "default", app));
}

describe("races between admission, commit and watch", () => {
  it("frees no quota of a deletion that commits later than another one's event (pod Y)", async () => {
    const [x = "", y = "", z = ""] = await prepare("pod-y", 3, 1);
    const gate = new Gate(y);
    const late = remove(y);
    await gate.arrived;
    await environment.core.waitFor("the reservation of y", async () => (await reserved("pod-y")) === 1);
    expect(await remove(x)).toBe(200);
    // The aggregator has seen the deletion of x after the admission of y. Upstream's clock would free both.
    await environment.core.waitFor("x to be accounted for", async () => {
      const protector = await readProtector(environment.core, "default", "pod-y");
      return availableReplicas(protector) === 2 && reservationCount(protector) === 1;
    });
    expect(await remove(z)).toBe(429);
    gate.open();
    expect(await late).toBe(200);
    await waitUntilSettled(environment.core, "default", "pod-y", 1);
  });

  it("reserves once for a pod that changes during a slow review", async () => {
    const [name = ""] = await prepare("changing", 3, 2);
    const gate = new Gate(name);
    const deletion = remove(name);
    await gate.arrived;
    const before = other.requests;
    await environment.core.admin.call("PATCH", `${PODS}/${name}`, { metadata: { annotations: { changed: "yes" } } });
    gate.open();
    expect(await deletion).toBe(200);
    expect(other.requests).toBeGreaterThan(before);
    await waitUntilSettled(environment.core, "default", "changing", 2);
  });

  it("evicts the pod that was reviewed, not the one that took its name", async () => {
    const [name = ""] = await prepare("replaced", 3, 1);
    const gate = new Gate(name);
    const eviction = ask(environment.core, "POST", `${PODS}/${name}/eviction`, {
      apiVersion: "policy/v1",
      kind: "Eviction",
      metadata: { name, namespace: "default" },
    });
    await gate.arrived;
    // The gate holds a deletion of this name, too, so the other webhook now allows everything.
    other.opinion = () => true;
    expect(await remove(name)).toBe(200);
    await environment.core.waitFor(
      `${name} to be gone`,
      async () => (await environment.core.admin.request("GET", `${PODS}/${name}`)).status === 404,
    );
    const spec = { schedulerName: "none", containers: [{ name: "app", image: "app:1" }] };
    const created = await environment.core.admin.call("POST", PODS, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, labels: { app: "replaced" } },
      spec,
    });
    gate.open();
    expect((await eviction).status).toBe(409);
    expect(field(await environment.core.admin.get(`${PODS}/${name}`), "metadata", "uid")).toBe(
      field(created, "metadata", "uid"),
    );
  });
});
