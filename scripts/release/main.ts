/**
 * `npm run release`: all files of a release, in one folder. The same commit gives the same bytes, which do not depend
 * on time, machine names or the order of a file system.
 */

import { execFileSync } from "node:child_process";
import { createPrivateKey, createPublicKey, type KeyObject, sign } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempDisposableSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import * as v from "valibot";
import { messageOf } from "../../shared/runtime/errors.ts";
import { build, overBudget } from "../build.ts";
import { ensureBinaries } from "../control-plane/binaries/binaries.ts";
import { misused, readOptions } from "../options.ts";
import { root } from "../root.ts";
import { type ArchivedFile, gzip, sha256, tar } from "./archive.ts";
import { CHART_CELL, chartFiles } from "./chart.ts";
import { nameOfBase, writeImage } from "./image.ts";
import { MANIFESTS, render } from "./manifests.ts";
import { krewManifest, pluginArchives } from "./plugin.ts";
import { fetchBase, pushImage } from "./registry.ts";

const HELP = `npm run release -- --registry R --tag T
  Writes to dist/release: the image for amd64 and arm64 (an OCI layout), install.yaml, install-core.yaml,
  install-cell.yaml and crds.yaml with the image by digest, uninstall.sh, the Helm chart, the plugin and its krew
  manifest, the bill of materials, SHA256SUMS, and its signature.

  --registry R    the image is R/podseidon
  --tag T         a version such as v0.2.0; the chart and the plugin have it without the v
  --url URL       the folder from which the plugin will be downloaded (default: the release of that tag on GitHub, of
                  the repository in GITHUB_REPOSITORY)
  --base DIR      an OCI layout of the base image; without it crane, skopeo, docker or buildah fetches the base that the
                  Containerfile names
  --key FILE      a private key (PEM; Ed25519, ECDSA or RSA) that signs SHA256SUMS; RELEASE_KEY may hold it instead
  --out DIR       dist/release by default
  --push          pushes the image, by crane or skopeo, which have to be logged in
  --publish       makes the release on GitHub with these files, by gh
`;

const TAG = /^v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)$/;
const REGISTRY = /^[a-z0-9.-]+(:\d+)?(\/[a-z0-9._-]+)*$/;
const INCOMPLETE = "IMAGE-INCOMPLETE.txt";

export interface ReleaseOptions {
  readonly registry: string;
  readonly tag: string;
  readonly out: string;
  readonly url?: string;
  readonly base?: string;
  readonly key?: KeyObject;
  readonly say?: (line: string) => void;
}

export interface Release {
  /** `REGISTRY/podseidon@DIGEST` */
  readonly image: string;
  /** False without a base: the image has no Node.js. */
  readonly complete: boolean;
}

/** Writes the release to an empty folder. Rejects with a sentence when a part of it can't be built. */
export async function makeRelease(options: ReleaseOptions): Promise<Release> {
  const { registry, tag, key, say = () => {} } = options;
  const version = versionOf(tag);
  const out = resolve(root, options.out);
  emptyFolder(out);
  using work = mkdtempDisposableSync(join(tmpdir(), "podseidon-release-"));
  const bundles = join(work.path, "bundles");
  const heavy = overBudget(await build({ outdir: bundles, sbom: true, version }));
  if (heavy.length > 0)
    throw new Error(`${heavy.map(({ name }) => name).join(", ")}: over the budget of npm run build`);
  const base = findBase(options, join(work.path, "base"), say);
  nameBase(join(bundles, "sbom.cdx.json"), base?.name);
  const directory = join(out, "image");
  const digest = writeImage({ directory, tag, version, files: imageFiles(bundles), ...(base && { base }) });
  if (base === undefined) writeFileSync(join(out, INCOMPLETE), INCOMPLETE_TEXT);
  const image = { name: `${registry}/podseidon`, digest };
  await writeManifests(out, version, image);
  copyFileSync(join(root, "manifests/uninstall.sh"), join(out, "uninstall.sh"));
  const archives = pluginArchives(bundles);
  for (const { file, bytes } of archives) writeFileSync(join(out, file), bytes);
  writeFileSync(join(out, "podseidon.krew.yaml"), krewManifest(archives, version, options.url ?? githubUrl(tag)));
  writeFileSync(join(out, "sbom.cdx.json"), readFileSync(join(bundles, "sbom.cdx.json")));
  writeFileSync(join(out, "image.txt"), `${image.name}:${tag}@${digest}\n`);
  writeSums(out, key);
  return { image: `${image.name}@${digest}`, complete: base !== undefined };
}

