import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { temporaryDirectory } from "../../test/support/runtime/temporary-directory.ts";
import { type ArchivedFile, gzip, sha256, tar } from "./archive.ts";
import { chartFiles, VARIANTS } from "./chart.ts";
import { nameOfBase, writeImage } from "./image.ts";
import { emptyFolder, makeRelease, requireCommit, writeSums } from "./main.ts";
import { krewManifest } from "./plugin.ts";
import { fetchBase, pushImage, type Run } from "./registry.ts";

const FILES: readonly ArchivedFile[] = [
  { path: "podseidon/", bytes: new Uint8Array() },
  { path: "podseidon/webhook.mjs", bytes: Buffer.from("webhook") },
  { path: "podseidon/kubectl-podseidon", bytes: Buffer.from("#!/bin/sh\n"), executable: true },
];

const directory = temporaryDirectory();

describe("an archive", () => {
  test("is the same in whatever order its files come, and tar reads it", () => {
    const bytes = gzip(tar(FILES));
    expect(sha256(gzip(tar([...FILES].reverse())))).toBe(sha256(bytes));
    // No time, and no operating system.
    expect([...bytes.subarray(4, 10)]).toEqual([0, 0, 0, 0, 2, 255]);
    const listed = execFileSync("tar", ["-tzv", "--numeric-owner"], {
      input: bytes,
      encoding: "utf8",
      env: { TZ: "UTC" },
    });
    expect(
      listed
        .trim()
        .split("\n")
        .map((line) => line.split(/\s+/).join(" ")),
    ).toEqual([
      "drwxr-xr-x 0/0 0 1970-01-01 00:00 podseidon/",
      "-rwxr-xr-x 0/0 10 1970-01-01 00:00 podseidon/kubectl-podseidon",
      "-rw-r--r-- 0/0 7 1970-01-01 00:00 podseidon/webhook.mjs",
    ]);
  });

  test("takes no name that its header cannot hold", () => {
    expect(() => tar([{ path: "x".repeat(101), bytes: new Uint8Array() }])).toThrow("too long a name");
  });
});

describe("the folder of a release", () => {
  const folder = (name: string, ...files: readonly string[]): string => {
    for (const file of files) {
      mkdirSync(join(directory, name, file, ".."), { recursive: true });
      writeFileSync(join(directory, name, file), file);
    }
    return join(directory, name);
  };

  test("is emptied of a release, and of nothing else: --out may name any folder", async () => {
    const own = folder("thesis", "chapter-1.tex");
    const made = makeRelease({ registry: "registry.example.com", tag: "v9.8.7", out: own });
    await expect(made).rejects.toThrow("has files that are no release");
    expect(readdirSync(own)).toEqual(["chapter-1.tex"]);
    const earlier = folder("earlier", "image/blobs/sha256/one", "install.yaml");
    emptyFolder(earlier);
    expect(readdirSync(earlier)).toEqual([]);
    emptyFolder(join(directory, "new"));
    expect(readdirSync(join(directory, "new"))).toEqual([]);
  });

  test("has sums that hold where it was published, which is without the folder of the image", () => {
    const published = folder("published", "install.yaml", "image.txt", "image/blobs/sha256/one");
    writeSums(published, undefined);
    const names = readFileSync(join(published, "SHA256SUMS"), "utf8").trim().split("\n");
    expect(names.map((line) => line.slice(66))).toEqual(["image.txt", "install.yaml"]);
  });

  test("is pushed or published from a commit alone, which others can make it from again", () => {
    const sources = folder("sources", "install.ts");
    const git = (...args: readonly string[]) => execFileSync("git", ["-C", sources, ...args], { stdio: "pipe" });
    git("init", "--quiet");
    expect(() => requireCommit(sources)).toThrow("differs from its commit: ?? install.ts");
    git("add", ".");
    git("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=a");
    requireCommit(sources);
    writeFileSync(join(sources, "install.ts"), "changed");
    expect(() => requireCommit(sources)).toThrow("differs from its commit:  M install.ts");
  });
});

