import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { download, extractMember, type ReleaseSites } from "./download.ts";
import { silentProgress } from "./progress.ts";
import { BINARY_NAMES, goArchitecture, VERSIONS } from "./versions.ts";

const arch = goArchitecture();
const kubernetes = `/kubernetes/v${VERSIONS.kubernetes}/bin/linux/${arch}`;
const etcd = `/etcd/v${VERSIONS.etcd}`;
const etcdName = `etcd-v${VERSIONS.etcd}-linux-${arch}`;
const kwok = `/kwok/v${VERSIONS.kwok}/kwok-linux-${arch}`;
const sha256 = (content: string | Buffer): string => createHash("sha256").update(content).digest("hex");

let server: Server;
let sites: ReleaseSites;
let directory: string;
let files: Map<string, string | Buffer>;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "podseidon-download-test-"));
  files = publisher();
  server = createServer((request, response) => {
    const content = files.get(request.url ?? "");
    response.writeHead(content === undefined ? 404 : 200).end(content);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const base = `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
  sites = { kubernetes: `${base}/kubernetes`, etcd: `${base}/etcd`, kwok: `${base}/kwok` };
});

afterEach(() => {
  server.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Everything that is asked for, as the publishers lay it out. */
function publisher(): Map<string, string | Buffer> {
  const found = new Map<string, string | Buffer>([[kwok, "the kwok of another publisher"]]);
  for (const name of ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"]) {
    found.set(`${kubernetes}/${name}`, `binary ${name}`);
    found.set(`${kubernetes}/${name}.sha256`, sha256(`binary ${name}`));
  }
  const archive = tarGz({ [`${etcdName}/README.md`]: "read me", [`${etcdName}/etcd`]: "binary etcd" });
  found.set(`${etcd}/${etcdName}.tar.gz`, archive);
  found.set(`${etcd}/SHA256SUMS`, `${"0".repeat(64)}  other.zip\n${sha256(archive)}  ${etcdName}.tar.gz\n`);
  return found;
}

function tarGz(content: Readonly<Record<string, string>>): Buffer {
  return execFileSync("tar", ["-C", unpacked(content), "-cz", etcdName]);
}

function unpacked(content: Readonly<Record<string, string>>): string {
  const parent = join(directory, "tar");
  mkdirSync(join(parent, etcdName), { recursive: true });
  for (const [path, text] of Object.entries(content)) writeFileSync(join(parent, path), text);
  return parent;
}

test("goes through the proxy that the environment names, and past it where no_proxy says so", async () => {
  const proxied: string[] = [];
  const proxy = createServer((request, response) => {
    proxied.push(request.url ?? "");
    response.writeHead(403).end();
  });
  proxy.on("connect", ({ url = "" }, socket) => {
    proxied.push(url);
    socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const address = proxy.address();
  const url = `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
  await expect(download(directory, silentProgress, sites, { http_proxy: url })).rejects.toThrow();
  expect(proxied.length).toBeGreaterThan(0);
  proxied.length = 0;
  await expect(download(directory, silentProgress, sites, { http_proxy: url, no_proxy: "127.0.0.1" })).rejects.toThrow(
    "has SHA-256",
  );
  expect(proxied).toEqual([]);
  proxy.close();
});

const run = (): Promise<void> => download(directory, silentProgress, sites);

test("a binary that has not the pinned checksum is refused, and the others were fine", async () => {
  await expect(run()).rejects.toThrow(
    new RegExp(`${kwok} has SHA-256 ${sha256("the kwok of another publisher")}, not [0-9a-f]{64}`),
  );
  const made = BINARY_NAMES.filter((name) => name !== "kwok");
  expect(readdirSync(directory)).toEqual(expect.arrayContaining(made));
  expect(readFileSync(join(directory, "etcd"), "utf8")).toBe("binary etcd");
  expect(statSync(join(directory, "kubectl")).mode & 0o111).toBe(0o111);
});

test.each([
  ["a checksum that is not the file's", `${kubernetes}/kubectl.sha256`, sha256("other"), /kubectl has SHA-256/],
  [
    "a page in place of a checksum",
    `${kubernetes}/kubectl.sha256`,
    "<html>",
    /no SHA-256 checksum was found, but <html>/,
  ],
  ["a list without the file", `${etcd}/SHA256SUMS`, "", /no SHA-256 checksum was found/],
])("%s is refused", async (_name, path, content, message) => {
  files.set(path, content);
  await expect(run()).rejects.toThrow(message);
});

test("what is not there is named with its status", async () => {
  files.delete(`${kubernetes}/kube-scheduler`);
  await expect(run()).rejects.toThrow(/kube-scheduler answered 404/);
});

test("a publisher that can't be reached is named at once", async () => {
  const nobody = "http://127.0.0.1:1";
  await expect(download(directory, silentProgress, { ...sites, kubernetes: nobody })).rejects.toThrow(
    /127\.0\.0\.1:1\/.* can't be reached: /,
  );
  expect(readdirSync(directory).filter((name) => name !== "tar")).toEqual([]);
});

test("a file that is not in an archive is named", async () => {
  const archive = join(directory, "archive.tar.gz");
  writeFileSync(archive, tarGz({ [`${etcdName}/etcd`]: "x" }));
  expect((await extractMember(archive, `${etcdName}/etcd`)).toString()).toBe("x");
  await expect(extractMember(archive, "etcdctl")).rejects.toThrow("etcdctl");
});