/** Empties the folder of an earlier release, whole or not. Throws for other files. */
export function emptyFolder(out: string): void {
  mkdirSync(out, { recursive: true });
  if (readdirSync(out).length > 0 && !existsSync(join(out, "image", "blobs")))
    throw new Error(`${out} has files that are no release, which would be deleted: name another folder`);
  rmSync(out, { recursive: true });
  mkdirSync(out);
}

/** Throws unless these are the sources of a commit, by which others can make the release again. */
export function requireCommit(sources: string): void {
  const [changed] = execFileSync("git", ["-C", sources, "status", "--porcelain"], { encoding: "utf8" }).split("\n");
  if (changed) throw new Error(`${sources} differs from its commit: ${changed}. Nothing is pushed or published`);
}

function versionOf(tag: string): string {
  const version = TAG.exec(tag)?.[1];
  if (version === undefined) throw new Error(`--tag ${tag} is no version: use one like v0.2.0 or v0.2.0-rc.1`);
  return version;
}

const INCOMPLETE_TEXT = `The image of this release has the bundles, but no base: no registry could be reached that has
it, so it has no Node.js and does not start. Everything else is complete. Make the release where crane, skopeo, docker
or buildah reaches the registry, or give it an OCI layout of the base: npm run release -- --base DIR
`;

/** The layout of the base; undefined, with a message, when there is none. */
function findBase(
  { base }: ReleaseOptions,
  directory: string,
  say: (line: string) => void,
): { readonly directory: string; readonly name: string } | undefined {
  const name = /^ARG RUN_BASE=(\S+)$/m.exec(readFileSync(join(root, "Containerfile"), "utf8"))?.[1] ?? "";
  if (base !== undefined) {
    const given = resolve(root, base);
    return { directory: given, name: nameOfBase(given, name) };
  }
  const failed = fetchBase(name, directory);
  if (failed === undefined) return { directory, name };
  say(`The base ${name} could not be fetched:\n- ${failed.join("\n- ")}`);
  return undefined;
}

function imageFiles(bundles: string): readonly ArchivedFile[] {
  const files = globSync("**/*", { cwd: bundles, withFileTypes: true }).filter((one) => one.isFile());
  return [
    { path: "podseidon/", bytes: new Uint8Array() },
    { path: "podseidon/chunks/", bytes: new Uint8Array() },
    ...files.map((file) => {
      const path = join(file.parentPath, file.name);
      const executable = !file.name.includes(".");
      return { path: `podseidon${path.slice(bundles.length)}`, bytes: readFileSync(path), executable };
    }),
  ];
}

const Bill = v.looseObject({ components: v.array(v.looseObject({ name: v.string() })) });

/** Replaces the Node.js that built the release by the base, in the bill of materials. */
function nameBase(path: string, base: string | undefined): void {
  const bill = v.parse(Bill, JSON.parse(readFileSync(path, "utf8")));
  const components = bill.components.filter(({ name }) => name !== "node");
  if (base !== undefined) components.push({ type: "container", name: base, "bom-ref": base });
  writeFileSync(path, `${JSON.stringify({ ...bill, components }, null, 2)}\n`);
}

async function writeManifests(
  out: string,
  version: string,
  image: { readonly name: string; readonly digest: string },
): Promise<void> {
  const { kubectl } = await ensureBinaries();
  for (const { file, overlay, cell, head } of MANIFESTS) {
    const text = render({ kubectl, overlay, image, ...(cell === undefined ? {} : { cell }) });
    writeFileSync(join(out, file), `# podseidon ${version}. ${head}\n${text}`);
  }
  const files = chartFiles({
    ...{ version, image },
    render: ({ overlay, mode }) => render({ kubectl, overlay, ...(mode === "cell" ? { cell: CHART_CELL } : {}) }),
  });
  writeFileSync(join(out, `podseidon-${version}.tgz`), gzip(tar(files)));
}

