import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { CACHE_VARIABLE, cacheDirectory, ensureBinaries, type Way } from "./binaries.ts";
import { type BuildProgress, silentProgress } from "./progress.ts";
import { BINARY_NAMES, type BinaryName, VERSION_QUESTIONS, VERSIONS } from "./versions.ts";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "podseidon-binaries-test-"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

/** Programs that do nothing but say their version. */
function writeBinaries(
  directory: string,
  versions: Partial<Record<BinaryName, string>> = {},
  names: readonly BinaryName[] = BINARY_NAMES,
): void {
  mkdirSync(directory, { recursive: true });
  for (const name of names) {
    const version = versions[name] ?? VERSIONS[VERSION_QUESTIONS[name].release];
    const answers = {
      etcd: `etcd Version: ${version}`,
      kubernetes: name === "kubectl" ? `  "gitVersion": "v${version}",` : `Kubernetes v${version}`,
      kwok: `kwok version v${version} go1.26 (linux/amd64)`,
    };
    writeFileSync(join(directory, name), `#!/bin/sh\necho '${answers[VERSION_QUESTIONS[name].release]}'\n`);
    chmodSync(join(directory, name), 0o755);
  }
}

const environment = (more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv => ({
  PATH: join(root, "bin"),
  [CACHE_VARIABLE]: join(root, "cache"),
  ...more,
});
const working = (name: string): Way => ({ name, fill: async (directory) => writeBinaries(directory) });
const failing = (name: string, message: string): Way => ({ name, fill: () => Promise.reject(new Error(message)) });
const forbidden: Way = failing("forbidden", "it should not have been tried");

describe("installed binaries", () => {
  test("are taken when all are there and of the right version, from both places", async () => {
    writeBinaries(join(root, "assets"), {}, ["etcd", "kube-apiserver", "kubectl"]);
    writeBinaries(join(root, "bin"), { kubectl: "1.30.0" });
    const found = await ensureBinaries({
      environment: environment({ KUBEBUILDER_ASSETS: join(root, "assets") }),
      ways: [forbidden],
    });
    expect(found.kubectl).toBe(join(root, "assets", "kubectl"));
    expect(found.kwok).toBe(join(root, "bin", "kwok"));
    expect(found.origin).toBe("installed");
    expect(existsSync(join(root, "cache"))).toBe(false);
  });

  test.each([
    [
      "of another version",
      () => writeBinaries(join(root, "bin"), { etcd: "3.5.0" }),
      /etcd is version 3\.5\.0, not 3\.6\.8/,
    ],
    ["missing", () => writeBinaries(join(root, "bin"), {}, ["etcd", "kwok"]), /kube-apiserver, .*kubectl are missing/],
    [
      "broken",
      () => {
        writeBinaries(join(root, "bin"));
        writeFileSync(join(root, "bin", "kwok"), "#!/bin/sh\nexit 3\n");
      },
      /kwok could not be run/,
    ],
    [
      "silent",
      () => {
        writeBinaries(join(root, "bin"));
        writeFileSync(join(root, "bin", "kwok"), "#!/bin/sh\necho hello\n");
      },
      /kwok did not say its version/,
    ],
  ])("are not taken when one is %s", async (_name, prepare, message) => {
    prepare();
    const none = ensureBinaries({ environment: environment(), ways: [], progress: silentProgress });
    await expect(none).rejects.toThrow(message);
  });
});

describe("the cache", () => {
  test("is filled by the first way that works and then used", async () => {
    const ways = [failing("first way", "out of order"), working("second way"), forbidden];
    const made = await ensureBinaries({ environment: environment(), ways, progress: silentProgress });
    const directory = cacheDirectory(environment());
    expect(made.etcd).toBe(join(directory, "etcd"));
    expect(await ensureBinaries({ environment: environment(), ways: [forbidden] })).toEqual(made);
    expect(readdirSync(dirname(directory))).toEqual([directory.split("/").at(-1)]);
  });

  test("is filled once by two at the same time", async () => {
    let fills = 0;
    const counted: Way = {
      name: "counted",
      fill: async (directory) => {
        fills++;
        writeBinaries(directory);
      },
    };
    const options = { environment: environment(), ways: [counted], progress: silentProgress };
    const [one, other] = await Promise.all([ensureBinaries(options), ensureBinaries(options)]);
    expect(one).toEqual(other);
    expect(fills).toBe(1);
  });

  test("is made anew when a file in it has changed", async () => {
    const options = { environment: environment(), ways: [working("way")], progress: silentProgress };
    const { kwok } = await ensureBinaries(options);
    writeFileSync(kwok, "cut off");
    await expect(ensureBinaries({ ...options, ways: [] })).rejects.toThrow(`${kwok} is not as it was left`);
    await ensureBinaries(options);
    chmodSync(kwok, 0o644);
    await expect(ensureBinaries({ ...options, ways: [] })).rejects.toThrow(`${kwok} is not as it was left`);
    await ensureBinaries(options);
    expect(await ensureBinaries({ ...options, ways: [forbidden] })).toMatchObject({ kwok });
  });

  test("loses what an interrupted process left", async () => {
    const parent = dirname(cacheDirectory(environment()));
    writeBinaries(join(parent, "unfinished-12345"));
    await ensureBinaries({ environment: environment(), ways: [working("way")], progress: silentProgress });
    expect(existsSync(join(parent, "unfinished-12345"))).toBe(false);
  });

  test.each([
    ["by its own variable", { [CACHE_VARIABLE]: "/a" }, /^\/a\/kubernetes-1/],
    ["by XDG_CACHE_HOME", { XDG_CACHE_HOME: "/b", HOME: "/c" }, /^\/b\/podseidon\/control-plane\/kubernetes-1/],
    ["in the home directory", { HOME: "/c" }, /^\/c\/\.cache\/podseidon\/control-plane\/kubernetes-1/],
  ])("lies where it is put %s", (_name, variables, expected) => {
    expect(cacheDirectory(variables)).toMatch(expected);
  });
});

describe("when nothing works", () => {
  test("the error names each way and why it failed, and nothing is left", async () => {
    const incomplete: Way = {
      name: "third way",
      fill: async (directory) => writeBinaries(directory, { kwok: "0.7.0" }),
    };
    const ways = [failing("first way", "no network"), failing("second way", "no Go"), incomplete];
    const lines: string[] = [];
    const progress: BuildProgress = { step: (line) => lines.push(line), detail: () => {} };
    const none = ensureBinaries({ environment: environment(), ways, progress });
    await expect(none).rejects.toThrow(
      new RegExp(
        "installed \\(.*\\): .* missing\n- cache .*\n- first way: no network\n" +
          "- second way: no Go\n- third way: .*kwok is version 0\\.7\\.0",
        "s",
      ),
    );
    expect(lines).toContain("second way did not work: no Go");
    expect(readdirSync(join(root, "cache"))).toEqual([]);
  });

  test("a cache that can't be made is named", async () => {
    writeFileSync(join(root, "file"), "");
    const none = ensureBinaries({
      environment: environment({ [CACHE_VARIABLE]: join(root, "file", "x") }),
      ways: [forbidden],
    });
    await expect(none).rejects.toThrow(/the cache can't be written: .*ENOTDIR/s);
  });
});
