/**
 * The image of the Containerfile, built and run by podman: what is in it and how large it is, and the project installed
 * by its manifests with every pod a container of it. With PODSEIDON_TEST_SIZE=full only, because its build installs the
 * locked packages again. The bases are stand-ins of the same shape (`image-bases.ts`), because a test must not depend
 * on a registry.
 */
import { join } from "node:path";
import { loadAll } from "js-yaml";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay, kubelet, untilTrusted, webhookEndpoints } from "../../../scripts/demo/install.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { root } from "../../../scripts/root.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { writeBuildBase } from "./image-bases.ts";
import { Podman, RUN_BASE } from "./podman.ts";

const IMAGE = "localhost/podseidon-test/podseidon";
const BUILD_BASE = "localhost/podseidon-test/build-base";
const MB = 1_000_000;
/** Beside Node.js and its libraries. */
const BUNDLES_BUDGET_MB = 25;
const PODS = 3;

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const found = FULL ? await Podman.find() : "it runs with PODSEIDON_TEST_SIZE=full only";
if (FULL && typeof found === "string") process.stdout.write(`image: not built here, because ${found}\n`);
const engine = (): Podman => {
  if (typeof found === "string") throw new Error(found);
  return found;
};

/** The files of an image, by path; the kernel's are not its own. */
const LIST = `const fs = require("node:fs");
const walk = (at) => fs.readdirSync(at || "/", { withFileTypes: true }).flatMap((one) => {
  const path = at + "/" + one.name;
  return ["/proc", "/sys", "/dev"].includes(path) ? [] : one.isDirectory() ? walk(path) : [path];
}); console.log(JSON.stringify(walk("")))`;

/** What a process is, and what it may. */
const WHO = `const fs = require("node:fs");
const can = (path) => { try { fs.writeFileSync(path, ""); return "written"; } catch (error) { return error.code; } };
const lines = fs.readFileSync("/proc/self/status", "utf8").split("\\n");
const status = Object.fromEntries(lines.map((line) => line.split(":\\t")));
console.log(JSON.stringify({ user: process.getuid(), group: process.getgid(),
capabilities: status.CapEff, bounding: status.CapBnd, noNewPrivileges: status.NoNewPrivs,
writes: ["/x", "/podseidon/x", "/tmp-x", "/home/nonroot/x"].map(can) }))`;

const Words = v.array(v.string());
const Pod = v.object({ containers: v.tuple([v.object({ command: Words })]) });

