/** A core cluster and a cell with the built processes, one protected workload, and `kubectl podseidon` to ask them. */

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, symlinkSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { childEnvironment } from "../../../scripts/control-plane/reaper.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { setReady } from "../../support/cluster/pods.ts";
import { readProtector, reservationCount } from "../../support/cluster/protectors.ts";
import { type Ended, ended } from "../../support/runtime/ended.ts";

export const NAMESPACE = "shop";
export const NAME = "deployment-web";
export const NODE = "node-1";
export const PODS = ["web-0", "web-1", "web-2", "web-3"];
const LABELS = { app: "web" };

const strategy = { type: "RollingUpdate", rollingUpdate: { maxUnavailable: "25%" } };
const workload = deployment("web", PODS.length, { namespace: NAMESPACE, spec: { strategy } });

export class PluginEstate {
  readonly environment: TestEnvironment;
  readonly kubectl: string;
  readonly #path: string;
  generator: Component;

  private constructor(environment: TestEnvironment, kubectl: string, path: string, generator: Component) {
    this.environment = environment;
    this.kubectl = kubectl;
    this.#path = path;
    this.generator = generator;
  }

  /** Resolves when the workload's protector counts all four pods. */
  static async start(): Promise<PluginEstate> {
    const { kubectl } = await ensureBinaries();
    const environment = await TestEnvironment.start({
      ...{ cells: ["cell"], replicas: 1, settle: "40s", core: BARE, cell: BARE },
      // The dashboard also shows what is served only if it is asked for.
      ...{ webhookArgs: ["--metrics-by-namespace=true"], aggregatorArgs: ["--protector-metrics=true"] },
    });
    const { core } = environment;
    const bin = join(core.directory, "bin");
    mkdirSync(bin);
    symlinkSync(process.execPath, join(bin, "node"));
    const path = [join(root, "dist"), bin, dirname(kubectl), "/usr/bin", "/bin"].join(delimiter);
    const cell = environment.cell("cell");
    const space = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
    await Promise.all([
      core.apply([space]),
      cell.apply([space, { apiVersion: "v1", kind: "Node", metadata: { name: NODE } }]),
    ]);
    await core.apply([workload]);
    const generator = await environment.startGenerator([]);
    const estate = new PluginEstate(environment, kubectl, path, generator);
    for (const pod of PODS) await estate.createPod(pod, true);
    await core.waitFor("the protector", async () => {
      const kind = "/apis/podseidon.kubewharf.io/v1alpha1";
      const raw = await core.admin.request("GET", `${kind}/namespaces/${NAMESPACE}/podprotectors/${NAME}`);
      return raw.status === 200;
    });
    await estate.untilCounted(PODS.length);
    await cell.waitFor("a backup", async () => (await estate.plugin("doctor")).stdout.includes("of 1 protector\n"));
    return estate;
  }

  async stop(): Promise<void> {
    await this.generator.stop();
    await this.environment.stop();
  }

  /** Runs `kubectl podseidon ...` with both clusters in KUBECONFIG, one file each. */
  plugin(...args: readonly string[]): Promise<Ended> {
    return this.run(this.kubectl, ["podseidon", ...args]);
  }

  /** A command that goes on until `end`; `printed` is what it has said so far. */
  going(...args: readonly string[]): { printed(): string; end(): Promise<void> } {
    const child = this.#spawn(this.kubectl, ["podseidon", ...args]);
    let stdout = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    const ended = once(child, "close");
    return {
      printed: () => stdout,
      end: async () => {
        child.kill("SIGINT");
        await ended;
      },
    };
  }

  #spawn(command: string, args: readonly string[]): ChildProcessWithoutNullStreams {
    const { core } = this.environment;
    const KUBECONFIG = [this.environment.cell("cell").kubeconfig, core.kubeconfig].join(delimiter);
    return spawn(command, [...args], {
      env: { ...childEnvironment(core.directory), PATH: this.#path, KUBECONFIG, PODSEIDON_CORE_CONTEXT: "core" },
    });
  }

  run(command: string, args: readonly string[]): Promise<Ended> {
    return ended(this.#spawn(command, args));
  }

  /** Another generator in place of the first, so that it sees what happened while none ran. */
  async replaceGenerator(meanwhile: () => Promise<void>): Promise<void> {
    await this.generator.stop();
    await meanwhile();
    this.generator = await this.environment.startGenerator(["--leader-elect=false"], "generator-2");
  }

  async untilCounted(available: number): Promise<void> {
    const { core } = this.environment;
    const isCounted = async (): Promise<boolean> => {
      const protector = await readProtector(core, NAMESPACE, NAME);
      const [cell] = protector.status?.cells ?? [];
      return cell?.aggregation?.availableReplicas === available && reservationCount(protector) === 0;
    };
    await core.waitFor(`${available} pods to be counted`, isCounted);
  }

  async createPod(name: string, isReady: boolean): Promise<void> {
    const cell = this.environment.cell("cell");
    const metadata = { name, namespace: NAMESPACE, labels: LABELS };
    const spec = { nodeName: NODE, containers: [{ name: "app", image: "app:1" }] };
    await cell.apply([{ apiVersion: "v1", kind: "Pod", metadata, spec }]);
    await setReady(cell, NAMESPACE, name, isReady);
  }
}
