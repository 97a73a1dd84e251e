/**
 * Commands of the documentation, run as a reader runs them. The comment `<!-- test: NAME -->` before a fenced block of
 * `sh` or `yaml` names the block, so that the test runs what the page says.
 */
import { execFile, spawn } from "node:child_process";
import { mkdirSync, symlinkSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { promisify } from "node:util";
import { dump, loadAll } from "js-yaml";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";

/** Returns the text of the named block. Throws when the page has none. */
export function block(page: string, name: string): string {
  const found = page.split(`<!-- test: ${name} -->`)[1];
  const text = found === undefined ? undefined : /^\s*```[a-z]*\n([\s\S]*?)```/.exec(found)?.[1];
  if (text === undefined) throw new Error(`the page has no block for "${name}"`);
  return text;
}

/** Runs a block in a shell whose `kubectl` talks to the cluster as its administrator; resolves to the output. */
export async function shellCommand(cluster: Cluster, page: string, name: string): Promise<string> {
  const script = block(page, name).replace(/^\$ /gm, "");
  const setup = `kubectl() { "${cluster.kubectlBinary}" "$@"; }\nset -e -o pipefail\n`;
  const child = spawn("bash", ["-c", setup + script], {
    env: { PATH: process.env.PATH ?? "", HOME: cluster.directory, KUBECONFIG: cluster.kubeconfig },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const printed: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => printed.push(chunk));
  child.stderr.on("data", (chunk: Buffer) => printed.push(chunk));
  const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
  const text = Buffer.concat(printed).toString();
  if (code !== 0) throw new Error(`the command "${name}" ended with ${String(code)}:\n${script}\n${text}`);
  return text;
}

/**
 * A shell as an operator has it, with kubectl, the plugin (from `bundles`) and a context for each cluster. The function
 * runs lines in it, in the directory of the first cluster; it resolves to their output, and rejects where one fails.
 */
export function operatorShell(bundles: string, clusters: readonly [Cluster, ...Cluster[]]) {
  const [{ directory, kubectlBinary }] = clusters;
  const bin = join(directory, "bin");
  mkdirSync(bin);
  symlinkSync(process.execPath, join(bin, "node"));
  const env = {
    PATH: [bundles, bin, dirname(kubectlBinary), "/usr/bin", "/bin"].join(delimiter),
    HOME: directory,
    KUBECONFIG: clusters.map(({ kubeconfig }) => kubeconfig).join(delimiter),
  };
  return async (lines: string): Promise<string> => {
    const { stdout, stderr } = await promisify(execFile)("bash", ["-e", "-c", lines], { env, cwd: directory });
    return `${stdout}${stderr}`;
  };
}

/**
 * The manifest with the webhook's Service as a name, and its port in the webhook configurations: nothing in a test
 * routes to the addresses of Services, so a balancer on this machine stands in for them.
 */
export function behind(port: number, text: string): string {
  const objects = loadAll(text).map((object) => {
    const [kind, name] = [field(object, "kind"), field(object, "metadata", "name")];
    if (kind === "Service" && name === "podseidon-webhook")
      return { ...Object(object), spec: { type: "ExternalName", externalName: "localhost" } };
    if (!String(kind).endsWith("WebhookConfiguration")) return object;
    const webhooks = items(object, "webhooks").map((one) => ({
      ...Object(one),
      clientConfig: { service: { ...Object(field(one, "clientConfig", "service")), port } },
    }));
    return { ...Object(object), webhooks };
  });
  return objects.map((object) => dump(object, { noRefs: true })).join("---\n");
}
