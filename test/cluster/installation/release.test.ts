/**
 * `npm run release`, and the quick start of docs/quickstart-kind.md with what it made: from `kubectl apply` to the
 * first refusal on a real control plane. At full size also the chart in the real helm.
 */

import { execFile } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { loadAll } from "js-yaml";
import { beforeAll, describe, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { kubelet, SYSTEM, untilTrusted, webhookEndpoints } from "../../../scripts/demo/install.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { KEEP, VARIANTS } from "../../../scripts/release/chart.ts";
import { makeRelease, type Release } from "../../../scripts/release/main.ts";
import { CELL_PLACEHOLDER, render } from "../../../scripts/release/manifests.ts";
import { root } from "../../../scripts/root.ts";
import { behind, block } from "../../support/cluster/documented.ts";
import { ensureHelm } from "../../support/cluster/test-tools.ts";
import { temporaryDirectory } from "../../support/runtime/temporary-directory.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const REGISTRY = "registry.example.com/team";
const run = promisify(execFile);
const page = readFileSync(new URL("../../../docs/quickstart-kind.md", import.meta.url), "utf8");
const releasePage = readFileSync(new URL("../../../docs/release.md", import.meta.url), "utf8");
const { privateKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });

const directory = temporaryDirectory();
let release: Release;

beforeAll(async () => {
  release = await make("first");
});

const make = (name: string, tag = "v9.8.7"): Promise<Release> =>
  makeRelease({ registry: REGISTRY, tag, out: join(directory, name), key: privateKey });
/** What a command prints in the folder of the release. */
const inRelease = async (command: string): Promise<string> =>
  (await run("bash", ["-ec", command], { cwd: join(directory, "first") })).stdout;
const file = (name: string): string => join(directory, "first", name);
const read = (name: string): string => readFileSync(file(name), "utf8");

describe("a release", () => {
  test("made twice from the same sources has the same bytes, and so the same digests", async () => {
    expect(await make("second")).toEqual(release);
    expect(readFileSync(join(directory, "second", "SHA256SUMS"), "utf8")).toBe(read("SHA256SUMS"));
  });

  test("is checked as its page says: the sums by sha256sum, their signature by openssl", async () => {
    // Where it was published, it has no folders.
    await inRelease("mkdir ../published && find . -maxdepth 1 -type f -exec cp {} ../published \\;");
    const stdout = await inRelease(`cd ../published\n${block(releasePage, "verify")}`);
    expect(stdout).toContain("install.yaml: OK\n");
    expect(stdout).toContain("Verified OK");
  });

  test("names the image by its digest in every manifest, and no other", () => {
    for (const name of ["install.yaml", "install-core.yaml", "install-cell.yaml"]) {
      const images = [...read(name).matchAll(/^\s*(?:- )?image: (.+)$/gm)].map(([, image]) => image);
      expect(images.length).toBeGreaterThan(0);
      expect([...new Set(images)]).toEqual([release.image]);
    }
    expect(read("crds.yaml")).toContain("kind: CustomResourceDefinition");
    expect(release.image).toContain(JSON.parse(read("image/index.json")).manifests[0].digest);
  });

  test("has the command that takes it out of a cluster, which comes before Helm's own", () => {
    expect(read("uninstall.sh")).toBe(readFileSync(join(root, "manifests/uninstall.sh"), "utf8"));
    expect(block(releasePage, "helm uninstall").trim().split("\n")).toEqual([
      "sh uninstall.sh",
      "helm uninstall podseidon --namespace default",
    ]);
  });

  test("has a plugin that runs from its archive, and krew finds it by its sum", async () => {
    const unpacked = mkdtempSync(join(directory, "plugin-"));
    const archive = "kubectl-podseidon_linux_amd64.tar.gz";
    await run("tar", ["-xzf", file(archive), "-C", unpacked]);
    const env = { ...process.env, PODSEIDON_NODE: process.execPath };
    const { stdout } = await run(join(unpacked, "kubectl-podseidon"), ["--version"], { env });
    expect(stdout).toContain("9.8.7");
    const sum = read("SHA256SUMS")
      .split("\n")
      .find((line) => line.endsWith(archive))
      ?.slice(0, 64);
    expect(read("podseidon.krew.yaml")).toContain(`sha256: ${sum}`);
  });
});