/**
 * The sums of the published files and their signature, in the formats of `sha256sum --check` and `cosign verify-blob`.
 * The image is checked by its digest, which `image.txt` has.
 */
export function writeSums(out: string, key: KeyObject | undefined): void {
  const lines = filesOf(out).map((name) => `${sha256(readFileSync(join(out, name)))}  ${name}`);
  const sums = `${lines.sort((a, b) => (a.slice(66) < b.slice(66) ? -1 : 1)).join("\n")}\n`;
  writeFileSync(join(out, "SHA256SUMS"), sums);
  if (key === undefined) return;
  const algorithm = key.asymmetricKeyType === "ed25519" ? null : "sha256";
  writeFileSync(join(out, "SHA256SUMS.sig"), `${sign(algorithm, Buffer.from(sums), key).toString("base64")}\n`);
  writeFileSync(join(out, "release.pub"), createPublicKey(key).export({ type: "spki", format: "pem" }));
}

function githubUrl(tag: string): string {
  return `https://github.com/${process.env.GITHUB_REPOSITORY ?? "OWNER/podseidon"}/releases/download/${tag}`;
}

function signingKey(file: string | undefined): { readonly key?: KeyObject } {
  const pem = file === undefined ? process.env.RELEASE_KEY : readFileSync(file, "utf8");
  return pem === undefined || pem === "" ? {} : { key: createPrivateKey(pem) };
}

/** The files of a release that are published: the image is pushed. */
function filesOf(out: string): readonly string[] {
  const files = readdirSync(out, { withFileTypes: true }).filter((one) => one.isFile());
  return files.map(({ name }) => name);
}

function publishFiles(out: string, tag: string): void {
  const paths = filesOf(out).map((name) => join(out, name));
  execFileSync("gh", ["release", "create", tag, "--verify-tag", "--generate-notes", ...paths], { stdio: "inherit" });
}

async function main(args: readonly string[]): Promise<number> {
  const text = { type: "string" } as const;
  const options = readOptions(args, HELP, {
    ...{ registry: text, tag: text, url: text, base: text, key: text, out: { ...text, default: "dist/release" } },
    push: { type: "boolean", default: false },
    publish: { type: "boolean", default: false },
  });
  if (typeof options === "number") return options;
  const { registry, tag, url, base, out, push, publish } = options;
  if (registry === undefined || tag === undefined) return misused("--registry and --tag are needed", HELP);
  if (!REGISTRY.test(registry)) return misused(`--registry ${registry} is no registry, such as ghcr.io/example`, HELP);
  if (!TAG.test(tag)) return misused(`--tag ${tag} is no version, such as v0.2.0`, HELP);
  if (publish && url === undefined && process.env.GITHUB_REPOSITORY === undefined)
    return misused("--publish needs --url, or GITHUB_REPOSITORY: krew downloads the plugin from there", HELP);
  try {
    if (push || publish) requireCommit(root);
    const release = await makeRelease({
      ...{ registry, tag, out, say: (line) => process.stderr.write(`${line}\n`) },
      ...(url === undefined ? {} : { url }),
      ...(base === undefined ? {} : { base }),
      ...signingKey(options.key),
    });
    console.log(readFileSync(resolve(root, out, "SHA256SUMS"), "utf8"));
    console.log(`${release.image} is in ${join(out, "image")}`);
    if (!release.complete) {
      process.stderr.write(`INCOMPLETE: the image has no base and does not start; ${join(out, INCOMPLETE)} says why\n`);
      if (push || publish) throw new Error("an image that does not start is not pushed, nor published");
    }
    if (push) pushImage(resolve(root, out, "image"), `${registry}/podseidon:${tag}`);
    if (publish) publishFiles(resolve(root, out), tag);
    return 0;
  } catch (error) {
    process.stderr.write(`${basename(import.meta.dirname)}: ${messageOf(error)}\n`);
    return 1;
  }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
