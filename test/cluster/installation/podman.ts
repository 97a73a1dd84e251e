/** podman with a storage of its own, for tests that build images and run containers. `close` removes all of it. */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { writeRunBase } from "./image-bases.ts";

const run = promisify(execFile);
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;

/** A name in this machine's storage, of no registry. */
export const RUN_BASE = "localhost/podseidon-test/run-base";

/** As a kubelet starts a restricted pod, with limits that every machine allows. */
const RESTRICTED = [
  ...["--rm", "--network=host", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all"],
  ...["--security-opt=no-new-privileges", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"],
];

export class Podman {
  readonly directory: string;
  readonly #global: readonly string[];
  #runtime: readonly string[] = [];

  private constructor(directory: string) {
    this.directory = directory;
    const storage = [`--root=${join(directory, "storage")}`, `--runroot=${join(directory, "run")}`];
    this.#global = [...storage, "--storage-driver=vfs", "--cgroup-manager=cgroupfs"];
  }

  /** Resolves to a podman that has run a container of {@link RUN_BASE}, or to the reason why that failed. */
  static async find(): Promise<Podman | string> {
    try {
      await run("podman", ["--version"]);
    } catch {
      return "podman is not on PATH";
    }
    const podman = new Podman(mkdtempSync(join(tmpdir(), "podseidon-image-")));
    try {
      const base = join(podman.directory, "run-base");
      writeRunBase(base);
      await podman.build(RUN_BASE, base);
      await podman.#chooseRuntime();
      return podman;
    } catch (error) {
      await podman.close();
      return `podman cannot run a container: ${error instanceof Error ? error.message.trim() : error}`;
    }
  }

  /** Chooses podman's default runtime, or else runc, which supports more kinds of cgroups. */
  async #chooseRuntime(): Promise<void> {
    const works = async (runtime: readonly string[]): Promise<void> => {
      this.#runtime = runtime;
      await this.run(RUN_BASE, ["/nodejs/bin/node", "--version"], ["--entrypoint=[]"]);
    };
    await works([]).catch(() => works(["--runtime=runc"]));
  }

  /** Runs any command; rejects with its output when it fails. */
  async command(args: readonly string[]): Promise<string> {
    const options = { maxBuffer: MAX_OUTPUT_BYTES };
    return (await run("podman", [...this.#global, ...this.#runtime, ...args], options)).stdout;
  }

  /** Builds the Containerfile of a directory. It may use this machine's network. */
  async build(tag: string, directory: string, flags: readonly string[] = []): Promise<void> {
    const own = ["--isolation=chroot", "--network=host", "--pull=never", "--tag", tag];
    await this.command(["build", ...own, ...flags, "--file", join(directory, "Containerfile"), directory]);
  }

  /** Arguments that run a container as a kubelet runs a restricted pod, with the user of the image. */
  argumentsOf(image: string, words: readonly string[], flags: readonly string[] = []): readonly string[] {
    return [...this.#global, ...this.#runtime, "run", ...RESTRICTED, ...flags, image, ...words];
  }

  /** Runs a container to its end; resolves to its standard output, rejects when it fails. */
  async run(image: string, words: readonly string[], flags: readonly string[] = []): Promise<string> {
    return (await run("podman", [...this.argumentsOf(image, words, flags)], { maxBuffer: MAX_OUTPUT_BYTES })).stdout;
  }

  /** Ends every container, and removes every image with the storage. */
  async close(): Promise<void> {
    await this.command(["rm", "--all", "--force", "--time=0"]).catch(() => undefined);
    await this.command(["rmi", "--all", "--force"]).catch(() => undefined);
    rmSync(this.directory, { recursive: true, force: true });
  }
}
