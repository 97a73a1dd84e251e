import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import { chmod, copyFile, rm, writeFile } from "node:fs/promises";
import { setGlobalProxyFromEnv } from "node:http";
import { join } from "node:path";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import type { BuildProgress } from "./progress.ts";
import { type BinaryName, goArchitecture, VERSIONS } from "./versions.ts";

/**
 * Downloads the official binaries. Each is checked against a checksum that is pinned here, or else against its
 * publisher's checksum, fetched by TLS. The latter detects a broken download and a mirror's mistake, but not a
 * compromised publisher.
 */

/** The publishers' servers; tests use their own. */
const OFFICIAL_SITES = {
  kubernetes: "https://dl.k8s.io",
  etcd: "https://github.com/etcd-io/etcd/releases/download",
  kwok: "https://github.com/kubernetes-sigs/kwok/releases/download",
};
export type ReleaseSites = Readonly<typeof OFFICIAL_SITES>;

/** SHA-256 by file names, which contain version and architecture. */
const PINNED_SHA256: Readonly<Record<string, string>> = {
  "kwok-0.8.0-amd64": "f5a4385a2ae1b9dd7f8acae18e002a75c0ebba124ae9d7259aa8dadb50711f46",
  "kwok-0.8.0-arm64": "628f7d277860f524a2a775c217adcc58828e7b59ab0933680315784f1b8b0e37",
};

/** Short, so that a machine without network soon starts the build from sources. */
const ANSWER_TIMEOUT_MS = 6_000;
const STALL_TIMEOUT_MS = 30_000;
const MEGABYTE = 1_000_000;
const MAX_MEMBER_BYTES = 500 * MEGABYTE;

interface Artifact {
  readonly binary: BinaryName;
  readonly url: string;
  /** Resolves with the expected SHA-256, in hexadecimal. */
  readonly checksum: () => Promise<string>;
  /** The file's path in a .tar.gz; undefined when the download is the binary itself. */
  readonly member?: string;
}

function artifacts(sites: ReleaseSites): Artifact[] {
  const arch = goArchitecture();
  const kubernetes = `${sites.kubernetes}/v${VERSIONS.kubernetes}/bin/linux/${arch}`;
  const commands = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"] as const;
  const etcdRelease = `${sites.etcd}/v${VERSIONS.etcd}`;
  const etcdName = `etcd-v${VERSIONS.etcd}-linux-${arch}`;
  return [
    ...commands.map((binary) => ({
      binary,
      url: `${kubernetes}/${binary}`,
      checksum: async () => firstWord(await fetchText(`${kubernetes}/${binary}.sha256`)),
    })),
    {
      binary: "etcd",
      url: `${etcdRelease}/${etcdName}.tar.gz`,
      checksum: async () => listedChecksum(await fetchText(`${etcdRelease}/SHA256SUMS`), `${etcdName}.tar.gz`),
      member: `${etcdName}/etcd`,
    },
    {
      binary: "kwok",
      url: `${sites.kwok}/v${VERSIONS.kwok}/kwok-linux-${arch}`,
      checksum: async () => requireSha256(PINNED_SHA256[`kwok-${VERSIONS.kwok}-${arch}`]),
    },
  ];
}

/**
 * Puts all binaries into `directory`, through the proxy that `environment` names. Rejects with the downloads that
 * failed or had a wrong checksum. Does not retry.
 */
export async function download(
  directory: string,
  progress: BuildProgress,
  sites: ReleaseSites = OFFICIAL_SITES,
  environment: NodeJS.ProcessEnv = process.env,
): Promise<void> {
  using stack = new DisposableStack();
  stack.defer(setGlobalProxyFromEnv(environment));
  const wanted = artifacts(sites);
  progress.step(`downloading official binaries from ${new URL(sites.kubernetes).host} and ${new URL(sites.etcd).host}`);
  // Checksums first: they are small, and without network the first one fails.
  const checksums: string[] = [];
  for (const artifact of wanted) checksums.push(await artifact.checksum());
  for (const [index, artifact] of wanted.entries()) {
    await downloadOne(artifact, checksums[index] ?? "", directory, progress);
  }
}

async function downloadOne(
  artifact: Artifact,
  sha256: string,
  directory: string,
  progress: BuildProgress,
): Promise<void> {
  const target = join(directory, artifact.binary);
  const partial = `${target}.partial`;
  const actual = await fetchFile(artifact.url, partial, (megabytes) =>
    progress.detail(`downloading ${artifact.binary}: ${megabytes} MB`),
  );
  if (actual !== sha256) throw new Error(`${artifact.url} has SHA-256 ${actual}, not ${sha256}`);
  if (artifact.member === undefined) await copyFile(partial, target);
  else await writeFile(target, await extractMember(partial, artifact.member));
  await chmod(target, 0o755);
  await rm(partial);
}

/** The content of one file of a .tar.gz; rejects with tar's message when it is not there. */
export async function extractMember(archive: string, member: string): Promise<Buffer> {
  const options = { encoding: "buffer", maxBuffer: MAX_MEMBER_BYTES } as const;
  return (await promisify(execFile)("tar", ["-xzOf", archive, member], options)).stdout;
}

async function fetchText(url: string): Promise<string> {
  const response = await get(url, AbortSignal.timeout(ANSWER_TIMEOUT_MS));
  return await response.text();
}

/** Resolves with the SHA-256 of what was written to `path`. */
async function fetchFile(url: string, path: string, onMegabytes: (megabytes: number) => void): Promise<string> {
  const stall = new AbortController();
  let timer = setTimeout(() => stall.abort(), STALL_TIMEOUT_MS);
  const hash = createHash("sha256");
  let bytes = 0;
  const watch = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      clearTimeout(timer);
      timer = setTimeout(() => stall.abort(), STALL_TIMEOUT_MS);
      hash.update(chunk);
      bytes += chunk.length;
      onMegabytes(Math.round(bytes / MEGABYTE));
      done(null, chunk);
    },
  });
  try {
    const response = await get(url, stall.signal);
    if (response.body === null) throw new Error(`${url} answered without a body`);
    await pipeline(Readable.fromWeb(response.body), watch, createWriteStream(path));
  } catch (error) {
    if (stall.signal.aborted) throw new Error(`${url} sent nothing for ${STALL_TIMEOUT_MS / 1000} s`, { cause: error });
    throw error;
  } finally {
    clearTimeout(timer);
  }
  return hash.digest("hex");
}

async function get(url: string, signal: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { signal });
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error);
    throw new Error(`${url} can't be reached: ${cause}`, { cause: error });
  }
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return response;
}

function firstWord(text: string): string {
  return requireSha256(text.trim().split(/\s+/, 1)[0]);
}

function listedChecksum(list: string, file: string): string {
  const line = list.split("\n").find((candidate) => candidate.trim().endsWith(` ${file}`));
  return requireSha256(line?.trim().split(/\s+/, 1)[0]);
}

function requireSha256(text: string | undefined): string {
  if (text === undefined || !/^[0-9a-f]{64}$/.test(text)) throw new Error(`no SHA-256 checksum was found, but ${text}`);
  return text;
}
