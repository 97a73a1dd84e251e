import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { root } from "./root.ts";

/** A clone without dependencies, in a folder with a space in its name. */
let clone: string;

beforeEach(async () => {
  clone = await mkdtemp(join(tmpdir(), "podseidon bootstrap-"));
  for (const folder of ["scripts", "bin"]) await mkdir(join(clone, folder));
  await copyFile(join(root, "scripts/bootstrap.mjs"), join(clone, "scripts/bootstrap.mjs"));
  await copyFile(join(root, "package-lock.json"), join(clone, "package-lock.json"));
  await writeFile(join(clone, "scripts/hello.ts"), 'console.log("hello", process.argv[2]);\n');
});

afterEach(() => rm(clone, { recursive: true, force: true }));

/** What the clone finds as npm: notes its arguments, and goes on as `script` says. */
async function setNpm(script: string): Promise<void> {
  const path = join(clone, "bin/npm");
  await writeFile(path, `#!/bin/sh\necho "$@" >> calls\n${script}\n`);
  await chmod(path, 0o755);
}

/** Puts there what the bootstrap looks for. */
async function setGoodNpm(): Promise<void> {
  await symlink(process.execPath, join(clone, "bin/this-node"));
  await setNpm("mkdir -p node_modules/.bin && cp -P bin/this-node node_modules/.bin/node");
}

function bootstrap(env: NodeJS.ProcessEnv = {}): ChildProcess {
  const path = `${join(clone, "bin")}${delimiter}${process.env.PATH ?? ""}`;
  return spawn(process.execPath, [join(clone, "scripts/bootstrap.mjs"), "scripts/hello.ts", "you"], {
    env: { ...process.env, PATH: path, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
}

async function textOf(stream: ChildProcess["stdout"]): Promise<string> {
  let text = "";
  for await (const chunk of stream ?? []) text += String(chunk);
  return text;
}

const calls = async (): Promise<readonly string[]> =>
  (await readFile(join(clone, "calls"), "utf8")).trimEnd().split("\n");

test("installs once, with all that the lock file names, whatever is set to be left out", async () => {
  await setGoodNpm();
  expect(await textOf(bootstrap().stdout)).toBe("hello you\n");
  expect(await textOf(bootstrap().stdout)).toBe("hello you\n");
  expect(await calls()).toEqual([
    expect.stringMatching(/^ci --include=dev --include=optional --no-engine-strict --bin-links /),
  ]);
});

test.each<NodeJS.Signals>(["SIGINT", "SIGTERM", "SIGKILL"])("is not in its own way after a %s", async (signal) => {
  await setNpm("echo begun >&2; exec sleep 2");
  const interrupted = bootstrap();
  for await (const chunk of interrupted.stderr ?? []) if (String(chunk).includes("begun")) break;
  interrupted.kill(signal);
  expect((await once(interrupted, "exit"))[1]).toBe(signal);

  await setGoodNpm();
  expect(await textOf(bootstrap().stdout)).toBe("hello you\n");
});

test("ends when the shell that npm started it by is killed, which tells nobody", async () => {
  await setGoodNpm();
  const script = 'process.on("SIGTERM", () => process.exit(console.log("ended"))); setInterval(() => {}, 1000);';
  await writeFile(join(clone, "scripts/hello.ts"), `${script}\nconsole.log("up");\n`);
  const words = [process.execPath, join(clone, "scripts/bootstrap.mjs"), "scripts/hello.ts"];
  const shell = spawn("sh", ["-c", `${words.map((word) => `"${word}"`).join(" ")}; exit $?`], {
    env: { ...process.env, PATH: `${join(clone, "bin")}${delimiter}${process.env.PATH}`, npm_lifecycle_event: "demo" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let said = "";
  for await (const chunk of shell.stdout) {
    said += String(chunk);
    if (said === "up\n") shell.kill("SIGTERM");
  }
  expect(said).toBe("up\nended\n");
});

test("two at once: one installs, the other says that it waits", async () => {
  await setGoodNpm();
  await setNpm(`sleep 1; ${(await readFile(join(clone, "bin/npm"), "utf8")).split("\n")[2]}`);
  const both = [bootstrap(), bootstrap()];
  const said = await Promise.all(both.map(async ({ stdout, stderr }) => Promise.all([textOf(stdout), textOf(stderr)])));
  expect(said.map(([out]) => out)).toEqual(["hello you\n", "hello you\n"]);
  expect(said.filter(([, error]) => error?.includes("another process installs"))).toHaveLength(1);
  expect(await calls()).toHaveLength(1);
});

test("installs also where there are no abstract sockets, as before Node.js 20.8", async () => {
  await setGoodNpm();
  const without = join(clone, "without.cjs");
  const error = 'Object.assign(new Error("listen EINVAL"), { code: "EINVAL" })';
  await writeFile(
    without,
    `require("net").Server.prototype.listen = function () { setImmediate(() => this.emit("error", ${error})); };\n`,
  );
  const { stdout, stderr } = bootstrap({ NODE_OPTIONS: `--require ${JSON.stringify(without)}` });
  const [out, said] = await Promise.all([textOf(stdout), textOf(stderr)]);
  expect([out, said]).toEqual(["hello you\n", "podseidon: installing the locked dependencies (npm ci)\n"]);
});

describe("on a Mac", () => {
  /** NODE_OPTIONS takes double quotes as its own. */
  const NODE_OPTIONS = "--import=data:text/javascript,Object.defineProperty(process,'platform',{value:'darwin'})";

  test("the build runs by the Node.js that is there", async () => {
    await setNpm("mkdir -p node_modules");
    await copyFile(join(clone, "scripts/hello.ts"), join(clone, "scripts/build.ts"));
    const path = `${join(clone, "bin")}${delimiter}${process.env.PATH ?? ""}`;
    const child = spawn(process.execPath, [join(clone, "scripts/bootstrap.mjs"), "scripts/build.ts", "you"], {
      env: { ...process.env, PATH: path, NODE_OPTIONS },
      stdio: ["ignore", "pipe", "inherit"],
    });
    expect(await textOf(child.stdout)).toBe("hello you\n");
  });

  test("what starts clusters says that it needs Linux", async () => {
    expect(await textOf(bootstrap({ NODE_OPTIONS }).stderr)).toContain("this is darwin; npm run build works here");
  });

  test("no dependency and nothing of the project is locked to Linux, so that npm installs there", async () => {
    const manifest: unknown = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    expect(manifest).not.toHaveProperty("os");
    const lock: unknown = JSON.parse(await readFile(join(root, "package-lock.json"), "utf8"));
    for (const needed of ["darwin-arm64", "darwin-x64"])
      expect(lock).toHaveProperty(["packages", `node_modules/@esbuild/${needed}`]);
    expect(lock).not.toHaveProperty(["packages", "", "os"]);
  });
});
