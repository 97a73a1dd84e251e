/**
 * `npm run pin-bases`: writes the digests of the base images into the Containerfile, so that a release can be rebuilt
 * from the same bytes. Asks the registries through docker.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./root.ts";

const BASES = /^(ARG (?:BUILD|RUN)_BASE=)([^@\s]+)(?:@\S*)?$/gm;
const DIGEST = /^sha256:[0-9a-f]{64}$/;

/** The Containerfile with the digest of each base. Throws for an answer that is not a digest. */
export function pinned(containerfile: string, digestOf: (image: string) => string): string {
  return containerfile.replace(BASES, (_, argument: string, image: string) => {
    const digest = digestOf(image);
    if (!DIGEST.test(digest)) throw new Error(`${image}: "${digest}" is no digest; can docker reach its registry?`);
    return `${argument}${image}@${digest}`;
  });
}

/** The digest of all architectures' images together. */
function digestOf(image: string): string {
  const words = ["buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image];
  return execFileSync("docker", words, { encoding: "utf8" }).trim();
}

if (import.meta.main) {
  const path = join(root, "Containerfile");
  writeFileSync(path, pinned(readFileSync(path, "utf8"), digestOf));
}
