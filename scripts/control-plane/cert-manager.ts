/** cert-manager, whose certificates the webhook can have instead of the project's own: built once, and kept in the cache. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { builtOnce, pinnedVersion } from "./built-once.ts";
import { buildCertManager, CERT_MANAGER } from "./go-build.ts";

/** The version that its module pins, without a leading `v`. */
export function certManagerVersion(): string {
  return pinnedVersion("cert-manager", CERT_MANAGER);
}

export interface CertManager {
  /** Paths of binaries. */
  readonly controller: string;
  readonly cainjector: string;
  /** Manifests of its kinds, YAML. */
  readonly definitions: readonly string[];
}

/** Resolves with cert-manager; builds it with Go when it is not there, which takes some minutes once. */
export async function ensureCertManager(): Promise<CertManager> {
  const version = certManagerVersion();
  const directory = await builtOnce({
    name: `cert-manager-${version}`,
    title: `cert-manager ${version} with Go from sources (about 5 minutes, once)`,
    build: buildCertManager,
  });
  const crds = join(directory, "crds");
  return {
    controller: join(directory, "controller"),
    cainjector: join(directory, "cainjector"),
    // They are templates of a chart, in the values of labels alone.
    definitions: readdirSync(crds).map((file) =>
      readFileSync(join(crds, file), "utf8").replaceAll(/'\{\{.*\}\}'/g, "x"),
    ),
  };
}