describe("the quick start", () => {
  test("the first refusal follows two commands, and no cell is installed before it has a name", async () => {
    await using cluster = await Cluster.start({ nodes: 2 });
    await using balancer = await Balancer.listen([]);
    const kubectl = async (command: string): Promise<string> => {
      const words = command
        .split(" ")
        .map((word) => (word === "install.yaml" ? `${cluster.directory}/install.yaml` : word));
      const { code, stdout, stderr } = await cluster.kubectl(words.slice(1));
      if (code !== 0) throw new Error(`${command}: ${stderr}`);
      return stdout;
    };
    const nameless = await cluster.kubectl(["apply", "--filename", file("install-cell.yaml")]);
    expect([nameless.code, nameless.stderr]).toEqual([
      1,
      expect.stringContaining("clientConfig.service.path: Invalid"),
    ]);
    expect(nameless.stderr).toContain(CELL_PLACEHOLDER);
    for (const command of lines("the workload")) await kubectl(command);
    await kubectl("kubectl rollout status deployment web");
    // Nothing here routes to the addresses of Services: a balancer stands in for that of the webhook.
    writeFileSync(join(cluster.directory, "install.yaml"), behind(balancer.port, read("install.yaml")));
    const [apply = "", label = "", ...more] = lines("two commands");
    expect(more).toEqual([]);
    const startMs = performance.now();
    const seconds = (): string => ((performance.now() - startMs) / 1000).toFixed(1);
    await kubectl(apply);
    const applied = seconds();
    const pods = kubelet(cluster, { bundles: join(root, "dist") });
    try {
      await pods.start();
      balancer.endpoints = webhookEndpoints(pods.pods);
      await untilTrusted(cluster);
      const ready = seconds();
      await kubectl(label);
      const [pod] = items(await cluster.admin.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb"));
      const path = `/api/v1/namespaces/default/pods/${String(field(pod, "metadata", "name"))}`;
      let said = "";
      await cluster.waitFor("the first refusal", async () => {
        const { status, body } = await cluster.admin.request("DELETE", `${path}?dryRun=All`);
        said = String(field(body, "message"));
        return status === 429 && said.includes("needs 2 available pods");
      });
      process.stdout.write(
        `quick start: applied after ${applied} s, ready after ${ready} s, first denial after ${seconds()} s: ${said}\n`,
      );
      expect((await cluster.admin.request("DELETE", path)).status).toBe(429);
      // More replicas make no room: a quarter of three is rounded down, too. What the denial advises does.
      await kubectl("kubectl scale deployment web --replicas=3");
      const denied = async (needs: string): Promise<boolean> => {
        const { status, body } = await cluster.admin.request("DELETE", `${path}?dryRun=All`);
        said = String(field(body, "message"));
        return status === 429 && said.includes(needs) && said.includes("no more pods match");
      };
      await cluster.waitFor("the denial of three replicas", () => denied("needs 3 available pods, 3 are available"));
      const [room = ""] = lines("room for a drain");
      expect(said).toContain(room.split(" ").at(-1));
      await kubectl(room);
      await cluster.waitFor("a pod that may go", async () => {
        return (await cluster.admin.request("DELETE", `${path}?dryRun=All`)).status === 200;
      });
      const named = await cluster.kubectl(["apply", "--dry-run=server", "--filename", "-"], {
        input: await cellNamed(),
      });
      expect([named.code, named.stdout]).toEqual([0, expect.stringContaining("webhookconfiguration")]);
    } finally {
      await pods.stop();
    }
  });

  test("an image of one's own takes the place of the released one", async () => {
    const [, sed = ""] = /sed -i\.bak ('[^']+') install\.yaml/.exec(block(page, "an image of one's own")) ?? [];
    const stdout = await inRelease(`sed ${sed} install.yaml`);
    const images = [...stdout.matchAll(/^\s*(?:- )?image: (.+)$/gm)].map(([, image]) => image);
    expect([...new Set(images)]).toEqual(["podseidon:dev"]);
  });

  /** install-cell.yaml with an id, by the command of the page. */
  function cellNamed(): Promise<string> {
    return inRelease(block(releasePage, "a cell of a release").split(" | ")[0] ?? "");
  }

  function lines(name: string): readonly string[] {
    return block(page, name).trim().split("\n");
  }
});

describe.runIf(FULL)("the chart in helm", () => {
  const chart = (): string => file("podseidon-9.8.7.tgz");
  const helm = async (...args: readonly string[]): Promise<string> =>
    (await run(await ensureHelm(), [...args, "--kube-version", "1.36.3"], { maxBuffer: 64 * 1024 * 1024 })).stdout;
  const sorted = (text: string): readonly string[] =>
    loadAll(text.replace(`  annotations:\n    ${KEEP}: keep\n`, ""))
      .filter((object) => object !== null)
      .map((object) => JSON.stringify(object, Object.keys(flat(object)).sort()))
      .sort();

  test.each(VARIANTS)("$name is what kubectl kustomize makes of $overlay", async ({ mode, step, overlay }) => {
    const cell = mode === "cell" ? "1234" : undefined;
    const args = ["--set", `mode=${mode}`, "--set", `step=${step}`].concat(
      cell === undefined ? [] : ["--set-string", `cell.id=${cell}`],
    );
    const [name = "", digest = ""] = release.image.split("@");
    const { kubectl } = await ensureBinaries();
    const expected = render({ kubectl, overlay, image: { name, digest }, ...(cell === undefined ? {} : { cell }) });
    expect(sorted(await helm("template", "podseidon", chart(), ...args))).toEqual(sorted(expected));
  });

  test("the commands of the page render it", async () => {
    for (const line of block(releasePage, "the chart").trim().split("\n")) {
      const words = line.replace("helm install podseidon podseidon-0.2.0.tgz", "").trim().split(" ");
      expect(await helm("template", "podseidon", chart(), ...words)).toContain("kind: ValidatingWebhookConfiguration");
    }
  });

  const on = (cluster: Cluster, ...args: readonly string[]): Promise<{ stdout: string }> =>
    ensureHelm().then((binary) => run(binary, [...args, "--namespace", "default", "--kubeconfig", cluster.kubeconfig]));

  test("an upgrade of a cell that forgets its values is refused; the others take their release's image", async () => {
    await using cluster = await Cluster.start({ name: "helm", ...BARE });
    const { image } = await make("second", "v9.8.8");
    // As `join` makes it.
    await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: SYSTEM } }]);
    const install = block(releasePage, "the chart").trim().split("\n").at(-1) ?? "";
    await on(cluster, ...install.replace("podseidon-0.2.0.tgz", chart()).split(" ").slice(1), "--set", "step=ignore");
    const forgetful = on(cluster, "upgrade", "podseidon", chart(), "--set", "step=dry-run");
    await expect(forgetful).rejects.toThrow("this cluster has pods as cell worker-2, which mode single-cluster");
    const next = join(directory, "second", "podseidon-9.8.8.tgz");
    await on(cluster, "upgrade", "podseidon", next, "--set", "step=dry-run", "--reuse-values");
    expect((await on(cluster, "get", "manifest", "podseidon")).stdout).toContain(`image: "${image}"\n`);
    const documented = block(releasePage, "helm upgrade").trim().replace("podseidon-0.2.0.tgz", next).split(" ");
    await on(cluster, ...documented.slice(1));
    const { stdout } = await cluster.kubectl(["get", "configmap", "podseidon-cell", "-n", SYSTEM, "-o", "json"]);
    expect(field(JSON.parse(stdout), "data", "id")).toBe("worker-2");
  });

  test("an upgrade of a core that forgets its values is refused", async () => {
    await using cluster = await Cluster.start({ name: "helm-core", ...BARE });
    await on(cluster, "install", "podseidon", chart(), "--set", "mode=core");
    await expect(on(cluster, "upgrade", "podseidon", chart(), "--set", "step=ignore")).rejects.toThrow("is a core");
    await on(cluster, "upgrade", "podseidon", chart());
  });

  test.each([
    ["the tag of one's own", "image.tag=v1", "podseidon:v1"],
    [
      "a digest before a tag",
      `image.tag=v1,image.digest=sha256:${"0".repeat(64)}`,
      `podseidon@sha256:${"0".repeat(64)}`,
    ],
  ])("the image has %s", async (_, set, expected) => {
    const text = await helm("template", "podseidon", chart(), "--set", set);
    const images = [...text.matchAll(/^\s*(?:- )?image: "?([^"\n]+)"?$/gm)].map(([, image]) => image);
    expect([...new Set(images)]).toEqual([`${REGISTRY}/${expected}`]);
  });

  test.each([
    ["an unknown mode", ["mode=x"], "value must be one of"],
    ["a cell without an id", ["mode=cell"], "does not match pattern"],
    ["an id in a cluster that is no cell", ["cell.id=a"], "maxLength"],
    ["a misspelt value", ["imagee=x"], "additional properties 'imagee' not allowed"],
  ])("rejects %s", async (_, sets, message) => {
    const args = sets.flatMap((one) => ["--set", one]);
    await expect(helm("template", "podseidon", chart(), ...args)).rejects.toThrow(message);
  });
});

/** Every key in an object, so that JSON can be written with its keys in order. */
function flat(value: unknown): Record<string, true> {
  if (typeof value !== "object" || value === null) return {};
  return Object.assign({}, ...Object.entries(value).map(([key, one]) => ({ [key]: true, ...flat(one) })));
}