describe.skipIf(typeof found === "string")(`the image${typeof found === "string" ? `: ${found}` : ""}`, () => {
  const lines: string[] = [];
  let cluster: Cluster;

  beforeAll(async () => {
    const base = join(engine().directory, "build-base");
    writeBuildBase(base);
    await engine().build(BUILD_BASE, base);
    await engine().build(IMAGE, root, [
      "--build-arg",
      `BUILD_BASE=${BUILD_BASE}`,
      "--build-arg",
      `RUN_BASE=${RUN_BASE}`,
    ]);
    cluster = await Cluster.start(BARE);
  }, 30 * 60_000);

  afterAll(async () => {
    process.stdout.write(`${lines.join("\n")}\n`);
    await cluster?.stop();
    await engine().close();
  });

  test("has the bundles beside its base and nothing else, and is small", async () => {
    const files = async (image: string, flags: readonly string[]): Promise<string[]> =>
      v.parse(Words, JSON.parse(await engine().run(image, ["/nodejs/bin/node", "--eval", LIST], flags)));
    const base = new Set(await files(RUN_BASE, ["--entrypoint=[]"]));
    const added = (await files(IMAGE, [])).filter((path) => !base.has(path)).sort();
    const parts = ["aggregator", "certificates", "eviction-retry", "generator", "update-trigger", "webhook"];
    expect(added.filter((path) => !path.startsWith("/podseidon/chunks/"))).toEqual(
      [
        ...parts.flatMap((part) => [`/podseidon/${part}.mjs`, `/podseidon/${part}.mjs.map`]),
        ...["kubectl-podseidon", "kubectl-podseidon.mjs", "kubectl_complete-podseidon"].map(
          (one) => `/podseidon/${one}`,
        ),
        "/podseidon/sbom.cdx.json",
      ].sort(),
    );
    for (const chunk of added.filter((path) => path.startsWith("/podseidon/chunks/")))
      expect(chunk).toMatch(new RegExp(`^/podseidon/chunks/(${parts.join("|")})-[\\w-]+\\.mjs(\\.map)?$`));
    const size = async (image: string): Promise<number> =>
      Number(await engine().command(["image", "inspect", "--format={{.Size}}", image])) / MB;
    const [all, below] = [await size(IMAGE), await size(RUN_BASE)];
    lines.push(
      `image: ${all.toFixed(0)} MB, of which Node.js and its libraries ` +
        `${below.toFixed(0)} MB; ${added.length} files of the project`,
    );
    expect(all - below).toBeLessThan(BUNDLES_BUDGET_MB);
  });

  test("is run by nobody, who may do nothing and writes nowhere, with a read-only root", async () => {
    const who: unknown = JSON.parse(await engine().run(IMAGE, ["node", "--eval", WHO]));
    lines.push(`in a container: ${JSON.stringify(who)}`);
    const none = "0000000000000000";
    expect(who).toEqual({
      ...{ user: 65_532, group: 65_532, capabilities: none, bounding: none, noNewPrivileges: "1" },
      writes: ["EROFS", "EROFS", "EROFS", "EROFS"],
    });
    await expect(engine().run(IMAGE, ["/bin/sh", "-c", "exit 0"])).rejects.toThrow(
      /no such file or directory|not found/,
    );
  });

  test("runs every Deployment's command, and says which version it is", async () => {
    const { stdout } = await cluster.kubectl(["kustomize", join(root, "manifests/overlays/single-cluster")]);
    const deployments = loadAll(stdout).filter((object) => field(object, "kind") === "Deployment");
    expect(deployments).toHaveLength(5);
    for (const deployment of deployments) {
      const [{ command }] = v.parse(Pod, field(deployment, "spec", "template", "spec")).containers;
      expect(await engine().run(IMAGE, [...command, "--help"])).toContain("--");
      const version = (await engine().run(IMAGE, [...command, "--version"])).trim();
      lines.push(`${command.join(" ")} --version: ${version}`);
      expect(version).toMatch(/v?\d+\.\d+\.\d+/);
    }
    expect(await engine().run(IMAGE, [])).toContain("Usage");
  });

  test("installed by the manifests, its containers get ready, deny a deletion, and end when told to", async () => {
    await using balancer = await Balancer.listen([]);
    const replicas = { "podseidon-webhook": 1, "podseidon-aggregator": 1, "podseidon-generator": 1 };
    await applyOverlay(cluster, "single-cluster", { servicePort: balancer.port, replicas });
    const pods = kubelet(cluster, {
      bundles: "",
      onTrouble: (description) => lines.push(description),
      startTimeoutMs: 5 * 60_000,
      startContainer: ({ name, words, environment, files }) => ({
        binary: "podman",
        args: engine().argumentsOf(IMAGE, words, [
          ...["--name", name, "--replace", `--volume=${files}:${files}:ro`],
          ...Object.entries(environment).map(([key, value]) => `--env=${key}=${value}`),
        ]),
      }),
    });
    try {
      await pods.start();
      balancer.endpoints = webhookEndpoints(pods.pods);
      await untilTrusted(cluster);
      const labels = { app: "web" };
      await createProtector(cluster, "default", "web", { minAvailable: PODS, selector: { matchLabels: labels } });
      await createReadyPods(cluster, { namespace: "default", prefix: "web", count: PODS, labels });
      await waitUntilSettled(cluster, "default", "web", PODS, 5 * 60_000);
      const path = "/api/v1/namespaces/default/pods/web-0";
      // The apiserver needs a moment to see the registration's authority: dry runs tell when it has, and harm nobody.
      await cluster.waitFor(
        "the webhook to be asked",
        async () => (await cluster.admin.request("DELETE", `${path}?dryRun=All`)).status === 429,
      );
      const refused = await cluster.admin.request("DELETE", path);
      expect(refused.status).toBe(429);
      lines.push(
        `${pods.pods.length} pods as containers of the image; DELETE ${path}: ${field(refused.body, "message")}`,
      );
      const ps = await engine().command(["ps", "--format={{.Names}} {{.Image}}"]);
      expect(ps.trim().split("\n").sort()).toEqual(pods.pods.map(({ name }) => `${name} ${IMAGE}:latest`).sort());
      // As the first process of its container, which the kernel gives no default way to end.
      for (const { name, process } of pods.pods) {
        await process.kill("SIGTERM");
        await cluster.waitFor(
          `${name} to end`,
          async () => !(await engine().command(["ps", "--format={{.Names}}"])).includes(name),
        );
      }
    } finally {
      await pods.stop();
    }
  });
});