test("is not published with a plugin that nobody can download: its address is known, or asked for", () => {
  const { GITHUB_REPOSITORY: _, ...env } = process.env;
  const args = ["--registry", "registry.example.com", "--tag", "v9.8.7", "--publish"];
  const main = join(import.meta.dirname, "main.ts");
  const { status, stderr } = spawnSync(process.execPath, [main, ...args], { env, encoding: "utf8" });
  expect([status, stderr]).toEqual([2, expect.stringContaining("--publish needs --url, or GITHUB_REPOSITORY")]);
});

/** A base as registries keep it: Docker's names of types, an index in the index. */
function writeBase(name: string, architectures: readonly string[]): string {
  const base = join(directory, name);
  mkdirSync(join(base, "blobs/sha256"), { recursive: true });
  const put = (bytes: Buffer, mediaType: string) => {
    writeFileSync(join(base, "blobs/sha256", sha256(bytes)), bytes);
    return { mediaType, digest: `sha256:${sha256(bytes)}`, size: bytes.length };
  };
  const docker = "application/vnd.docker";
  const json = (value: unknown, type: string) => put(Buffer.from(JSON.stringify(value)), `${docker}.${type}+json`);
  const manifests = architectures.map((architecture) => {
    const archive = tar([{ path: `lib-${architecture}`, bytes: Buffer.from(architecture) }]);
    const config = json(
      {
        ...{ architecture, os: "linux", created: "2026-01-01T00:00:00Z" },
        config: { Env: ["PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl"], Entrypoint: ["/nodejs/bin/node"], User: "1" },
        rootfs: { type: "layers", diff_ids: [`sha256:${sha256(archive)}`] },
      },
      "container.image.v1",
    );
    const layers = [put(gzip(archive), `${docker}.image.rootfs.diff.tar.gzip`)];
    return { ...json({ config, layers }, "distribution.manifest.v2"), platform: { architecture, os: "linux" } };
  });
  const index = json({ manifests }, "distribution.manifest.list.v2");
  writeFileSync(join(base, "index.json"), JSON.stringify({ manifests: [index] }));
  return base;
}

interface Described {
  readonly digest: string;
  readonly mediaType: string;
}

/** What a blob of an image may hold: an index, a manifest, or a configuration. */
interface Written {
  readonly manifests: readonly { readonly digest: string; readonly platform?: { readonly architecture: string } }[];
  readonly layers: readonly Described[];
  readonly config: Described & Readonly<Record<string, unknown>>;
  readonly rootfs: { readonly diff_ids: readonly string[] };
  readonly created: string;
}

describe("the image", () => {
  const write = (name: string, base?: string): string =>
    writeImage({
      ...{ directory: join(directory, name), tag: "v1.2.3", version: "1.2.3", files: FILES },
      ...(base === undefined ? {} : { base: { directory: base, name: "example.com/base" } }),
    });
  const blob = (name: string, digest: string): Written =>
    JSON.parse(readFileSync(join(directory, name, "blobs/sha256", digest.slice(7)), "utf8"));

  test("names the base that it has, not the one that it should have", () => {
    const base = writeBase("given", ["amd64"]);
    const digest = JSON.parse(readFileSync(join(base, "index.json"), "utf8")).manifests[0].digest;
    const pinned = `example.com/base:1@${digest}`;
    expect(nameOfBase(base, pinned)).toBe(pinned);
    expect(nameOfBase(base, `example.com/base:1@sha256:${"0".repeat(64)}`)).toBe(`unknown@${digest}`);
  });

  test("has the layers of its base and one more, for each architecture, under OCI's names", () => {
    const base = writeBase("base", ["s390x", "arm64", "amd64"]);
    const digest = write("image", base);
    expect(write("again", base)).toBe(digest);
    const { manifests } = blob("image", digest);
    expect(manifests.map(({ platform }) => platform?.architecture)).toEqual(["amd64", "arm64"]);
    const last = new Set<string>();
    for (const { digest: manifest } of manifests) {
      const { config, layers } = blob("image", manifest);
      const { config: runs, rootfs, created } = blob("image", config.digest);
      expect(layers.map(({ mediaType }) => mediaType)).toEqual(
        Array(2).fill("application/vnd.oci.image.layer.v1.tar+gzip"),
      );
      expect(rootfs.diff_ids[1]).toBe(`sha256:${sha256(tar(FILES))}`);
      expect([created, runs.Entrypoint, runs.User]).toEqual(["1970-01-01T00:00:00Z", undefined, "65532:65532"]);
      expect(runs.Env).toEqual(["SSL_CERT_FILE=/etc/ssl", "PATH=/nodejs/bin"]);
      last.add(layers[1]?.digest ?? "");
    }
    expect(last.size).toBe(1);
    expect(JSON.parse(readFileSync(join(directory, "image/index.json"), "utf8")).manifests[0].digest).toBe(digest);
  });

  test("is not made of a base that is damaged, or not there for an architecture", () => {
    expect(() => write("half", writeBase("half-base", ["amd64"]))).toThrow("is not there for linux/arm64");
    const base = writeBase("bad-base", ["amd64", "arm64"]);
    const layer = sha256(gzip(tar([{ path: "lib-arm64", bytes: Buffer.from("arm64") }])));
    writeFileSync(join(base, "blobs/sha256", layer), "other");
    expect(() => write("bad", base)).toThrow(`the base is damaged: sha256:${layer} has other bytes`);
  });
});

