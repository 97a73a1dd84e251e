/** The plugin as one archive for each platform, and its manifest for krew. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { dump } from "js-yaml";
import { PLUGIN_COMMANDS } from "../build.ts";
import { root } from "../root.ts";
import { type ArchivedFile, gzip, sha256, tar } from "./archive.ts";

const SYSTEMS = ["linux", "darwin"] as const;
const ARCHITECTURES = ["amd64", "arm64"] as const;

export interface PluginArchive {
  readonly file: string;
  readonly bytes: Buffer;
  readonly os: string;
  readonly arch: string;
}

/**
 * The launcher, the bundle and the command for completion, which are the same on all platforms, and need Node.js. A
 * single executable with Node.js would have 120 MB for each platform, and be unsigned on macOS.
 */
export function pluginArchives(bundles: string): readonly PluginArchive[] {
  const files: ArchivedFile[] = [
    ...PLUGIN_COMMANDS.map((path) => ({ path, bytes: readFileSync(join(bundles, path)), executable: true })),
    { path: "kubectl-podseidon.mjs", bytes: readFileSync(join(bundles, "kubectl-podseidon.mjs")) },
    { path: "LICENSE", bytes: readFileSync(join(root, "LICENSE")) },
  ];
  const bytes = gzip(tar(files));
  return SYSTEMS.flatMap((os) =>
    ARCHITECTURES.map((arch) => ({ file: `kubectl-podseidon_${os}_${arch}.tar.gz`, bytes, os, arch })),
  );
}

/** `url` is the folder from which the archives are downloaded. */
export function krewManifest(archives: readonly PluginArchive[], version: string, url: string): string {
  return dump(
    {
      apiVersion: "krew.googlecontainertools.github.com/v1alpha2",
      kind: "Plugin",
      metadata: { name: "podseidon" },
      spec: {
        version: `v${version}`,
        homepage: url.replace(/\/releases\/.*/, ""),
        shortDescription: "Says what podseidon protects, and why a deletion is denied",
        description: "Lists protectors and cells, explains denials, checks drains and installations.\n",
        caveats: "Needs Node.js 22 or later on the PATH.\n",
        platforms: archives.map(({ file, bytes, os, arch }) => ({
          selector: { matchLabels: { os, arch } },
          uri: `${url}/${file}`,
          sha256: sha256(bytes),
          bin: "kubectl-podseidon",
        })),
      },
    },
    { lineWidth: 120 },
  );
}
