/** Fetches the base from its registry, and pushes the image, with the first tool that exists and works. */
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { messageOf } from "../../shared/runtime/errors.ts";
import { ARCHITECTURES } from "./image.ts";

type Command = readonly [program: string, ...args: string[]];

/** Runs a command; throws when it fails. `input` is its standard input. */
export type Run = (command: Command, input: string) => void;

const PLATFORMS = ARCHITECTURES.map((one) => `linux/${one}`).join(",");
const MANIFEST = "podseidon-release-base";

/** Commands that write an image of a registry as an OCI layout; a build with only `FROM IMAGE` keeps its layers. */
const FETCHES: readonly ((image: string, directory: string) => readonly Command[])[] = [
  (image, directory) => [["crane", "pull", "--format=oci", "--platform=all", image, directory]],
  (image, directory) => [["skopeo", "copy", "--all", `docker://${image}`, `oci:${directory}`]],
  (_, directory) => [
    [
      "docker",
      "buildx",
      "build",
      `--platform=${PLATFORMS}`,
      "--provenance=false",
      `--output=type=oci,tar=false,dest=${directory}`,
      "-",
    ],
  ],
  (_, directory) => [
    ["buildah", "build", `--platform=${PLATFORMS}`, `--manifest=${MANIFEST}`, "--file=-"],
    ["buildah", "manifest", "push", "--all", MANIFEST, `oci:${directory}`],
    ["buildah", "manifest", "rm", MANIFEST],
  ],
];

const PUSHES: readonly ((directory: string, name: string) => readonly Command[])[] = [
  (directory, name) => [["crane", "push", directory, name]],
  (directory, name) => [["skopeo", "copy", "--all", `oci:${directory}`, `docker://${name}`]],
];

/** Undefined when the base is in `directory`; otherwise why each tool failed. */
export function fetchBase(image: string, directory: string, run: Run = runTool): readonly string[] | undefined {
  return firstThatWorks(
    FETCHES.map((of) => of(image, directory)),
    run,
    `FROM ${image}\n`,
    () => rmSync(directory, { recursive: true, force: true }),
  );
}

/** Throws when no tool could push. */
export function pushImage(directory: string, name: string, run: Run = runTool): void {
  const failed = firstThatWorks(
    PUSHES.map((of) => of(directory, name)),
    run,
    "",
  );
  if (failed !== undefined) throw new Error(`${name} was not pushed:\n- ${failed.join("\n- ")}`);
}

function firstThatWorks(
  ways: readonly (readonly Command[])[],
  run: Run,
  input: string,
  clean: () => void = () => {},
): readonly string[] | undefined {
  const failed: string[] = [];
  for (const commands of ways) {
    try {
      for (const command of commands) run(command, input);
      return undefined;
    } catch (error) {
      failed.push(`${commands[0]?.[0]}: ${messageOf(error)}`);
      clean();
    }
  }
  return failed;
}

function runTool([program, ...args]: Command, input: string): void {
  try {
    execFileSync(program, args, { input, stdio: ["pipe", "ignore", "pipe"], encoding: "utf8" });
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") throw new Error("is not on the PATH");
    const said = error instanceof Error && "stderr" in error ? String(error.stderr).trim().split("\n").at(-1) : "";
    throw new Error(said || messageOf(error));
  }
}
