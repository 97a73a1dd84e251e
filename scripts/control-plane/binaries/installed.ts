import { execFile } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { messageOf } from "../../../shared/runtime/errors.ts";
import { BINARY_NAMES, type BinaryName, VERSION_QUESTIONS, VERSIONS } from "./versions.ts";

const run = promisify(execFile);
const ANSWER_TIMEOUT_MS = 30_000;

export type BinaryPaths = Readonly<Record<BinaryName, string>>;

/** The version that a binary prints, without a leading `v`, or the problem. */
async function askVersion(name: BinaryName, path: string): Promise<{ version: string } | { problem: string }> {
  const question = VERSION_QUESTIONS[name];
  try {
    const { stdout } = await run(path, [...question.args], { timeout: ANSWER_TIMEOUT_MS, env: { PATH: "" } });
    const version = question.answer.exec(stdout)?.[1];
    return version === undefined ? { problem: `${path} did not say its version` } : { version };
  } catch (error) {
    return { problem: `${path} could not be run: ${messageOf(error).split("\n", 1)[0]}` };
  }
}

/** A sentence when `path` is not `name` at the version that the project is tested with; undefined when it is. */
export async function problemWith(name: BinaryName, path: string): Promise<string | undefined> {
  const wanted: string = VERSIONS[VERSION_QUESTIONS[name].release];
  const answer = await askVersion(name, path);
  if ("problem" in answer) return answer.problem;
  return answer.version === wanted ? undefined : `${path} is version ${answer.version}, not ${wanted}`;
}

/**
 * The binaries in `KUBEBUILDER_ASSETS` and `PATH`, if all exist and report the right version. Throws an error that
 * names the missing ones and those of another version.
 */
export async function installedBinaries(environment: NodeJS.ProcessEnv): Promise<BinaryPaths> {
  const listed = [environment.KUBEBUILDER_ASSETS, ...(environment.PATH ?? "").split(":")];
  const directories = listed.flatMap((directory) => directory || []);
  const candidates = (name: BinaryName): string[] =>
    directories.map((directory) => join(directory, name)).filter(isExecutable);
  const missing = BINARY_NAMES.filter((name) => candidates(name).length === 0);
  if (missing.length > 0) throw new Error(`${missing.join(", ")} ${missing.length === 1 ? "is" : "are"} missing`);
  const problems: string[] = [];
  const found = new Map<BinaryName, string>();
  const find = async (name: BinaryName): Promise<void> => {
    const answers: string[] = [];
    for (const path of candidates(name)) {
      const problem = await problemWith(name, path);
      if (problem === undefined) return void found.set(name, path);
      answers.push(problem);
    }
    problems.push(answers.join(", "));
  };
  await Promise.all(BINARY_NAMES.map(find));
  if (problems.length > 0) throw new Error(problems.join("; "));
  return eachBinary((name) => found.get(name) ?? "");
}

export function eachBinary<T>(make: (name: BinaryName) => T): Record<BinaryName, T> {
  return {
    etcd: make("etcd"),
    "kube-apiserver": make("kube-apiserver"),
    "kube-controller-manager": make("kube-controller-manager"),
    "kube-scheduler": make("kube-scheduler"),
    kubectl: make("kubectl"),
    kwok: make("kwok"),
  };
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