describe("the registry", () => {
  /** A machine on which only some programs work. */
  const machine =
    (working: readonly string[], ran: string[]): Run =>
    (command) => {
      if (!working.includes(command[0])) throw new Error("is not on the PATH");
      ran.push(command.join(" "));
    };

  test.each([
    [["skopeo", "crane"], ["crane pull --format=oci --platform=all base:1 DIR"]],
    [["skopeo"], ["skopeo copy --all docker://base:1 oci:DIR"]],
    [["docker"], [expect.stringContaining("docker buildx build --platform=linux/amd64,linux/arm64")]],
    [["buildah"], Array(3).fill(expect.stringContaining("podseidon-release-base"))],
  ])("is asked by the first of the tools that works: %s", (working, expected) => {
    const ran: string[] = [];
    expect(fetchBase("base:1", "DIR", machine(working, ran))).toBeUndefined();
    expect(ran).toEqual(expected);
  });

  test("without any, says of each why", () => {
    const why = fetchBase("base:1", "DIR", machine([], []));
    expect(why).toEqual(["crane", "skopeo", "docker", "buildah"].map((one) => `${one}: is not on the PATH`));
    expect(() => pushImage("DIR", "r/podseidon:1", machine(["docker"], []))).toThrow("r/podseidon:1 was not pushed");
  });
});

test("the chart has each object once, with the variants that have it, and nothing of it is read as a template", () => {
  const files = chartFiles({
    ...{ version: "1.2.3", image: { name: "r/podseidon", digest: "sha256:0" } },
    render: ({ name }) =>
      `kind: A\ntext: "{{ x }}"\n---\nkind: B\nin: ${name}\nimage: podseidon\n---\nkind: CustomResourceDefinition\n`,
  });
  const text = (path: string): string => Buffer.from(files.find((one) => one.path === path)?.bytes ?? []).toString();
  const objects = text("podseidon/templates/podseidon.yaml");
  expect(objects.match(/kind: A/g)).toHaveLength(1);
  expect(objects).toContain(`(list ${VARIANTS.map(({ name }) => `"${name}"`).join(" ")}) }}\n---\nkind: A`);
  expect(objects).toContain("helm.sh/resource-policy: keep");
  expect(objects).toContain(`text: '{{ "{{" }} x }}'`);
  // `helm upgrade --reuse-values` keeps the values of the release before.
  expect(text("podseidon/values.yaml")).not.toContain("sha256:");
  expect(text("podseidon/templates/_helpers.tpl")).toContain("@sha256:0{{");
  expect(objects.match(/image: \{\{ include "podseidon.image" . \| quote \}\}/g)).toHaveLength(VARIANTS.length);
});

test("krew finds each platform's archive by its sum", () => {
  const bytes = Buffer.from("x");
  const archives = [{ file: "a.tar.gz", bytes, os: "darwin", arch: "arm64" }];
  const text = krewManifest(archives, "1.2.3", "https://example.com/x/releases/download/v1.2.3");
  expect(text).toContain("version: v1.2.3\n");
  expect(text).toContain("uri: https://example.com/x/releases/download/v1.2.3/a.tar.gz\n");
  expect(text).toContain(`sha256: ${sha256(bytes)}\n`);
});
